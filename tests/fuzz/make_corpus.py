#!/usr/bin/env python3
"""make_corpus.py [FOLDER]: writes the seeds of the fuzz programs, FOLDER/NAME/*, by default into corpus/ beside this script.

Each seed is small and tests one feature. Files with other names are kept: they are inputs of defects found by fuzzing. Needs only Python.
"""

import gzip
import io
import json
import struct
import sys
import tarfile
import zlib
from pathlib import Path

from onnx_seeds import onnx_seeds

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "corpus"


def save(target: str, name: str, content: bytes) -> None:
    path = FOLDER / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


# JPEG (ITU-T T.81): blocks with a single level, and Huffman tables with two codes, so that no encoder is needed.


def marker(code: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, code, len(content) + 2) + content


def huffman(kind: int, symbols: bytes) -> bytes:
    """Table 0 of `kind` (0: DC, 1: AC) with the codes 00, 01, 10 for up to three symbols."""
    return marker(0xC4, bytes([kind << 4, 0, len(symbols)]) + bytes(14) + symbols)


def jpeg(width, height, sampling, frame=0xC0, precision=8, adobe=None, restart=0, scans=None):
    """`sampling`: (horizontal, vertical) factors per component; `scans`: (components, first, last, high, low)."""
    count = len(sampling)
    text = b"\xff\xd8"
    if adobe is not None:
        text += marker(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, adobe))
    text += marker(0xDB, bytes([0]) + bytes(range(1, 65)))
    components = b"".join(bytes([i + 1, 16 * h + v, 0]) for i, (h, v) in enumerate(sampling))
    text += marker(frame, struct.pack(">BHHB", precision, height, width, count) + components)
    text += huffman(0, bytes([0, 3])) + huffman(1, bytes([0, 1]))
    if restart:
        text += marker(0xDD, struct.pack(">H", restart))
    for parts, first, last, high, low in scans or [(range(count), 0, 63, 0, 0)]:
        select = b"".join(bytes([i + 1, 0]) for i in parts)
        text += marker(0xDA, bytes([len(parts)]) + select + bytes([first, last, 16 * high + low]))
        text += bytes([0x05, 0x50, 0x14, 0x01, 0x40, 0x00] * (2 + width * height // 64))
    return text + b"\xff\xd9"


def jpeg_seeds():
    grey, full, half = [(1, 1)], [(1, 1)] * 3, [(2, 2), (1, 1), (1, 1)]
    save("jpeg", "grey", jpeg(16, 8, grey))
    save("jpeg", "full", jpeg(17, 9, full))
    save("jpeg", "half", jpeg(33, 17, half, restart=1))
    save("jpeg", "cmyk", jpeg(9, 9, [(1, 1)] * 4))
    save("jpeg", "ycck", jpeg(9, 9, [(1, 1)] * 4, adobe=2))
    save("jpeg", "rgb", jpeg(9, 9, full, adobe=0))
    save("jpeg", "arithmetic", jpeg(16, 8, half, frame=0xC9))
    steps = [([0, 1, 2], 0, 0, 0, 1), ([0], 1, 5, 0, 2), ([0], 1, 5, 2, 1), ([1], 1, 63, 0, 1), ([0, 1, 2], 0, 0, 1, 0)]
    save("jpeg", "progressive", jpeg(24, 16, half, frame=0xC2, scans=steps))
    save("jpeg", "many-scans", jpeg(16, 8, grey, frame=0xC2, scans=[([0], 0, 0, 0, 0)] + [([0], 1, 1, 0, 0)] * 110))
    save("jpeg", "twelve-bits", jpeg(8, 8, grey, precision=12))
    save("jpeg", "wide", jpeg(512, 8, grey))
    save("jpeg", "truncated", jpeg(16, 16, full)[:-9])
    save("jpeg", "enormous", jpeg(65500, 65500, full)[:700])


# PNG (ISO/IEC 15948).


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, depth, colour, interlaced=False, extra=b"", lines=None):
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    if lines is None:
        lines = b""
        for x0, y0, dx, dy in ADAM7 if interlaced else [(0, 0, 1, 1)]:
            line = (len(range(x0, width, dx)) * depth * channels + 7) // 8
            for y in range(y0, height, dy) if line else []:
                lines += bytes([y % 5]) + bytes((x * 7 + y * 3) % 256 for x in range(line))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(lines, 9))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


