#!/usr/bin/env python3
"""odd_pictures.py PROGRAM COUNT [--golden FOLDER]: makes COUNT pictures of odd kinds with Pillow and, where it is, ImageMagick. Each
must be read as Pillow reads it, or be refused in one line.

PROGRAM is decode_pictures. With --golden one picture of each kind of Pillow's is written to FOLDER instead, with the list
pixels.txt, which tests/unit/data reads: file, width, height and CRC-32 of the pixels, or "refused". Exits with 77 without Pillow.

Where Pillow loses something the expectation is made here: it clips grey with 16 bits to 255, where the upper 8 bits are read.
"""
import io
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

try:
    from PIL import Image, ImageOps, features
except ImportError:
    print("skipped: this Python has no Pillow")
    sys.exit(77)

MAGICK = shutil.which("convert")
TIFF_ORIENTATION = 0x0112


def picture(rng, mode="RGB"):
    """Smooth colours with edges and noise, of a size that no block divides."""
    width, height = rng.randint(1, 40), rng.randint(1, 40)
    a, b, c = (rng.randint(1, 12) for _ in range(3))
    pixels = bytes((x * a + y * b * (i + 1) + (60 if x > width // 2 else 0) + rng.randint(0, c)) % 256
                   for y in range(height) for x in range(width) for i in range(3))
    image = Image.frombytes("RGB", (width, height), pixels)
    if mode in ("RGBA", "LA"):
        image.putalpha(image.getchannel(0))
    if mode == "P":
        return image.quantize(rng.randint(2, 200))
    return image.convert(mode)


def grey16(rng):
    width, height = rng.randint(1, 40), rng.randint(1, 40)
    values = [rng.randint(0, 65535) for _ in range(width * height)]
    return Image.frombytes("I;16", (width, height), struct.pack(f"<{len(values)}H", *values))


def exif(rng):
    """EXIF data with an orientation, in either byte order."""
    order = rng.choice("<>")
    return b"Exif\0\0" + struct.pack(order + "2sHIHHHIHHI", b"II" if order == "<" else b"MM", 42, 8, 1, TIFF_ORIENTATION, 3, 1,
                                     rng.randint(1, 8), 0, 0)


def saved(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def jpeg(rng):
    image = picture(rng, rng.choice(["RGB", "L", "CMYK", "RGB"]))
    return saved(image, "JPEG", quality=rng.randint(20, 95), progressive=rng.random() < 0.3, exif=exif(rng),
                 subsampling=rng.choice([0, 1, 2]) if image.mode == "RGB" else -1)


def png(rng):
    mode = rng.choice(["1", "L", "LA", "P", "RGB", "RGBA", "16"])
    image = grey16(rng) if mode == "16" else picture(rng, mode)
    options = {"transparency": 1} if mode == "P" and rng.random() < 0.5 else {}
    return saved(image, "PNG", exif=exif(rng)[6:], **options)


def late_exif(rng):
    """A PNG whose orientation follows the pixels."""
    file = saved(picture(rng), "PNG")
    data = exif(rng)[6:]
    chunk = struct.pack(">I", len(data)) + b"eXIf" + data + struct.pack(">I", zlib.crc32(b"eXIf" + data))
    return file[:-12] + chunk + file[-12:]


def webp(rng):
    return saved(picture(rng, rng.choice(["RGB", "RGBA"])), "WEBP", lossless=rng.random() < 0.5, exif=exif(rng))


def animated_webp(rng):
    first = picture(rng, rng.choice(["RGB", "RGBA"]))
    return saved(first, "WEBP", save_all=True, lossless=rng.random() < 0.5,
                 append_images=[picture(rng).resize(first.size), picture(rng).resize(first.size)])


def gif(rng):
    image = picture(rng, rng.choice(["P", "L", "1"]))
    options = {"transparency": rng.randint(0, 1)} if rng.random() < 0.5 else {}
    return saved(image, "GIF", interlace=rng.randint(0, 1), **options)


def animated_gif(rng):
    first = picture(rng, "P")
    return saved(first, "GIF", save_all=True, append_images=[picture(rng, "P").resize(first.size) for _ in range(3)])


def larger_screen(rng):
    """A GIF whose first frame covers only a part of the screen."""
    file = bytearray(gif(rng))
    width, height = struct.unpack("<HH", file[6:10])
    file[6:10] = struct.pack("<HH", width + rng.randint(0, 9), height + rng.randint(0, 9))
    return bytes(file)


def bmp(rng):
    return saved(picture(rng, rng.choice(["1", "L", "P", "RGB", "RGBA"])), "BMP")


def fields_bmp(rng):
    """16 and 32 bits a pixel, from above or from below."""
    width, height = rng.randint(1, 30), rng.randint(1, 30)
    bits, compression, masks = rng.choice([(16, 0, b""), (16, 3, struct.pack("<3I", 0xF800, 0x7E0, 0x1F)), (32, 0, b""),
                                           (32, 3, struct.pack("<3I", 0xFF0000, 0xFF00, 0xFF))])
    rows = bytes(rng.randint(0, 255) for _ in range((width * bits + 31) // 32 * 4 * height))
    begin = 54 + len(masks)
    info = struct.pack("<IiiHHIIiiII", 40, width, rng.choice([1, -1]) * height, 1, bits, compression, len(rows), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", begin + len(rows), 0, 0, begin) + info + masks + rows


def tiff(rng):
    mode = rng.choice(["1", "L", "P", "RGB", "RGBA", "CMYK", "16", "LA"])
    image = grey16(rng) if mode == "16" else picture(rng, mode)
    kinds = ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"]
    if mode == "1":
        kinds += ["group3", "group4"]
    if mode in ("L", "RGB"):
        kinds += ["jpeg"]
    return saved(image, "TIFF", compression=rng.choice(kinds), tiffinfo={TIFF_ORIENTATION: rng.randint(1, 8)})


def float_tiff(rng):
    return saved(picture(rng, "F"), "TIFF")


def avif(rng):
    return saved(picture(rng, rng.choice(["RGB", "RGBA"])), "AVIF", quality=rng.randint(30, 100), speed=8, exif=exif(rng))


PILLOW = [jpeg, png, late_exif, webp, animated_webp, gif, animated_gif, larger_screen, bmp, fields_bmp, tiff, float_tiff]
if ".webp" not in Image.registered_extensions() or not features.check("webp"):
    PILLOW = [kind for kind in PILLOW if "webp" not in kind.__name__]
if ".avif" in Image.registered_extensions() and features.check("avif"):
    PILLOW.append(avif)
SUFFIXES = {"jpeg": "jpg", "late_exif": "png", "larger_screen": "gif"}


def suffix_of(kind):
    return SUFFIXES.get(kind.__name__, kind.__name__.split("_")[-1])


# ImageMagick's forms of a picture: arguments and suffix.
FORMS = [(["-depth", "16", "-endian", "MSB"], "tif"), (["-depth", "16", "-endian", "LSB"], "tif"), (["-depth", "8", "-interlace", "plane"], "tif"),
         (["-define", "tiff:tile-geometry=16x16", "-compress", "LZW"], "tif"), (["-compress", "Zip", "-depth", "8", "-orient", "RightTop"], "tif"),
         (["-compress", "JPEG"], "tif"), (["-type", "Palette", "-depth", "8"], "tif"), (["-type", "Bilevel", "-compress", "Fax"], "tif"),
         (["-define", "tiff:rows-per-strip=3", "-compress", "RLE"], "tif"), (["-type", "Palette", "-compress", "RLE"], "bmp"),
         (["-type", "Palette"], "bmp2"), (["-type", "TrueColor"], "bmp3"), (["-type", "TrueColorAlpha", "-alpha", "on"], "bmp"),
         (["-interlace", "PNG"], "png"), (["-interlace", "PNG", "-depth", "16"], "png"), (["-depth", "4", "-type", "Grayscale"], "png"),
         (["-interlace", "GIF"], "gif"), (["-sampling-factor", "4:1:1"], "jpg"), (["-colorspace", "CMYK"], "jpg"), (["-quality", "90"], "webp")]


def expected(path):
    """Width, height and CRC-32 as Pillow reads the pixels, or None."""
    try:
        with Image.open(path) as image:
            form = image.format
            if image.mode.startswith("I"):
                values = image.tobytes()
                wide, big = image.mode == "I", image.mode == "I;16B"
                grey = values[1::4] if wide else values[0::2] if big else values[1::2]
                turned = Image.frombytes("L", image.size, grey)
                if form == "TIFF":  # Its pixels are turned with its size.
                    image = turned
                else:
                    orientation = image.getexif().get(TIFF_ORIENTATION, 1)
                    turned.getexif()[TIFF_ORIENTATION] = orientation
                    image = ImageOps.exif_transpose(turned)
            else:
                image.load()
                # Pillow turns TIFF files when it reads them.
                image = image if form == "TIFF" else ImageOps.exif_transpose(image)
            image = image.convert("RGB")
            return f"{image.width} {image.height} {zlib.crc32(image.tobytes())}"
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, IndexError) as error:
        return f"refused: {error}"


def damaged(rng, file):
    file = bytearray(file)
    if rng.random() < 0.5:
        return bytes(file[:rng.randint(0, len(file))])
    for _ in range(rng.randint(1, 8)):
        file[rng.randint(0, len(file) - 1)] = rng.randint(0, 255)
    return bytes(file)


OTHERS = {"is a web page": b"<!DOCTYPE html><html><body>404</body></html>", "is a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\n",
          "is empty": b"", "has only zero bytes": bytes(5000), "is metadata of macOS": b"\0\5\x16\7\0\2\0\0Mac OS X", "is a text file": b"not found\n",
          "is a PDF": b"%PDF-1.4\n", "is a ZIP": b"PK\3\4" + bytes(30), "is an SVG": b'<?xml version="1.0"?><svg width="1"/>',
          "is a video": b"\0\0\0\x18ftypisom" + bytes(12), "is a thumbnail database": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500)}


def golden(folder):
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(1)
    lines = []
    for kind in PILLOW:
        for number in range(12 if kind in (png, tiff, jpeg) else 5):
            name = f"{kind.__name__}-{number}.{suffix_of(kind)}"
            with open(f"{folder}/{name}", "wb") as file:
                file.write(kind(rng))
            lines.append(f"{name} refused" if kind is float_tiff else f"{name} {expected(f'{folder}/{name}')}")
    with open(f"{folder}/pixels.txt", "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


def make(rng, folder, number):
    """A file, and what must be said of it: a function of the answer."""
    choice = rng.random()
    if choice < 0.03:
        reason, content = rng.choice(sorted(OTHERS.items()))
        path = f"{folder}/{number}.jpg"
        write = content
        check = lambda answer: answer.startswith("refused: " + reason)
    elif choice < 0.25 and MAGICK:
        arguments, suffix = rng.choice(FORMS)
        source = f"{folder}/{number}-source.png"
        picture(rng).save(source)
        path = f"{folder}/{number}.{suffix[:3]}"
        form = "bmp2:" if suffix == "bmp2" else "bmp3:" if suffix == "bmp3" else ""
        subprocess.run([MAGICK, source] + arguments + [form + path], check=True, capture_output=True)
        os.remove(source)
        return path, None
    else:
        kind = rng.choice(PILLOW)
        path = f"{folder}/{number}.{suffix_of(kind)}"
        write, check = kind(rng), None
        if kind is float_tiff:
            check = lambda answer: "floating-point" in answer
        if rng.random() < 0.2:
            write, check = damaged(rng, write), lambda answer: True
    with open(path, "wb") as file:
        file.write(write)
    return path, check


def main():
    if "--golden" in sys.argv:
        return golden(sys.argv[sys.argv.index("--golden") + 1])
    program, count = sys.argv[1], int(sys.argv[2])
    seed = int(os.environ.get("SEED", "7"))
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        files = [make(random.Random(f"{seed} {number}"), folder, number) for number in range(count)]
        done = subprocess.run([program], input="".join(path + "\n" for path, _ in files), capture_output=True, text=True, check=False)
        answers = done.stdout.splitlines()
        if done.returncode != 0 or len(answers) != count:
            print(f"FAILED: {program} ended with {done.returncode} at {files[len(answers)][0] if len(answers) < count else 'its end'}: "
                  f"{done.stderr[-2000:]}")
            failures += 1
        refused = 0
        for (path, check), answer in zip(files, answers):
            refused += answer.startswith("refused")
            wanted = None if check else expected(path)
            good = check(answer) if check else answer == wanted or (wanted.startswith("refused") and answer.startswith("refused: is "))
            if not good:
                failures += 1
                kept = f"{tempfile.gettempdir()}/odd-{os.path.basename(path)}"
                shutil.copy(path, kept)
                print(f"FAILED: {kept}: {answer}, where Pillow has {wanted}")
    print(f"{count} pictures, {refused} refused" + ("" if MAGICK else ", none by ImageMagick") + f"; {failures} checks failed")
    return failures > 0


sys.exit(main())
