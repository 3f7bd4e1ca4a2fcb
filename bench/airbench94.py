#!/usr/bin/env python3
"""Times the airbench94 program of its author on the files that configs/cifar10-94.cfg trains on; one line of JSON per run.

    pip install airbench
    bench/airbench94.py DATA --runs 3      # DATA/cifar-10-batches-bin is the data set; needs an NVIDIA GPU

The package airbench (github.com/KellerJordan/cifar10-airbench) holds the training as published: eager PyTorch in fp16. It
is warmed up first. Its time covers whitening, training and the evaluation of views, as the program itself measures it; of
ours, compare the sum of the epochs and the evaluation ("time by phase").
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import time

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
RECORD = 1 + 3 * 32 * 32  # a label, then the planes of an image


def store(torch, files, target):
    """The images of CIFAR-10's binary files as the package stores them."""
    data = torch.cat([torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8).reshape(-1, RECORD) for file in files])
    images = data[:, 1:].reshape(-1, 3, 32, 32).permute(0, 2, 3, 1).contiguous()
    torch.save({"images": images, "labels": data[:, 0].long(), "classes": CLASSES}, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=pathlib.Path, help="the folder with cifar-10-batches-bin/")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    folder = args.data / "cifar-10-batches-bin"
    if not (folder / "test_batch.bin").exists():
        sys.exit(f"airbench94.py: there is no {folder}/test_batch.bin")
    try:
        import torch
        import airbench
    except ImportError as error:
        sys.exit(f"airbench94.py: {error}; pip install torch torchvision airbench")
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        pathlib.Path("cifar10").mkdir()
        store(torch, [folder / f"data_batch_{batch}.bin" for batch in range(1, 6)], "cifar10/train.pt")
        store(torch, [folder / "test_batch.bin"], "cifar10/test.pt")
        airbench.warmup94(verbose=False)
        for run in range(args.runs):
            said = io.StringIO()
            begin = time.perf_counter()
            with contextlib.redirect_stdout(said):
                airbench.train94(run=run)
            whole = time.perf_counter() - begin
            # The last row: accuracy of the views, seconds.
            accuracy, seconds = re.findall(r"[0-9]+\.[0-9]+", said.getvalue().strip().splitlines()[-2])[-2:]
            print(json.dumps({"program": "airbench94", "version": torch.__version__, "device": torch.cuda.get_device_name(),
                              "run": run, "accuracy": float(accuracy), "seconds": float(seconds),
                              "whole_seconds": round(whole, 3)}), flush=True)


if __name__ == "__main__":
    main()