def png_seeds():
    palette = chunk(b"PLTE", bytes(range(48)))
    save("png", "grey", png(9, 7, 8, 0))
    save("png", "grey1", png(9, 7, 1, 0, extra=chunk(b"tRNS", b"\0\1")))
    save("png", "grey16", png(9, 7, 16, 0))
    save("png", "rgb", png(40, 30, 8, 2, lines=bytes(121 * 30)))
    save("png", "rgb16", png(5, 5, 16, 2, extra=chunk(b"tRNS", bytes(6))))
    save("png", "palette", png(16, 3, 4, 3, extra=palette + chunk(b"tRNS", bytes(range(9)))))
    save("png", "palette-too-short", png(16, 3, 8, 3, extra=palette))
    save("png", "grey-alpha", png(5, 4, 8, 4))
    save("png", "rgb-alpha", png(6, 4, 8, 6, extra=chunk(b"gAMA", struct.pack(">I", 45455))))
    save("png", "interlaced", png(11, 9, 8, 2, interlaced=True))
    save("png", "interlaced-palette", png(9, 9, 2, 3, interlaced=True, extra=palette))
    save("png", "truncated", png(9, 7, 8, 2)[:-20])
    save("png", "enormous", png(0x7FFFFFFF, 0x7FFFFFFF, 8, 2, lines=b""))
    save("png", "reduced", png(256, 200, 1, 0, lines=bytes(33 * 200)))


# BMP, GIF and TIFF without an encoder: pixels that are not compressed, and codes that clear the dictionary all the time.


def bmp(width, height, bits, compression=0, colours=b"", rows=None, length=40):
    stride = (width * bits + 31) // 32 * 4
    rows = bytes(i * 7 % 256 for i in range(stride * abs(height))) if rows is None else rows
    begin = 14 + length + len(colours)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(rows), 0, 0, 0, 0)
    if length == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    return b"BM" + struct.pack("<IHHI", begin + len(rows), 0, 0, begin) + info + colours + rows


def bmp_seeds():
    palette = bytes(range(64))
    for bits in (1, 4, 8):
        save("bmp", f"palette-{bits}", bmp(9, 5, bits, colours=palette[:4 << min(bits, 4)]))
    for bits in (16, 24, 32):
        save("bmp", f"bits-{bits}", bmp(9, -5, bits))
    save("bmp", "fields", bmp(5, 5, 16, 3, struct.pack("<3I", 0xF800, 0x7E0, 0x1F)))
    save("bmp", "os2", bmp(7, 3, 24, length=12))
    save("bmp", "rle8", bmp(8, 3, 8, 1, palette, b"\3\1\0\3\5\6\7\0\0\0\0\2\1\1\2\3\0\1"))
    save("bmp", "rle4", bmp(8, 3, 4, 2, palette, b"\5\x12\0\5\x12\x34\x50\0\0\0\4\x77\0\1"))
    small = bmp(8, 3, 24)
    save("bmp", "enormous", small[:18] + struct.pack("<ii", 1 << 30, 1 << 30) + small[26:])
    save("bmp", "truncated", bmp(9, 9, 24)[:-20])


def gif(frame, screen, flags=0, before=b"", version=b"GIF89a"):
    palette = bytes(range(12))
    x, y, width, height = frame
    bits, count = 0, 0
    for _ in range(width * height):  # of 3 bits: clear, then an index
        for code in (4, count // 6 % 4):
            bits |= code << count
            count += 3
    bits |= 5 << count
    data = bits.to_bytes((count + 10) // 8, "little")
    blocks = b"".join(bytes([len(data[i:i + 255])]) + data[i:i + 255] for i in range(0, len(data), 255))
    head = version + struct.pack("<HHBBB", *screen, 0x81, 0, 0) + palette + before
    return head + b"," + struct.pack("<HHHHB", x, y, width, height, flags) + b"\2" + blocks + b"\0;"


def gif_seeds():
    transparent = b"!\xf9\4\1\0\0\2\0"
    save("gif", "plain", gif((0, 0, 7, 5), (7, 5), version=b"GIF87a"))
    save("gif", "interlaced", gif((0, 0, 9, 11), (9, 11), flags=0x40))
    save("gif", "part-of-screen", gif((3, 2, 4, 3), (12, 9), before=transparent))
    save("gif", "beyond-screen", gif((3, 2, 9, 9), (4, 4)))
    save("gif", "comment", gif((0, 0, 3, 3), (3, 3), before=b"!\xfe\5hello\0"))
    save("gif", "truncated", gif((0, 0, 20, 20), (20, 20))[:60])
    save("gif", "no-image", b"GIF89a" + bytes(7) + b";")


def tiff(width, height, photometric, bits, samples, order="<", extra=(), data=None):
    stride = (width * bits * samples + 7) // 8
    data = bytes(i * 5 % 256 for i in range(stride * height)) if data is None else data
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, bits), (259, 3, 1, 1), (262, 3, 1, photometric),
               (273, 4, 1, 8), (277, 3, 1, samples), (278, 4, 1, height), (279, 4, 1, len(data))]
    entries = sorted([entry for entry in entries if entry[0] not in {other[0] for other in extra}] + list(extra))
    table = struct.pack(order + "H", len(entries))
    for tag, kind, count, value in entries:
        short = kind == 3 and count == 1
        table += struct.pack(order + "HHI", tag, kind, count) + (struct.pack(order + "HH", value, 0) if short else struct.pack(order + "I", value))
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8 + len(data)) + data + table + bytes(4)


