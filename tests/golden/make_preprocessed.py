#!/usr/bin/env python3
"""Generates tests/golden/preprocessed: further small images, and what Pillow makes of all of them for a network.

    python3 -m venv ~/pillow && ~/pillow/bin/pip install pillow numpy
    ~/pillow/bin/python tests/golden/make_preprocessed.py

cases.txt has a line for each result: file below tests/golden, height and width for the network, and the CRC-32 of the bytes
[3][height][width]. rules.txt has further ones with other rules: between width and CRC-32 --resize, --eval-crop and
--interpolation. The recipe is that of docs/preprocessing.md. Grey images of 16 bits are left out, which Pillow clips. The images are variants of tests/golden/images:

    cmyk-plain.jpg   without Adobe's marker
    ycck.jpg         whose marker says that the first three components are YCbCr
    ycck-plain.jpg   the same without the marker
    window.png       whose zlib header states a window of 256 bytes, although matches are further apart
    rgb16.png        with 16 bits per channel
    small.png        smaller than most networks' images
"""

import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

GOLDEN = pathlib.Path(__file__).resolve().parent
FOLDER = GOLDEN / 'preprocessed'
# Height and width; golden images have 90x118 pixels.
SIZES = ((24, 24), (20, 31), (96, 128), (90, 118))


def marker(jpeg):
    """Where the segment of Adobe's marker begins and ends."""
    at = jpeg.index(b'\xff\xee')
    return at, at + 2 + struct.unpack('>H', jpeg[at + 2:at + 4])[0]


def png(width, height, depth, rows):
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

    header = struct.pack('>IIBBBBB', width, height, depth, 2, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', rows) + chunk(b'IEND', b'')


def write_images():
    FOLDER.mkdir(exist_ok=True)
    cmyk = (GOLDEN / 'images' / 'cmyk.jpg').read_bytes()
    begin, end = marker(cmyk)
    ycck = cmyk[:end - 1] + b'\x02' + cmyk[end:]
    (FOLDER / 'cmyk-plain.jpg').write_bytes(cmyk[:begin] + cmyk[end:])
    (FOLDER / 'ycck.jpg').write_bytes(ycck)
    (FOLDER / 'ycck-plain.jpg').write_bytes(ycck[:begin] + ycck[end:])
    row = np.random.default_rng(1).integers(0, 256, 64 * 3, dtype=np.uint8).tobytes()
    other = np.random.default_rng(2).integers(0, 256, 64 * 3, dtype=np.uint8).tobytes()
    packed = bytearray(zlib.compress(b''.join(b'\0' + (row, other)[y % 3 == 1] for y in range(48)), 9))
    packed[0] = 0x08  # a window of 2^(0 + 8) bytes
    packed[1] = (31 - packed[0] * 256 % 31) % 31
    (FOLDER / 'window.png').write_bytes(png(64, 48, 8, bytes(packed)))
    levels = np.arange(40 * 30 * 3, dtype=np.uint32).reshape(30, -1) * 37 % 65536
    rows = b''.join(b'\0' + line.astype('>u2').tobytes() for line in levels)
    (FOLDER / 'rgb16.png').write_bytes(png(40, 30, 16, zlib.compress(rows, 9)))
    colours = np.random.default_rng(3).integers(0, 256, (11, 7, 3), dtype=np.uint8)
    Image.fromarray(colours).save(FOLDER / 'small.png')


def preprocess(path, height, width, crop=0.875, resize='crop', interpolation='bilinear'):
    image = Image.open(path).convert('RGB')
    method = Image.Resampling[interpolation.upper()]
    if resize == 'pad':
        image = ImageOps.pad(image, (width, height), method)
    elif resize == 'squash' and image.size != (width, height):
        w, h = crop * image.width, crop * image.height
        x, y = (image.width - w) / 2, (image.height - h) / 2
        image = image.resize((width, height), method, box=(x, y, x + w, y + h))
    elif image.size != (width, height):
        scale = crop * min(image.width / width, image.height / height)
        x, y = (image.width - scale * width) / 2, (image.height - scale * height) / 2
        image = image.resize((width, height), method, box=(x, y, x + scale * width, y + scale * height))
    return np.asarray(image).transpose(2, 0, 1)


def main():
    write_images()
    lines = []
    for path in sorted([*(GOLDEN / 'images').glob('*'), *FOLDER.glob('*')]):
        if path.suffix in ('.txt', '.bin') or path.name in ('animated.webp', 'grey16.png'):
            continue
        for height, width in SIZES:
            crc = zlib.crc32(np.ascontiguousarray(preprocess(path, height, width)))
            lines.append(f'{path.relative_to(GOLDEN)} {height} {width} {crc}')
    (FOLDER / 'cases.txt').write_text('\n'.join(lines) + '\n')
    write_rules()


def write_rules():
    lines = []
    for name in ('images/photo.jpg', 'images/rgb.png', 'preprocessed/small.png', 'images/palette.png'):
        for height, width in SIZES:
            for resize, crop in (('crop', 0.875), ('crop', 1), ('crop', 0.95), ('squash', 1), ('squash', 0.8), ('pad', 1)):
                for interpolation in ('bilinear', 'bicubic'):
                    pixels = preprocess(GOLDEN / name, height, width, crop, resize, interpolation)
                    lines.append(f'{name} {height} {width} {resize} {crop} {interpolation} '
                                 f'{zlib.crc32(np.ascontiguousarray(pixels))}')
    (FOLDER / 'rules.txt').write_text('\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()
