"""Shards that the packages webdataset and tfrecord write train like the same pictures in a folder, to the bit.

  shards.py PATH/TO/ddp_train

Exits with 0 if all agree, 1 if something differs, 77 if a package is not installed."""

import io
import os
import random
import subprocess
import sys
import tempfile

try:
    import webdataset
    from PIL import Image
    from tfrecord.writer import TFRecordWriter
except ImportError as error:
    print(f'skipped: {error}')
    sys.exit(77)

CLASSES = ('ant', 'bee', 'cow')
SHARDS = 3


def picture(generator, name):
    """JPEG and PNG, in colour and grey, of different sizes."""
    size = generator.randrange(30, 70), generator.randrange(30, 70)
    mode = generator.choice(('RGB', 'L'))
    image = Image.frombytes(mode, size, generator.randbytes(size[0] * size[1] * len(mode.replace('RGB', 'abc'))))
    out = io.BytesIO()
    image.save(out, 'JPEG' if name.endswith('jpg') else 'PNG')
    return out.getvalue()


def write_folder(root, generator):
    for part, count in (('train', 11), ('val', 4)):
        for label in CLASSES:
            os.makedirs(f'{root}/folder/{part}/{label}')
            for i in range(count):
                name = f'{i:02}.{generator.choice(("jpg", "png"))}'
                with open(f'{root}/folder/{part}/{label}/{name}', 'wb') as file:
                    file.write(picture(generator, name))


def write_shards(root):
    for name in ('by-number', 'by-name', 'records'):
        os.makedirs(f'{root}/{name}')
    for part in ('train', 'val'):
        folder = f'{root}/folder/{part}'
        samples = [(label, name) for label in CLASSES for name in sorted(os.listdir(f'{folder}/{label}'))]
        for shard in range(SHARDS):
            number = webdataset.TarWriter(f'{root}/by-number/{part}-{shard}.tar')
            named = webdataset.TarWriter(f'{root}/by-name/{part}-{shard}.tar')
            records = TFRecordWriter(f'{root}/records/{part}-{shard:05}-of-{SHARDS:05}')
            for label, name in samples[shard * len(samples) // SHARDS:(shard + 1) * len(samples) // SHARDS]:
                key, suffix = name.split('.')
                with open(f'{folder}/{label}/{name}', 'rb') as file:
                    data = file.read()
                number.write({'__key__': f'{label}/{key}', suffix: data, 'cls': CLASSES.index(label)})
                named.write({'__key__': f'{label}/{key}', f'left.{suffix}': data, 'json': {'label': label, 'id': 7}})
                records.write({'image/encoded': (data, 'byte'), 'image/class/label': (CLASSES.index(label), 'int'),
                               'image/class/text': (label.encode(), 'byte'), 'box': ([0.5, 0.25], 'float')})
            for writer in (number, named, records):
                writer.close()


def main():
    seed = random.SystemRandom().randrange(1 << 32)
    print(f'seed {seed}')
    with tempfile.TemporaryDirectory() as root:
        os.environ['XDG_CACHE_HOME'] = f'{root}/cache'
        write_folder(root, random.Random(seed))
        write_shards(root)

        def weights(name, options):
            subprocess.run([sys.argv[1], '--model', 'lenet', '--image-size', '28', '--global-batch', '8', '--epochs', '2',
                            '--random-flip', 'on', '--deterministic', '--progress', 'none', '--device', 'cpu', '--output',
                            f'{root}/runs/{name}'] + options, check=True, stdout=subprocess.DEVNULL)
            with open(f'{root}/runs/{name}/latest/model.safetensors', 'rb') as file:
                return file.read()

        expected = weights('folder', ['--dataset', 'folder', '--data-dir', f'{root}/folder'])
        failures = 0
        for name, dataset in (('by-number', 'webdataset'), ('by-name', 'webdataset'), ('records', 'tfrecord')):
            suffix = f'{{00000..0000{SHARDS - 1}}}-of-{SHARDS:05}' if dataset == 'tfrecord' else f'{{0..{SHARDS - 1}}}.tar'
            found = weights(name, ['--dataset', dataset, '--data-dir', f'{root}/{name}/train-{suffix}', '--val-dir',
                                   f'{root}/{name}/val-{suffix}'])
            print(f'{name}: {"the bytes of the folder" if found == expected else "DIFFERENT"}')
            failures += found != expected
    return 1 if failures else 0


sys.exit(main())