def tiff_seeds():
    for name, kind, bits, samples in (("white", 0, 1, 1), ("black", 1, 4, 1), ("grey", 1, 8, 1), ("grey16", 1, 16, 1),
                                      ("grey12", 1, 12, 1), ("rgb", 2, 8, 3), ("rgb16", 2, 16, 3), ("rgba", 2, 8, 4), ("cmyk", 5, 8, 4),
                                      ("ycbcr", 6, 8, 3), ("lab", 8, 8, 3), ("palette", 3, 8, 1)):
        save("tiff", name, tiff(9, 6, kind, bits, samples, "<" if samples != 3 else ">"))
    save("tiff", "turned", tiff(9, 6, 2, 8, 3, extra=[(274, 3, 1, 6)]))
    save("tiff", "float", tiff(4, 4, 1, 32, 1, extra=[(339, 3, 1, 3)]))
    save("tiff", "tiles", tiff(16, 16, 1, 8, 1, extra=[(322, 3, 1, 16), (323, 3, 1, 16), (324, 4, 1, 8), (325, 4, 1, 256)]))
    save("tiff", "packed", tiff(9, 6, 1, 8, 1, extra=[(259, 3, 1, 32773)]))
    save("tiff", "enormous", tiff(9, 6, 1, 8, 1, extra=[(256, 4, 1, 1 << 30), (257, 4, 1, 1 << 30)]))
    save("tiff", "truncated", tiff(9, 6, 2, 8, 3)[:50])


# A WebP of 3x2 pixels without loss, by libwebp: no encoder is so short.
LOSSLESS = bytes.fromhex("2f024000002f40986db4fd0679fe1aa741266d93bbfefd4cdac8a46ddaab62e65fdfe63f40dcc9a3b20d04026488164b22fa1f39")


def webp_seeds():
    def part(name, content):
        return name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)

    def file(*parts):
        return b"RIFF" + struct.pack("<I", 4 + sum(map(len, parts))) + b"WEBP" + b"".join(parts)

    def size(*sides):
        return b"".join(struct.pack("<I", side - 1)[:3] for side in sides)

    pixels = part(b"VP8L", LOSSLESS)
    exif = part(b"EXIF", b"II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0" + bytes(4))
    frame = part(b"ANMF", struct.pack("<I", 1)[:3] + bytes(3) + size(3, 2) + bytes(4) + pixels)
    animation = (part(b"VP8X", b"\2" + bytes(3) + size(9, 5)), part(b"ANIM", bytes(6)), frame, frame)
    save("webp", "lossless", file(pixels))
    save("webp", "turned", file(part(b"VP8X", b"\x08" + bytes(3) + size(3, 2)), pixels, exif))
    save("webp", "animated", file(*animation))
    save("webp", "no-frame", file(*animation[:2]))
    save("webp", "truncated", file(*animation)[:-9])


