#!/usr/bin/env python3
"""Single faults at a given rank, step and place: faults.py DDP_TRAIN_FAULTS MPIRUN. Hangs are in hangs.py."""

import concurrent.futures
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

TRAIN, MPIRUN = sys.argv[1:3]
WHITE = 37  # the number of the one image that is white all over
failures = []


def check(good, what, ended):
    if not good:
        failures.append(f"{what}\n    " + "\n    ".join((ended.stdout + ended.stderr).strip().splitlines()[-12:]))


def start(scratch, arguments, fault, ranks=2):
    command = [TRAIN, *arguments]
    if ranks > 1:
        command = [MPIRUN, "-q", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *command]
    job = tempfile.mkdtemp(dir=scratch)  # of its own: a job that ends removes folders in which another one is about to start
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_orte_tmpdir_base": job,
                   "XDG_CACHE_HOME": str(scratch / "cache"), "DDP_FAULTS": fault}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, env=environment)


GLYPHS = ["--dataset", "glyphs", "--train-limit", "200", "--test-limit", "20", "--global-batch", "32"]


def train(scratch, name, fault, ranks=2, data=GLYPHS, more=()):
    return start(scratch, [*data, "--lr", "0.01", "--threads", "1", "--progress", "none", "--device", "cpu", "--deterministic",
                           "--logical-shards", "2", "--epochs", "2", "--checkpoint-every", "4", "--timeout", "60",
                           "--output", str(scratch / name), *more], fault, ranks)


def images(folder):
    """MNIST's files with 64 images of noise, one of which is white all over."""
    folder.mkdir()
    noise = random.Random()
    for name, count in (("train", 64), ("t10k", 16)):
        pixels = bytearray(noise.randbytes(count * 784))
        if name == "train":
            pixels[WHITE * 784:(WHITE + 1) * 784] = b"\xff" * 784
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, count, 28, 28) + pixels)
        labels = bytes(i % 10 for i in range(count))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, count) + labels)
    return ["--dataset", "mnist", "--data-dir", str(folder), "--global-batch", "8"]


def balances(scratch):
    """Shards move from a rank that sleeps in each of them, and the bytes are those of one rank."""
    data = ["--dataset", "glyphs", "--train-limit", "200", "--test-limit", "20", "--global-batch", "32", "--model", "mnist-slim",
            "--lr", "0.01", "--threads", "1", "--progress", "none", "--device", "cpu", "--deterministic", "--logical-shards", "8",
            "--epochs", "8"]
    alone = start(scratch, [*data, "--output", str(scratch / "alone")], "", ranks=1)
    check(alone.returncode == 0, "one rank fails", alone)
    ended = start(scratch, [*data, "--balance", "on", "--output", str(scratch / "balanced")],
                  "sleep rank=1 place=forward seconds=0.03 count=0")
    check(re.search(r"balance: logical shards of the ranks: [5-7], [1-3] in place of 4, 4; the slowest works", ended.stderr),
          "no shards were moved", ended)
    for file in ("model.safetensors", "optimizer.safetensors"):
        same = ended.returncode == 0 and \
            (scratch / "balanced/latest" / file).read_bytes() == (scratch / "alone/latest" / file).read_bytes()
        check(same, f"{file} is other than that of one rank", ended)


def ends(scratch, name, fault, code, text):
    """A run with this fault ends with the code, and with one error that has the text."""
    ended = train(scratch, name, fault)
    check(ended.returncode == code, f"{fault}: exit code {ended.returncode} in place of {code}", ended)
    check(re.search(text, ended.stderr), f"{fault}: no '{text}'", ended)


def goes_on(scratch, name, fault, text, model):
    """A run with this fault warns, and ends with the weights of an undisturbed one."""
    ended = train(scratch, name, fault)
    check(ended.returncode == 0, f"{fault}: exit code {ended.returncode}", ended)
    check(re.search(text, ended.stderr), f"{fault}: no '{text}'", ended)
    same = ended.returncode == 0 and (scratch / name / "latest/model.safetensors").read_bytes() == model
    check(same, f"{fault}: other weights", ended)


