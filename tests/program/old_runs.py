#!/usr/bin/env python3
"""Checkpoints of earlier versions continue with the bytes that those versions would have computed.

    old_runs.py DDP_TRAIN MPIRUN           # resumes the checkpoints of tests/golden/old_runs
    old_runs.py --make DDP_TRAIN           # writes them, with the program whose bytes are to be kept; needs pip install onnx

A default may change its meaning for new runs (src/options/defaults.h), never for these. Each run below was stopped after a few
steps; expected.json has the hashes of its tensors at its end, and its evaluations. Kernels are those of AVX2 and chosen without
timing, so that every machine computes the same. Exits with 0 if all agree, 1 if something differs."""

import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / 'golden'
OLD_RUNS = GOLDEN / 'old_runs'
SIDE = 16
COMMON = ['--dataset', 'folder', '--image-size', str(SIDE), '--global-batch', '4', '--logical-shards', '2', '--epochs', '3',
          '--lr', '0.05', '--momentum', '0.9', '--deterministic', '--threads', '1', '--progress', 'none']
# Stopped within the second epoch of three.
RUNS = {
    # Augmented, but without a random region: what is shown of a picture is the rule that evaluation has, too.
    'photographs': ['--normalize', 'standard', '--random-flip', '--random-crop-padding', '2', '--color-jitter', '0.4,0.4,0.4',
                    '--cutout', '5'],
    # Batch normalisation of frozen layers, over random regions.
    'frozen': ['--random-resized-crop', '--normalize', 'imagenet', '--freeze', 'first.*'],
    # Tensors that earlier versions took for constants because of their names.
    'constants': ['--normalize', 'imagenet'],
}
NETWORKS = {'constants': 'constants.onnx'}
STOPPED_AT = 4