def idx_seeds():
    labels = struct.pack(">II", 0x801, 5) + bytes([0, 1, 2, 9, 4])
    images = struct.pack(">IIII", 0x803, 3, 4, 2) + bytes(range(24))
    large = struct.pack(">IIII", 0x803, 60, 28, 28) + bytes(60 * 784)
    save("idx", "labels", labels)
    save("idx", "images", images)
    save("idx", "labels-gzipped", gzipped(labels))
    save("idx", "images-gzipped", gzipped(large))
    save("idx", "two-members", gzipped(images[:9]) + gzipped(images[9:]))
    save("idx", "truncated", images[:-1])
    save("idx", "gzip-truncated", gzipped(images)[:-5])
    save("idx", "trailing", labels + b"\0")
    save("idx", "none", struct.pack(">II", 0x801, 0))
    save("idx", "forged", struct.pack(">IIII", 0x803, 0xFFFFFFFF, 65535, 65535) + bytes(8))
    save("idx", "empty", b"")


def cifar10_seeds():
    record = bytes([7]) + bytes(i % 256 for i in range(3072))
    save("cifar10", "three-gzipped", gzipped(record + bytes([0]) + bytes(3072) + bytes([9]) + bytes(3072)))
    save("cifar10", "one-gzipped", gzipped(bytes(3073)))
    save("cifar10", "bad-label", gzipped(bytes([10]) + bytes(3072)))
    save("cifar10", "cut-record", gzipped(bytes(3073 + 100)))
    save("cifar10", "gzip-truncated", gzipped(record)[:-4])
    save("cifar10", "two-members", gzipped(bytes(3000)) + gzipped(bytes(73)))
    save("cifar10", "short", bytes(40))
    save("cifar10", "empty", b"")


def image_cache_seeds():
    """Hashes, list of files and size are 0, because the fuzz program fills them in."""

    def cache(entries, pixels, side=8, magic=b"DDPIMGC2", images=2):
        header = magic + struct.pack("<QQ", side, images) + bytes(40)
        return header + b"".join(struct.pack("<QQIIII", *entry) for entry in entries) + pixels

    none = (128, 0, 0, 0, 0, 0)
    save("image_cache", "none-decoded", cache([none, none], b""))
    two = [(128, 0, 2, 3, 2, 3), (128 + 18, 0, 8, 4, 80, 40)]
    save("image_cache", "two", cache(two, bytes(range(18)) + bytes(96)))
    save("image_cache", "one", cache([none, (128, 0, 8, 9, 100, 113)], bytes(216)))
    save("image_cache", "beyond-the-end", cache([none, (4000, 0, 8, 9, 100, 113)], bytes(216)))
    save("image_cache", "no-source", cache([none, (128, 0, 2, 2, 0, 0)], bytes(12)))
    save("image_cache", "huge", cache([none, (128, 1, 0xFFFFFFFF, 0xFFFFFFFF, 9, 9)], bytes(12)))
    save("image_cache", "no-height", cache([none, (128, 0, 2, 0, 9, 9)], bytes(12)))
    save("image_cache", "other-side", cache([none, none], b"", side=9))
    save("image_cache", "other-magic", cache([none, none], b"", magic=b"DDPIMGC1"))
    save("image_cache", "other-number", cache([none, none], b"", images=3))
    save("image_cache", "header-only", cache([], b""))
    save("image_cache", "empty", b"")


def safetensors_seeds():
    def file(header, data=b"", length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(text) if length is None else length) + text + data

    def tensor(shape, begin, end, dtype="F32"):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    both = {"__metadata__": {"format": "pt"}, "fc.weight": tensor([2, 3], 0, 24), "fc.bias": tensor([2], 24, 32)}
    save("safetensors", "both", file(both, bytes(32)))
    save("safetensors", "counter", file({"n": tensor([], 0, 8, "I64"), "x": tensor([1], 8, 12)}, bytes(12)))
    save("safetensors", "empty-tensor", file({"a": tensor([0, 5], 0, 0), "b": tensor([], 0, 4)}, bytes(4)))
    save("safetensors", "no-tensors", file({}))
    save("safetensors", "other-type", file({"x": tensor([4], 0, 8, "F16")}, bytes(8)))
    save("safetensors", "other-shape", file({"fc.weight": tensor([3, 2], 0, 24)}, bytes(24)))
    save("safetensors", "overlap", file({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12)))
    save("safetensors", "overflow", file({"a": tensor([2**62, 2**62], 0, 0)}))
    save("safetensors", "twice", file(b'{"a": {}, "a": {}}'))
    save("safetensors", "lines-in-a-name", file({"a\nb\u001b[2J": tensor([2], 0, 4)}, bytes(4)))
    save("safetensors", "forged-length", file({}, length=2**63))
    save("safetensors", "deep", file(b'{"a":' + b"[" * 300))


