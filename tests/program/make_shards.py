"""Writes the same pictures as a folder, as WebDataset and as TFRecord: make_shards.py FOLDER.

FOLDER/{folder/{train,val}/CLASS/*.png, web/{train,val}-N.tar, records/{train,val}-N.tfrecord}; samples in the order of the
folder. Only Python's own library is needed; what other packages write is compared in tests/peers/shards.py.
"""

import io
import os
import struct
import sys
import tarfile

from grey_png import grey_png

CLASSES = ("ant", "bee", "cow")


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def part(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def record(picture, label):
    feature = lambda key, value: part(1, part(1, key) + part(2, value))
    data = part(1, feature(b"image/class/label", part(3, part(1, varint(label)))) + feature(b"image/encoded", part(1, part(1, picture))))
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def main(root):
    for name in ("web", "records"):
        os.makedirs(f"{root}/{name}")
    for split, count in (("train", 12), ("val", 4)):
        samples = [(c, i, grey_png(100 * c + i + (50 if split == "val" else 0))) for c in range(len(CLASSES)) for i in range(count)]
        for c, i, picture in samples:
            folder = f"{root}/folder/{split}/{CLASSES[c]}"
            os.makedirs(folder, exist_ok=True)
            with open(f"{folder}/{i:03}.png", "wb") as file:
                file.write(picture)
        # Shards of unequal sizes.
        for shard, part_of in enumerate((samples[:5], samples[5:6], samples[6:])):
            with tarfile.open(f"{root}/web/{split}-{shard}.tar", "w") as tar:
                for c, i, picture in part_of:
                    for suffix, data in (("png", picture), ("cls", str(c).encode())):
                        info = tarfile.TarInfo(f"{CLASSES[c]}/{i:03}.{suffix}")
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
            with open(f"{root}/records/{split}-{shard}.tfrecord", "wb") as file:
                for c, i, picture in part_of:
                    file.write(record(picture, c))


main(sys.argv[1])