def not_finite(scratch, name, fault, where, replay_fault, ranks=2, data=GLYPHS, by="", replayed=None):
    """The culprit is named, and the replay has the same. `by`: the ranks and samples that are named, in the run only."""
    ended = train(scratch, name, fault, ranks, data)
    check(ended.returncode == 6, f"{fault}: exit code {ended.returncode} in place of 6", ended)
    said = re.search(rf"step (\d+) \(epoch 1\): the (?:loss|gradient) is not finite, first in {where}{by}", ended.stderr)
    check(said, f"{fault}: the culprit is not {where}{by}", ended)
    if not said:
        return
    folder = scratch / name / f"nonfinite-{said[1]}"
    ended = start(scratch, ["replay", str(folder), "--threads", "1"], replay_fault, ranks=1)
    again = rf"first in {where}" if replayed is None else replayed
    check(ended.returncode == 0 and re.search(rf"^here: {again}", ended.stdout, re.M),
          f"{fault}: the replay has not '{again}'", ended)
    loss = re.search(r"^loss (\S+) here, (\S+) in the run", ended.stdout, re.M)
    check(loss and (replayed is not None or loss[1].lstrip("-") == loss[2].lstrip("-")),
          f"{fault}: the replay has another loss", ended)


def learning_rate(scratch):
    """A rate that is not finite is named before it is used, and is in the replay, where all else is finite."""
    name, fault = "rate", "nan place=learning-rate step=3"
    ended = train(scratch, name, fault)
    check(ended.returncode == 6, f"{fault}: exit code {ended.returncode} in place of 6", ended)
    check(re.search(r"step 3 \(epoch 1\): the learning rate is not finite \(nan\)", ended.stderr), f"{fault}: not named", ended)
    ended = start(scratch, ["replay", str(scratch / name / "nonfinite-3"), "--threads", "1"], "", ranks=1)
    loss = re.search(r"^loss (\S+) here, (\S+) in the run", ended.stdout, re.M)
    check(ended.returncode == 0 and "learning rate nan" in ended.stdout and loss and loss[1] == loss[2] and
          "here: every value of every shard is finite" in ended.stdout and
          "in the run: the learning rate is not finite (nan)" in ended.stdout, f"{fault}: the replay does not show it", ended)


def outliers_after_resume(scratch):
    """A spike soon after a resume is reported as in a run without an interruption."""
    fault = "nan place=loss-scale step=160 value=1000 rank=0 count=0"
    long = ["--max-steps", "170", "--epochs", "100", "--eval-every", "0", "--checkpoint-every", "1000", "--lr", "1e-7"]
    found = []
    for name, parts in (("spike", [[]]), ("spike resumed", [["--max-steps", "150"], ["--resume", "auto"]])):
        for part in parts:
            ended = train(scratch, name, fault, ranks=1, more=[*long, *part])
            check(ended.returncode == 0, f"exit code {ended.returncode} of {name} {part}", ended)
        lines = (scratch / name / "metrics.jsonl").read_text().splitlines()
        found.append([line for line in lines if "outlier" in line])
    check(len(found[0]) == 1 and found[0] == found[1], f"outliers: {found}", ended)


def left_alone(scratch):
    """Values that only one rank has are named as the reason why the others wait for it."""
    fault = "nan rank=1 place=learning-rate step=3"
    ended = train(scratch, "alone-1", fault, more=["--hang-timeout", "3", "--timeout", "10"])
    said = r"rank 1 on host \S+ \(process \d+\) has not arrived: it searches for the cause of a value that is not finite"
    check(ended.returncode == 7 and re.search(said, ended.stderr), f"{fault}: exit code {ended.returncode} in place of 7", ended)