def manifest_seeds():
    digest = "0123456789abcdef0123456789abcdef"
    names = ["model.safetensors", "optimizer.safetensors", "state.json"]
    manifest = {
        "format": "ddp_train checkpoint",
        "format_version": 1,
        "files": {name: {"size": 128, "xxh3_128": digest} for name in names},
    }
    state = {
        "format_version": 1, "model": "lenet", "dataset": "glyphs", "optimizer": "sgd", "seed": 1, "step": 468, "epoch": 1,
        "step_in_epoch": 0, "global_batch": 256, "samples_seen": 60000, "logical_shards": 1, "best_accuracy": 0.5,
        "epoch_loss_sum": 1.25, "epoch_samples": 10, "plan": "layout plan, version 1\n", "config": "lr = 0.1\n",
    }  # fmt: skip
    image = {"image": [1, 28, 28], "class_count": 2, "mean": [0.5], "std": [0.25], "classes": ["cat", "dog"]}

    def put(name, value):
        save("manifest", name, value if isinstance(value, bytes) else (json.dumps(value, indent=2) + "\n").encode())

    put("manifest", manifest)
    put("manifest-of-none", {**manifest, "files": {}})
    put("manifest-other-version", {**manifest, "format_version": 2})
    put("manifest-negative-size", {**manifest, "files": {"a": {"size": -1, "xxh3_128": digest}}})
    put("manifest-lines-in-a-name", {**manifest, "files": {"a\nb": {"size": 1, "xxh3_128": "\n"}}})
    put("state", state)
    put("state-of-images", {**state, **image, "model_hash": digest})
    put("state-large", {**state, "step": 2**64 - 1, "best_accuracy": 1e308})
    put("state-wrong-types", {**state, "model": 3, "classes": [1]})
    put("no-object", b"[1]")
    put("deep", b"[" * 300)
    put("no-utf8", b'{"format": "\xff\xfe"}')


def options_seeds():
    save("options", "short", b"lr = 0.1\nepochs = 3 # as usual\n\n# a comment\nmodel = lenet\n")
    save("options", "numbers", b"global-batch = 256\nlr-milestones = 3,5,9\ncolor-jitter = 0.4,0.4,0.4\nseed = 18446744073709551615\n")
    save("options", "units", b"gpu-memory-limit = 3GiB\ngpus = 0,2\ntimeout = 1e3\nbucket-mib = 0.5\n")
    save("options", "switches", b"drop-last = on\noverlap=off\nnesterov = yes\nmomentum = 0.9\nschedule = one-cycle\nno-decay-on = norm-and-bias\n")
    save("options", "twice", b"lr = 0.1\nlr = 0.2\n")
    save("options", "unknown", b"learning-rat = 0.1\n")
    save("options", "section", b"[run]\nlr = 0.1\n")
    save("options", "no-value", b"lr =\nmodel\n")
    save("options", "windows", b"lr = 0.1\r\nmodel = vgg16\r\n")
    save("options", "out-of-range", b"epochs = 99999999999999999999\n")
    save("options", "words", b"train\n--lr\n0.3\n--nesterov\n--momentum=0.9\n-b\n64\n--model\nlenet\n")
    save("options", "words-export", b"export\n--run\nruns/x\n--to\nx.onnx\n--fold-batch-norm\n")
    save("options", "words-of-no-text", b"--\xff\xff\x19-=\n--\x1b[2J\n")
    save("options", "words-strange", b"--\n-\n--=\n---x\n-b64\n--lr\n--lr\neval\ntrain\n")


def labels_seeds():
    save("labels", "table", b"path,label,split,patient\nexe,cat,train,1\nmaps,dog,val,2\nstatus,cat,test,1\n")
    save("labels", "tabs", b"label\tfile\r\ncat\texe\r\ndog\tmaps\r\n")
    save("labels", "lines", b"exe 0\nmaps 1\nstatus 10\n")
    save("labels", "quotes", b'\xef\xbb\xbfpath,label\n"exe","a ""cat"", two\nlines"\n"maps",dog')
    save("labels", "no-names", b"exe,cat\nmaps,dog\n")
    save("labels", "several", b"path,label\nexe,cat;dog\nmaps,\n,cat\nexe,dog\nfd,x\n\xff\xfe,\x1b[2J\n")
    save("labels", "open-quote", b'path,label\n"exe,cat\nmaps,dog\n')
    save("labels", "empty", b"")


