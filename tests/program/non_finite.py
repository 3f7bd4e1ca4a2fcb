#!/usr/bin/env python3
"""Steps whose loss or gradient is not finite: non_finite.py DDP_TRAIN MPIRUN.

The culprit is a weight, a single image, or the learning rate; it must be named, on one rank and on two, and `replay` must find
the same. A step that is skipped or rolled back must change nothing that it should not.
"""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

TRAIN, MPIRUN = sys.argv[1:3]
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="non-finite-"))
WHITE = 37  # the number of the one image that is not black
failures = 0


def check(good, what, ended=None):
    global failures
    if good:
        return
    failures += 1
    print(f"FAILED: {what}")
    if ended is not None:
        print("    " + "\n    ".join((ended.stdout + ended.stderr).strip().splitlines()[-12:]))


def start(arguments, ranks=1):
    command = [TRAIN, *arguments]
    if ranks > 1:
        command = [MPIRUN, "-q", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *command]
    # Stand-ins for GPUs, whose kernels are the CPU's (tests/stand_ins/gpu_module.cpp).
    environment = {**os.environ, "DDP_CUDA_MODULE": os.environ["STAND_IN_GPU_MODULE"],
                   "STAND_IN_GPUS": "0000:01:00.0 0000:02:00.0", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_orte_tmpdir_base": str(SCRATCH)}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, env=environment)


def images(folder):
    """MNIST's files with 64 black images of which one is white."""
    folder.mkdir()
    for name, count in (("train", 64), ("t10k", 16)):
        pixels = bytearray(count * 784)
        if name == "train":
            pixels[WHITE * 784:(WHITE + 1) * 784] = b"\xff" * 784
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, count, 28, 28) + pixels)
        labels = bytes(i % 10 for i in range(count))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, count) + labels)


def with_value(source, target, tensor, value, every):
    """A safetensors file in which the first, or every, element of a tensor has this value."""
    data = bytearray(source.read_bytes())
    length = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8:8 + length])[tensor]["data_offsets"]
    for at in range(begin, end if every else begin + 4, 4):
        data[8 + length + at:8 + length + at + 4] = struct.pack("<f", value)
    target.write_bytes(data)


def replays(run, step, where):
    folder = run / f"nonfinite-{step}"
    ended = start(["replay", str(folder), "--threads", "1"])
    check(ended.returncode == 0, f"replay ends with {ended.returncode}", ended)
    check(re.search(rf"^here: first in {where}", ended.stdout, re.M), f"replay does not find {where}", ended)
    loss = re.search(r"^loss (\S+) here, (\S+) in the run", ended.stdout, re.M)
    check(loss and loss[1].lstrip("-") == loss[2].lstrip("-"), "replay has another loss", ended)
    check(re.search(r"^forward +the output of layer 'fc2'", ended.stdout, re.M) and
          re.search(r"^backward +the gradient of 'conv1.weight'", ended.stdout, re.M), "the table lacks layers", ended)
    return ended.stdout


def stops(arguments, run, where, ranks):
    """A run that must end with 6 and name the culprit; returns its step."""
    ended = start([*arguments, "--output", str(run)], ranks)
    check(ended.returncode == 6, f"exit code {ended.returncode} in place of 6", ended)
    said = re.search(r"step (\d+) \(epoch \d+\): the (loss|gradient) is not finite, first in (.*?); the weights were not",
                     ended.stderr)
    check(said and re.match(where, said[3]), f"the culprit is not '{where}'", ended)
    check(ended.stderr.count("error:") == 1, "not one line", ended)
    return int(said[1]) if said else 0


