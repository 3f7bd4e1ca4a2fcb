#!/usr/bin/env python3
"""Resizes images with PyTorch's antialiased bilinear interpolation and writes what the images of --progressive-size must
be, up to rounding: resized.json beside this script.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch
    /tmp/torch/bin/python tests/golden/make_resized.py

The file contains
    made_by       the version of PyTorch
    cases         shape [channels, height, width] and bytes of an image in hexadecimal digits, the new height and width, and
                  the values of the resized image, computed in float64, in the order of its planes
"""

import json
import pathlib

import torch
from torch.nn.functional import interpolate

CASES = (((1, 28, 28), (20, 20)), ((3, 16, 14), (12, 8)), ((3, 11, 9), (8, 8)), ((1, 24, 24), (23, 24)))


def main():
    torch.manual_seed(5)
    result = {"made_by": f"PyTorch {torch.__version__}", "cases": []}
    for shape, size in CASES:
        image = torch.randint(0, 256, shape, dtype=torch.uint8)
        resized = interpolate(image[None].double(), size, mode="bilinear", antialias=True)[0]
        result["cases"].append({"shape": shape, "size": size, "pixels": bytes(image.flatten().tolist()).hex(),
                                "values": [round(v, 3) for v in resized.flatten().tolist()]})
    path = pathlib.Path(__file__).with_name("resized.json")
    path.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
