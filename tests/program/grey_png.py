"""PNG files for tests that need only Python's own library."""

import struct
import zlib


def grey_png(seed, exif=b""):
    """The bytes of a grey picture of 28x28 pixels with a pattern of its own."""
    rows = b"".join(b"\0" + bytes((seed * 37 + x * (seed % 7 + 1) + y * (seed % 5 + 2)) % 256 for x in range(28)) for y in range(28))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)) +
            (chunk(b"eXIf", exif) if exif else b"") + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
