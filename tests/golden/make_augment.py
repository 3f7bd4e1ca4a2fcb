#!/usr/bin/env python3
"""Applies torchvision's RandAugment and TrivialAugmentWide operations to images and writes what ddp_train's must reproduce:
augment.json beside this script.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch torchvision
    /tmp/torch/bin/python tests/golden/make_augment.py

The file contains
    made_by       the versions of PyTorch and torchvision
    images        shape [channels, height, width] and bytes in hexadecimal digits
    rand          the magnitudes of RandAugment for each operation, with the side on which translations depend; number by number
    trivial       those of TrivialAugmentWide
    cases         image, operation, magnitude, and the bytes of the result
"""

import json
import pathlib

import torch
import torchvision
from torchvision.transforms import InterpolationMode
from torchvision.transforms.autoaugment import RandAugment, TrivialAugmentWide, _apply_op

SIDES = (48, 64)  # height, width


def digits(image):
    return bytes(image.flatten().tolist()).hex()


def table(space):
    return [[name, signed, [float(m) for m in magnitudes] if magnitudes.ndim else []]
            for name, (magnitudes, signed) in space.items()]


def images():
    torch.manual_seed(7)
    yield torch.randint(0, 256, (3, 11, 13), dtype=torch.uint8)
    yield torch.randint(30, 220, (1, 9, 8), dtype=torch.uint8)
    yield torch.full((3, 4, 5), 91, dtype=torch.uint8)
    # Large enough for an equalization with a step of more than 1.
    yield (torch.rand(1, 40, 40) ** 2 * 200 + 20).to(torch.uint8)
    yield torch.randint(0, 256, (1, 2, 6), dtype=torch.uint8)


def main():
    rand = table(RandAugment()._augmentation_space(31, SIDES))
    trivial = table(TrivialAugmentWide()._augmentation_space(31))
    result = {"made_by": f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}", "sides": SIDES,
              "images": [], "rand": rand, "trivial": trivial, "cases": []}
    for index, image in enumerate(images()):
        result["images"].append({"shape": list(image.shape), "pixels": digits(image)})
        for name, signed, magnitudes in trivial:
            if image.shape[-1] == 40 and name not in ("AutoContrast", "Equalize"):
                continue
            for magnitude in [magnitudes[n] for n in (3, 20)] if magnitudes else [0]:
                for sign in (1, -1) if signed else (1,):
                    changed = _apply_op(image, name, sign * magnitude, InterpolationMode.NEAREST, None)
                    result["cases"].append({"image": index, "op": name, "magnitude": sign * magnitude,
                                            "pixels": digits(changed)})
    path = pathlib.Path(__file__).with_name("augment.json")
    path.write_text(json.dumps(result, separators=(",", ":")).replace('{"image"', '\n{"image"') + "\n")


if __name__ == "__main__":
    main()