def layout_plan_seeds():
    head = b"layout plan, version 1\npredicted 0.001234567\n"
    save("layout_plan", "whole", head + b"conv1 blocked16 lanes:3\nbn1 blocked16\npool nhwc\nfc1 plain onednn\n")
    save("layout_plan", "plain", head + b"conv1 plain\nbn1 plain\npool plain\nfc1 plain\n")
    save("layout_plan", "short", head + b"conv1 plain\n")
    save("layout_plan", "no-number", b"layout plan, version 1\npredicted soon\n")
    save("layout_plan", "other-version", b"layout plan, version 2\n")
    save("layout_plan", "no-text", b"\xfe\x1b[2J\x07\n")
    save("layout_plan", "other-network", head + b"conv9 plain\n")


def tar_of(members, form=tarfile.USTAR_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()[: 512 * (2 * len(members) + 3)]


def webdataset_seeds():
    sample = [("a/1.jpg", b"picture"), ("a/1.cls", b"3\n")]
    save("webdataset", "sample", tar_of(sample))
    save("webdataset", "json", tar_of([("1.json", b'{"label": "cat"}'), ("1.x.png", b"x")]))
    save("webdataset", "pax", tar_of([("x" * 120 + ".jpg", b"x"), ("x" * 120 + ".txt", b"dog")], tarfile.PAX_FORMAT)[:4608])
    save("webdataset", "gnu", tar_of([("x" * 120 + ".jpg", b"x"), ("x" * 120 + ".txt", b"dog")], tarfile.GNU_FORMAT)[:4608])
    save("webdataset", "incomplete", tar_of([("1.jpg", b"x"), ("2.cls", b"1"), ("._3.jpg", b"x")]))
    damaged = bytearray(tar_of(sample + [("2.jpg", b"x"), ("2.cls", b"1")]))
    damaged[1030] ^= 1
    save("webdataset", "damaged", bytes(damaged[:2560]))
    save("webdataset", "truncated", tar_of(sample)[:1540])
    save("webdataset", "empty", bytes(1024))


def tfrecord_seeds():
    part = lambda number, data: bytes([number << 3 | 2, len(data)]) + data
    feature = lambda key, value: part(1, part(1, key) + part(2, value))
    picture = feature(b"image/encoded", part(1, part(1, b"picture")))
    save("tfrecord", "packed", part(1, picture + feature(b"image/class/label", part(3, part(1, b"\x83\x01")))))
    save("tfrecord", "plain", part(1, picture + feature(b"label", part(3, b"\x08\x07"))))
    save("tfrecord", "text", part(1, feature(b"class", part(1, part(1, b"cat"))) + picture))
    save("tfrecord", "without-label", part(1, picture + feature(b"height", part(3, part(1, b"\x01")))))
    save("tfrecord", "floats", part(1, picture + feature(b"label", part(2, part(1, bytes(8))))))
    save("tfrecord", "empty", b"")


def record_index_seeds():
    text = lambda value: struct.pack("<Q", len(value)) + value
    shard = text(b"a.tar") + struct.pack("<Qq", 4096, 17)
    label = struct.pack("<Q", 1) + text(b"cat")
    damage = struct.pack("<QiQ", 1, 0, 512) + text(b"is truncated")
    record = struct.pack("<QQIii", 1, 1024, 100, 0, 0)
    save("record_index", "whole", struct.pack("<Q", 1) + shard + label + damage + record)
    save("record_index", "other-shard", struct.pack("<Q", 1) + shard + label + damage + struct.pack("<QQIii", 1, 1024, 100, 1, 0))
    save("record_index", "lying", struct.pack("<Q", 1 << 60))
    save("record_index", "empty", struct.pack("<QQQQ", 0, 0, 0, 0))


jpeg_seeds()
png_seeds()
bmp_seeds()
gif_seeds()
tiff_seeds()
webp_seeds()
idx_seeds()
cifar10_seeds()
image_cache_seeds()
safetensors_seeds()
manifest_seeds()
options_seeds()
labels_seeds()
webdataset_seeds()
tfrecord_seeds()
record_index_seeds()
layout_plan_seeds()
for seed_name, content in onnx_seeds().items():
    save("onnx", seed_name, content)