def main():
    scratch = SCRATCH
    images(scratch / "mnist")
    common = ["--model", "lenet", "--progress", "none", "--device", "cpu", "--threads", "1", "--deterministic",
              "--logical-shards", "2", "--log-interval", "1"]
    glyphs = [*common, "--dataset", "glyphs", "--train-limit", "200", "--test-limit", "20", "--global-batch", "32"]
    black = [*common, "--dataset", "mnist", "--data-dir", str(scratch / "mnist"), "--global-batch", "8", "--lr", "0.01"]

    first = start([*black, "--max-steps", "1", "--lr", "0", "--output", str(scratch / "first")])
    check(first.returncode == 0, "a plain step fails", first)
    weights = scratch / "first" / "latest" / "model.safetensors"

    # A weight that overflows for every image, and a learning rate.
    with_value(weights, scratch / "weight.safetensors", "conv2.weight", 3e38, True)
    for ranks in (1, 2):
        planted = [*glyphs, "--lr", "0.01", "--init-from", str(scratch / "weight.safetensors")]
        step = stops(planted, scratch / f"weight-{ranks}", "the output of layer 'conv2' on rank.* 0.*, samples? ", ranks)
        check(step == 1, f"found at step {step} in place of 1")
        replays(scratch / f"weight-{ranks}", step, "the output of layer 'conv2'")
        step = stops([*glyphs, "--lr", "1e6"], scratch / f"rate-{ranks}", "the ", ranks)
        replays(scratch / f"rate-{ranks}", step, "the ")

    # A single image, whose number is named: conv1 overflows for what is white.
    with_value(weights, scratch / "image.safetensors", "conv1.weight", 1e38, True)
    planted = [*black, "--init-from", str(scratch / "image.safetensors"), "--epochs", "2"]
    for seed in ("1", "2", "3"):  # in the first epoch the image must not be in the first step, for there to be a checkpoint
        ended = start([*planted, "--seed", seed, "--output", str(scratch / f"seed-{seed}")])
        if "step 1 " not in ended.stderr:
            planted += ["--seed", seed]
            break
    steps = {}
    for ranks in (1, 2):
        where = rf"the output of layer 'conv1' on rank \d, sample {WHITE}$"
        steps[ranks] = stops(planted, scratch / f"image-{ranks}", where, ranks)
        said = replays(scratch / f"image-{ranks}", steps[ranks], f"the output of layer 'conv1', sample {WHITE}\n")
        check("the input  " in said, "the input is not shown")
    check(steps[1] == steps[2] > 0, f"found at steps {steps}")

    # Skipped: once in each epoch, on one rank and two alike; then too often.
    for ranks in (1, 2):
        ended = start([*planted, "--on-nonfinite", "skip", "--nonfinite-limit", "2", "--output",
                       str(scratch / f"skip-{ranks}")], ranks)
        check(ended.returncode == 0 and ended.stderr.count("the step is skipped") == 2, "steps are not skipped", ended)
    # Steps that have begun behind it are dropped and made again; also where the device has the images and all that the
    # steps of an epoch begin with. No hash of pixels is in its steps.csv.
    for ranks, device in ((1, "cpu"), (2, "cpu"), (1, "cuda"), (2, "cuda")):
        run = scratch / f"ahead-{device}-{ranks}"
        ahead = [*planted, "--device", device, "--steps-in-flight"]
        ended = start([*ahead, "4", "--on-nonfinite", "skip", "--output", str(run)], ranks)
        check(ended.returncode == 0 and ended.stderr.count("the step is skipped") == 2, "steps ahead: not skipped", ended)
        for file in ["latest/model.safetensors", "latest/optimizer.safetensors"] + ["steps.csv"] * (device == "cpu"):
            same = [(scratch / folder / file).read_bytes() for folder in (f"skip-{ranks}", run.name)]
            check(same[0] == same[1], f"{ranks} ranks differ in {file} with steps ahead of the host on {device}")
        image = scratch / f"ahead-image-{device}-{ranks}"
        step = stops([*ahead, "3"], image, where, ranks)
        check(step == steps[1], f"with steps ahead on {device} found at {step} in place of {steps[1]}")
        for file in ("batch.json", "pixels.bin", "weights.safetensors"):
            same = [(scratch / folder / f"nonfinite-{step}" / file).read_bytes() for folder in (f"image-{ranks}", image.name)]
            check(same[0] == same[1], f"{ranks} ranks keep another {file} with steps ahead of the host on {device}")
    a, b = (scratch / f"skip-{ranks}" / "latest" / "model.safetensors" for ranks in (1, 2))
    check(a.read_bytes() == b.read_bytes(), "one rank and two differ after a skipped step")
    lines = [json.loads(line) for line in (scratch / "skip-1" / "metrics.jsonl").read_text().splitlines()]
    check(sum("loss" in line and line["loss"] is None for line in lines) == 2, "the log lacks the skipped steps")
    ended = start([*planted, "--on-nonfinite", "skip", "--nonfinite-limit", "1", "--output", str(scratch / "limit")])
    check(ended.returncode == 6 and "--nonfinite-limit 1" in ended.stderr, "the limit is not kept", ended)

    # With batch normalisation, whose running statistics the skipped step has made infinite.
    norm = [*black, "--model", "mnist-slim", "--global-batch", "16", "--lr", "0.001"]
    start([*norm, "--max-steps", "1", "--lr", "0", "--output", str(scratch / "norm")])
    with_value(scratch / "norm/latest/model.safetensors", scratch / "norm.safetensors", "conv1.weight", 1e38, True)
    for ranks in (1, 2):
        ended = start([*norm, "--init-from", str(scratch / "norm.safetensors"), "--epochs", "2", "--on-nonfinite", "skip",
                       "--output", str(scratch / f"norm-{ranks}")], ranks)
        check(ended.returncode == 0 and ended.stderr.count("the step is skipped") == 2, "statistics are not put back", ended)
    ended = start([*norm, "--init-from", str(scratch / "norm.safetensors"), "--epochs", "2", "--on-nonfinite", "skip",
                   "--steps-in-flight", "4", "--output", str(scratch / "norm-ahead")])
    check(ended.returncode == 0, "statistics are not put back with steps ahead of the host", ended)
    for file in ("model.safetensors", "optimizer.safetensors"):
        same = [(scratch / f"norm-{run}" / "latest" / file).read_bytes() for run in (1, 2, "ahead")]
        check(same[0] == same[1], f"one rank and two differ in {file}")
        check(same[0] == same[2], f"with steps ahead of the host {file} differs")

    # Rolled back to the checkpoint of the step before, whose weights the next step begins with; without one it ends.
    ended = start([*planted, "--on-nonfinite", "rollback", "--checkpoint-every", "1", "--output", str(scratch / "back")])
    back = f"rolled back to the weights of step {steps[1] - 1} (1 of at most 10)"
    check(ended.returncode == 0 and back in ended.stderr, "not rolled back", ended)
    # From the checkpoint right before the step rolling back is the same as skipping.
    check((scratch / "back/latest/model.safetensors").read_bytes() == a.read_bytes(), "rolled back to other weights")
    ended = start([*planted, "--on-nonfinite", "rollback", "--checkpoint-every", "100000", "--output", str(scratch / "none")])
    check(ended.returncode == 6 and "nothing to roll back to" in ended.stderr, "rolled back to nothing", ended)

    # Bad input.
    for arguments, code, text in ((["replay"], 2, "replay requires the folder"),
                                  (["replay", str(scratch)], 8, "no batch.json"),
                                  ([*glyphs, "--nonfinite-limit", "3"], 2, "--nonfinite-limit has no effect")):
        ended = start(arguments)
        check(ended.returncode == code and text in ended.stderr, f"{arguments[:2]} is not refused with {code}", ended)
    damaged = scratch / "image-1" / f"nonfinite-{steps[1]}"
    with_value(damaged / "weights.safetensors", damaged / "weights.safetensors", "fc2.bias", 1, False)
    ended = start(["replay", str(damaged)])
    check(ended.returncode == 8 and "not the weights of the step" in ended.stderr, "other weights are taken", ended)
    (damaged / "pixels.bin").write_bytes(b"123")
    ended = start(["replay", str(damaged)])
    check(ended.returncode == 8 and "do not belong together" in ended.stderr, "other pixels are taken", ended)
    subprocess.run(["rm", "-rf", str(scratch)], check=True)
    if failures:
        sys.exit(1)
    print("non-finite steps are named, kept, skipped and rolled back")


main()
