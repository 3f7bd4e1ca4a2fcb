#!/usr/bin/env python3
"""Generates tests/golden/images: small images in all kinds of JPEG, PNG and WebP, and their regions as read by Pillow.

    python3 -m venv ~/pillow && ~/pillow/bin/pip install pillow numpy
    ~/pillow/bin/python tests/golden/make_images.py

The picture is a sum of smooth waves with an edge. cases.txt has a line for each region: file, x, y, width, height of the
region, side of the result, reduction, and the offset of its bytes [3][side][side] in expected.bin. The result is
Image.crop(region).resize((side, side), BILINEAR) in 8-bit RGB. With a reduction R the image is reduced first, by
Image.draft (which scales within the JPEG decoder) or, for PNG, by Image.reduce(R). All files are written by Pillow except the
interlaced PNG, which is assembled here because Pillow does not support it.
"""

import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

FOLDER = pathlib.Path(__file__).parent / "images"
WIDTH, HEIGHT = 118, 90


def picture():
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float64)
    planes = [128 + 90 * np.sin(x / 17 + phase) * np.cos(y / 11 - phase) for phase in (0.0, 1.1, 2.3)]
    planes[0][(x + 2 * y) > 190] *= 0.6
    return np.clip(np.stack(planes, axis=-1), 0, 255).astype(np.uint8)


def interlaced_png(pixels):
    height, width, _ = pixels.shape
    rows = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        for row in pixels[y0::dy, x0::dx]:
            rows += b"\0" + row.tobytes()

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def write_webp(pixels):
    rgb = Image.fromarray(pixels)
    rgb.save(FOLDER / "lossy.webp", quality=80)
    rgb.save(FOLDER / "lossless.webp", lossless=True)
    rgb.save(FOLDER / "animated.webp", save_all=True, append_images=[Image.fromarray(pixels[::-1].copy())])


def write_images():
    FOLDER.mkdir(exist_ok=True)
    pixels = picture()
    rgb = Image.fromarray(pixels)
    rgb.save(FOLDER / "photo.jpg", quality=85)
    rgb.save(FOLDER / "full-chroma.jpg", quality=85, subsampling=0)
    rgb.save(FOLDER / "progressive.jpg", quality=85, progressive=True)
    rgb.convert("L").save(FOLDER / "grey.jpg", quality=85)
    rgb.convert("CMYK").save(FOLDER / "cmyk.jpg", quality=90)
    rgb.save(FOLDER / "rgb.png")
    rgb.convert("L").save(FOLDER / "grey.png")
    rgb.quantize(16).save(FOLDER / "palette.png")
    alpha = Image.fromarray(np.full((HEIGHT, WIDTH), 200, np.uint8))
    rgb.putalpha(alpha)
    rgb.save(FOLDER / "transparent.png")
    write_webp(pixels)
    Image.fromarray(pixels[:, :, 1].astype(np.uint16) * 257).save(FOLDER / "grey16.png")
    (FOLDER / "interlaced.png").write_bytes(interlaced_png(pixels))


def expected(name, region, side, reduction):
    image = Image.open(FOLDER / name)
    x, y, width, height = region
    if name.endswith(".jpg") and reduction > 1:
        image.draft(None, (WIDTH // reduction, HEIGHT // reduction))
        assert image.size == (-(-WIDTH // reduction), -(-HEIGHT // reduction)), image.size
    if name == "grey16.png":  # Pillow clips 16 bits to 8
        image = Image.fromarray(picture()[:, :, 1])
    image = image.convert("RGB")
    if name.endswith(".png") and reduction > 1:
        image = image.reduce(reduction)
    box = tuple(v // reduction for v in (x, y, x + width, y + height))
    assert all(v * reduction == w for v, w in zip(box, (x, y, x + width, y + height)))
    result = image.crop(box).resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(result).transpose(2, 0, 1).tobytes()


def main():
    write_images()
    lines, data = [], b""
    whole, part, wide = (0, 0, 118, 90), (20, 12, 48, 40), (32, 16, 80, 64)
    for path in sorted(FOLDER.glob("*.[jp][pn]g")):
        for region, side, reduction in ((whole, 60, 1), (part, 64, 1), (part, 23, 1), (wide, 24, 2), (wide, 16, 4)):
            lines.append(" ".join(map(str, (path.name, *region, side, reduction, len(data)))))
            data += expected(path.name, region, side, reduction)
    for name in ("lossless.webp", "lossy.webp"):
        for region, side in ((whole, 60), (part, 64), (part, 23)):
            lines.append(" ".join(map(str, (name, *region, side, 1, len(data)))))
            data += expected(name, region, side, 1)
    (FOLDER / "cases.txt").write_text("\n".join(lines) + "\n")
    (FOLDER / "expected.bin").write_bytes(data)


if __name__ == "__main__":
    main()