def png(side, phase):
    """A square picture of smooth colours."""
    rows = b''
    for y in range(side):
        rows += b'\0' + bytes((40 * c + 7 * phase + (x * (3 + c) + y * (5 - c)) * 160 // side) % 256
                              for x in range(side) for c in range(3))

    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

    header = struct.pack('>IIBBBBB', side, side, 8, 2, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(rows, 9)) + chunk(b'IEND', b'')


def make_pictures(data):
    """Of 118x90 pixels, which the decoder shrinks, of 29x29, which it does not, and of the network's size."""
    for split, each in (('train', ('photo.jpg', 'rgb.png', 'progressive.jpg', 'cmyk.jpg')), ('val', ('grey.jpg', 'photo.jpg'))):
        for label in 'ab':
            folder = data / split / label
            folder.mkdir(parents=True)
            for i, name in enumerate(each[label == 'b'::2]):
                shutil.copy(GOLDEN / 'images' / name, folder / f'large{i}-{name}')
            for i in range(2):
                phase = 4 * (split == 'val') + 2 * (label == 'b') + i
                (folder / f'middle{i}.png').write_bytes(png(29, phase))
                (folder / f'right{i}.png').write_bytes(png(SIDE, phase + 8))


def make_network(path, blocks=('first', 'second')):
    """Two convolutions with batch normalisation and a linear layer."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    random = np.random.default_rng(7)
    tensors = []

    def tensor(name, *shape, value=None):
        values = random.normal(size=shape) / np.sqrt(np.prod(shape[1:])) if value is None else np.full(shape, value)
        tensors.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def block(x, name, inputs, outputs):
        weights = tensor(f'{name}.conv.weight', outputs, inputs, 3, 3)
        norm = [tensor(f'{name}.norm.{part}', outputs, value=value)
                for part, value in (('weight', 1), ('bias', 0), ('running_mean', 0), ('running_var', 1))]
        return [helper.make_node('Conv', [x, weights], [f'{name}.c'], kernel_shape=[3, 3], pads=[1] * 4),
                helper.make_node('BatchNormalization', [f'{name}.c', *norm], [f'{name}.n']),
                helper.make_node('Relu', [f'{name}.n'], [f'{name}.r'])]

    first, second = blocks
    nodes = block('input', first, 3, 8)
    nodes.append(helper.make_node('MaxPool', [f'{first}.r'], ['p'], kernel_shape=[2, 2], strides=[2, 2]))
    nodes += block('p', second, 8, 8)
    nodes.append(helper.make_node('GlobalAveragePool', [f'{second}.r'], ['g']))
    nodes.append(helper.make_node('Flatten', ['g'], ['f']))
    nodes.append(helper.make_node('Gemm', ['f', tensor('head.weight', 2, 8), tensor('head.bias', 2, value=0)], ['logits'],
                                  transB=1))
    graph = helper.make_graph(
        nodes, 'old', [helper.make_tensor_value_info('input', TensorProto.FLOAT, ['n', 3, SIDE, SIDE])],
        [helper.make_tensor_value_info('logits', TensorProto.FLOAT, ['n', 2])], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 13)], ir_version=8), path)


def tensors_hash(path):
    """Of the names and bytes of all tensors in a safetensors file."""
    content = path.read_bytes()
    begin = 8 + struct.unpack('<Q', content[:8])[0]
    header = json.loads(content[8:begin])
    hasher = hashlib.sha256()
    for name in sorted(header):
        if name == '__metadata__':
            continue
        first, last = header[name]['data_offsets']
        hasher.update(name.encode() + content[begin + first:begin + last])
    return hasher.hexdigest()


def result_of(run):
    latest = run / 'latest'
    with open(run / 'metrics.jsonl') as lines:
        evaluations = [json.loads(line) for line in lines if '"val_loss"' in line]
    return {'model': tensors_hash(latest / 'model.safetensors'), 'optimizer': tensors_hash(latest / 'optimizer.safetensors'),
            'evaluations': [[e['val_loss'], e['val_accuracy']] for e in evaluations]}


def train(program, data, network, output, options, *more, launcher=()):
    # Relative paths are written into checkpoints.
    environment = dict(os.environ, DDP_INSTRUCTION_SET='avx2', XDG_CACHE_HOME=str(output.parent / 'cache'))
    command = [*launcher, os.path.abspath(program), *COMMON, '--data-dir', data.name, '--model', str(network),
               '--output', output.name, *options, *more]
    result = subprocess.run(command, cwd=data.parent, env=environment, capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        sys.exit(f'{" ".join(map(str, command))}: exit code {result.returncode}\n{result.stdout[-2000:]}{result.stderr}')


def make(program):
    shutil.rmtree(OLD_RUNS, ignore_errors=True)
    OLD_RUNS.mkdir()
    make_network(OLD_RUNS / 'network.onnx')
    make_network(OLD_RUNS / 'constants.onnx', ('new_first', 'a/second'))
    expected = {}
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / 'data'
        make_pictures(data)
        for name, options in RUNS.items():
            network = pathlib.Path(shutil.copy(OLD_RUNS / NETWORKS.get(name, 'network.onnx'), folder))
            run = pathlib.Path(folder) / name
            train(program, data, network.name, run, options, '--max-steps', str(STOPPED_AT))
            shutil.copytree(next((run / 'checkpoints').glob(f'step-*{STOPPED_AT}')), OLD_RUNS / name)
            train(program, data, network.name, run, options, '--resume', 'auto')
            expected[name] = result_of(run)
    (OLD_RUNS / 'expected.json').write_text(json.dumps(expected, indent=1) + '\n')


def main():
    if sys.argv[1] == '--make':
        return make(sys.argv[2])
    program, mpirun = sys.argv[1:3]
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
    expected = json.loads((OLD_RUNS / 'expected.json').read_text())
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / 'my data'
        make_pictures(data)
        for name, options in RUNS.items():
            # The second epoch ends, is evaluated, and the third follows.
            for ranks in (1, 2):
                run = pathlib.Path(folder) / f'{name}-{ranks}'
                launcher = [] if ranks == 1 else [mpirun, '-q', '--oversubscribe', '--bind-to', 'none', '-np', str(ranks)]
                train(program, data, OLD_RUNS / NETWORKS.get(name, 'network.onnx'), run, options, '--resume', str(OLD_RUNS / name),
                      launcher=launcher)
                found = result_of(run)
                wanted = dict(expected[name], evaluations=expected[name]['evaluations'][-len(found['evaluations']):])
                for what, value in wanted.items():
                    if found[what] != value:
                        problems.append(f'{name} on {ranks} ranks: {what} {found[what]} instead of {value}')
    for problem in problems:
        print('FAILED:', problem)
    if not problems:
        print('all runs continue with the same bytes')
    return len(problems) > 0


if __name__ == '__main__':
    sys.exit(main())
