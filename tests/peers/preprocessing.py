"""Whether docs/preprocessing.md is true: its Python code, with the recipe in the metadata of an exported network, makes of
pictures what evaluation reads. Trains a small network on pictures of many sizes and kinds, and compares the losses of evaluation
with those that ONNX Runtime computes of what the code makes of the files.

  preprocessing.py PATH/TO/ddp_train

Exits with 0 if all agree, 1 if something differs, 77 if a package is not installed."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    from PIL import Image
except ImportError as missing:
    print(f'skipped: {missing}')
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SEED = int(np.random.default_rng().integers(1 << 31))
# Rounding errors of the mean loss are below 1e-6; the other rules that are tried below change it by more than 1e-4.
TOLERANCE = 5e-6


def documented_code():
    blocks = re.findall(r'```python\n(.*?)```', (ROOT / 'docs' / 'preprocessing.md').read_text(), re.S)
    return blocks[0], blocks[1]


def write_pictures(data, random, height, width):
    """JPEG and PNG files of random sizes, one of which is the network's, and those of tests/golden."""
    golden = [path for folder in ('images', 'preprocessed') for path in sorted((ROOT / 'tests' / 'golden' / folder).iterdir())
              if path.suffix in ('.jpg', '.png') and path.name != 'grey16.png']
    for split in ('train', 'val'):
        for label in 'ab':
            folder = data / split / label
            folder.mkdir(parents=True)
            for i, path in enumerate(golden[label == 'b'::2]):
                shutil.copy(path, folder / f'golden{i}{path.suffix}')
            for i in range(8):
                h, w = (height, width) if i == 0 else (int(s) for s in random.integers(2, 400, 2))
                # Recent versions of Pillow resize the height first; earlier ones, like the program, never do.
                while h > height and h - height > 2 * (w - width):
                    w += 50
                # Smooth colours with noise.
                small = random.integers(0, 256, (max(1, h // 9), max(1, w // 9), 3), dtype=np.uint8)
                pixels = np.asarray(Image.fromarray(small).resize((w, h), Image.BICUBIC), np.int16)
                pixels = np.clip(pixels + random.integers(-30, 30, pixels.shape), 0, 255).astype(np.uint8)
                image = Image.fromarray(pixels)
                if i % 3 == 0:
                    image.save(folder / f'random{i}.png')
                else:
                    exif = Image.Exif()
                    exif[0x0112] = 1 + i % 4  # the orientation; others would make pictures tall
                    image.save(folder / f'random{i}.jpg', quality=90, subsampling=2 * (i % 2), exif=exif)


def write_network(path, channels, height, width, random):
    inputs = channels * height * width
    weights = [numpy_helper.from_array((random.normal(size=(2, inputs)) * 4 / np.sqrt(inputs)).astype(np.float32), 'w'),
               numpy_helper.from_array(np.zeros(2, np.float32), 'b')]
    nodes = [helper.make_node('Flatten', ['input'], ['f']), helper.make_node('Gemm', ['f', 'w', 'b'], ['logits'], transB=1)]
    graph = helper.make_graph(
        nodes, 'linear', [helper.make_tensor_value_info('input', TensorProto.FLOAT, ['n', channels, height, width])],
        [helper.make_tensor_value_info('logits', TensorProto.FLOAT, ['n', 2])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 13)], ir_version=8), path)


def call(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f'{" ".join(map(str, command))}: {result.stderr.strip()}')
    return result.stdout


def mean_loss(session, files, preprocess):
    losses = []
    for label, path in files:
        logits = session.run(None, {'input': preprocess(path)[None]})[0][0].astype(np.float64)
        losses.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[label])
    return float(np.mean(losses))


def compare(program, folder, channels, height, width, options, random, exact=True):
    data, run, exported = folder / 'data', folder / 'run', folder / 'trained.onnx'
    write_pictures(data, random, height, width)
    write_network(folder / 'net.onnx', channels, height, width, random)
    header = call(program, '--model', folder / 'net.onnx', '--dataset', 'folder', '--data-dir', data, '--image-size',
                  f'{height}x{width}', '--image-channels', channels, '--global-batch', 8, '--lr', 0.001,
                  '--epochs', 1, '--threads', 1, '--progress', 'none', '--output', run, *options)
    call(program, 'export', '--run', run, '--to', exported)
    with open(run / 'metrics.jsonl') as lines:
        wanted = [json.loads(line)['val_loss'] for line in lines if '"val_loss"' in line][-1]
    code, metadata_code = documented_code()
    names = {'json': json, 'onnx': onnx}
    exec(code, names)
    exec(metadata_code.replace('trained.onnx', str(exported)), names)
    recipe = dict(names['metadata'], recipe=names['metadata']['preprocessing'])
    del recipe['preprocessing']
    session = onnxruntime.InferenceSession(str(exported))
    files = [(label, path) for label, name in enumerate('ab') for path in sorted((data / 'val' / name).iterdir())]
    found = mean_loss(session, files, lambda path: names['preprocess'](path, **recipe))
    other = dict(recipe, recipe=dict(recipe['recipe'], crop=1.0, resize='crop'))
    cropped = mean_loss(session, files, lambda path: names['preprocess'](path, **other))
    print(f'{channels}x{height}x{width} {" ".join(options)}: loss {wanted:.7f}, with Pillow {found:.7f}, uncropped {cropped:.7f}')
    if recipe['recipe']['exact'] != exact:
        return f'the recipe of {options} says {recipe["recipe"]}'
    if exact and not abs(found - wanted) <= TOLERANCE * wanted:
        return f'the loss of {options} differs'
    if abs(found - cropped) <= 1e-4 * wanted:
        return 'another crop makes no difference'
    if not re.search(rf'pictures .*; those of {height}x{width} as they are', header):
        return 'the header does not say what is done to pictures'
    return None


def main():
    random = np.random.default_rng(SEED)
    program = pathlib.Path(sys.argv[1]).resolve()
    problems = []
    for channels, height, width, options, exact in ((3, 24, 24, ['--normalize', 'imagenet'], True),
                                                    (1, 20, 31, ['--normalize', 'standard', '--random-resized-crop'], True),
                                                    (3, 40, 24, ['--image-cache', 'cache'], True),
                                                    (3, 24, 24, ['--resize', 'squash', '--eval-crop', '0.9',
                                                                 '--interpolation', 'bicubic'], True),
                                                    (3, 20, 31, ['--resize', 'pad', '--interpolation', 'bicubic',
                                                                 '--image-cache', 'cache'], True),
                                                    (3, 24, 24, ['--eval-crop', '0.95', '--exif-orientation', 'off'], True),
                                                    (3, 24, 24, ['--fast-decode', 'on'], False)):
        with tempfile.TemporaryDirectory() as folder:
            options = [str(pathlib.Path(folder) / part) if part == 'cache' else part for part in options]
            problem = compare(program, pathlib.Path(folder), channels, height, width, options, random, exact)
            if problem:
                problems.append(problem)
    print(f'{"FAILED" if problems else "ok"}: seed {SEED} {"; ".join(problems)}')
    sys.exit(1 if problems else 0)


if __name__ == '__main__':
    main()