def main():
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        ended = train(scratch, "whole", "")
        check(ended.returncode == 0, "a run without a fault fails", ended)
        white = images(scratch / "mnist")
        model = (scratch / "whole/latest/model.safetensors").read_bytes()
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            runs = [
                pool.submit(balances, scratch),
                pool.submit(ends, scratch, "throw", "throw rank=1 step=3 place=update", 1, "rank 1: internal error: a fault"),
                pool.submit(ends, scratch, "memory", "out-of-memory rank=1 step=3 place=forward", 5, "rank 1: out of memory"),
                pool.submit(ends, scratch, "kill", "kill rank=1 step=3 place=backward", 137, ""),
                pool.submit(learning_rate, scratch),
                pool.submit(left_alone, scratch),
                pool.submit(outliers_after_resume, scratch),
                pool.submit(ends, scratch, "full at the end", "full-disk rank=0 path=model.safetensors count=0", 8,
                            "No space left on device"),
                pool.submit(goes_on, scratch, "full", "full-disk rank=0 path=model.safetensors", "No space left on device", model),
                # What is missing is written later.
                *[pool.submit(goes_on, scratch, f"{kind} {file}", f"{kind} rank=0 step=7 path={file} count=0", said, model)
                  for kind, said in (("full-disk", "No space left on device"), ("no-disk", "Input/output error"))
                  for file in ("metrics.jsonl", "steps.csv")],
                pool.submit(goes_on, scratch, "no-disk", "no-disk rank=0 path=optimizer.safetensors", "Input/output error", model),
                pool.submit(goes_on, scratch, "lost", "lost-rename rank=0 path=checkpoints/step-00000004",
                            "the checkpoint of step 4 was not written: .* this has not happened", model),
                pool.submit(goes_on, scratch, "lost link", "lost-rename rank=0 path=/latest",
                            "checkpoint step-00000004 is written, but: .* this has not happened", model),
                pool.submit(ends, scratch, "lost at the end", "lost-rename rank=0 path=checkpoints/step-00000014", 8,
                            "this has not happened; check the file system"),
                pool.submit(goes_on, scratch, "short", "short-write rank=0 count=0", "", model),
                pool.submit(goes_on, scratch, "slow", "slow-disk rank=0 path=model.safetensors seconds=0.2 count=0", "", model),
                pool.submit(goes_on, scratch, "delay", "delay rank=1 seconds=0.1 count=5", "", model),
                pool.submit(not_finite, scratch, "weight", "nan place=weight step=3", "the output of layer 'conv1'", "",
                            by=r" on ranks 0, 1, samples [^(]* \('conv1.weight' holds non-finite values\)"),
                # Broken memory of the weights is that of all ranks which share them.
                pool.submit(not_finite, scratch, "weight-shared", "nan rank=1 place=weight step=3",
                            "the output of layer 'conv1'", "",
                            by=r" on ranks 0, 1, samples [^(]* \('conv1.weight' holds non-finite values\)"),
                # If each rank has its own, it is not in what rank 0 keeps.
                pool.submit(not_finite, scratch, "weight-1", "nan rank=1 place=weight step=3", "the output of layer 'conv1'", "",
                            data=[*GLYPHS, "--lookahead", "5"], by=r" on rank 1, samples [^(]* \('conv1.weight' holds non-finite values on rank 1\)",
                            replayed="every value of every shard is finite"),
                *[pool.submit(not_finite, scratch, f"image-{model}-{ranks}", "nan place=image count=0",
                              "the input", "nan place=image count=0", ranks=ranks, by=rf" on rank \d, sample {WHITE};",
                              data=[*white, "--model", model]) for model in ("lenet", "mnist-slim") for ranks in (1, 2)],
                pool.submit(not_finite, scratch, "huge", "nan place=weight step=3 value=inf",
                            "the output of layer 'conv1'", ""),
                pool.submit(not_finite, scratch, "scale", "nan place=loss-scale step=3 count=0",
                            "the gradient of the logits", "nan place=loss-scale count=0"),
            ]
            for run in runs:
                run.result()
    for each in failures:
        print("FAILED: " + each)
    if failures:
        sys.exit(1)
    print("every fault has its end")


main()
