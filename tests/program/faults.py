#!/usr/bin/env python3
"""Single faults at a given rank, step and place: faults.py DDP_TRAIN_FAULTS MPIRUN. Hangs are in hangs.py."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TRAIN, MPIRUN = sys.argv[1:3]
failures = []


def check(good, what, ended):
    if not good:
        failures.append(f"{what}\n    " + "\n    ".join((ended.stdout + ended.stderr).strip().splitlines()[-12:]))


def start(scratch, arguments, fault, ranks=2):
    command = [TRAIN, *arguments]
    if ranks > 1:
        command = [MPIRUN, "-q", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *command]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_orte_tmpdir_base": str(scratch),
                   "XDG_CACHE_HOME": str(scratch / "cache"), "DDP_FAULTS": fault}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, env=environment)


def train(scratch, name, fault, ranks=2):
    return start(scratch, ["--dataset", "glyphs", "--train-limit", "200", "--test-limit", "20", "--global-batch", "32", "--lr",
                           "0.01", "--threads", "1", "--progress", "none", "--device", "cpu", "--deterministic",
                           "--logical-shards", "2", "--epochs", "2", "--checkpoint-every", "4", "--timeout", "60",
                           "--output", str(scratch / name)], fault, ranks)


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


def not_finite(scratch, name, fault, where, replay_fault):
    """The culprit is named, and the replay has the same."""
    ended = train(scratch, name, fault)
    check(ended.returncode == 6, f"{fault}: exit code {ended.returncode} in place of 6", ended)
    check(re.search(rf"step 3 \(epoch 1\): the (loss|gradient) is not finite, first in {where}", ended.stderr),
          f"{fault}: the culprit is not {where}", ended)
    ended = start(scratch, ["replay", str(scratch / name / "nonfinite-3"), "--threads", "1"], replay_fault, ranks=1)
    check(ended.returncode == 0 and re.search(rf"^here: first in {where}", ended.stdout, re.M),
          f"{fault}: the replay has not {where}", ended)


def main():
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        ended = train(scratch, "whole", "")
        check(ended.returncode == 0, "a run without a fault fails", ended)
        model = (scratch / "whole/latest/model.safetensors").read_bytes()
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            runs = [
                pool.submit(balances, scratch),
                pool.submit(ends, scratch, "throw", "throw rank=1 step=3 place=update", 1, "rank 1: internal error: a fault"),
                pool.submit(ends, scratch, "memory", "out-of-memory rank=1 step=3 place=forward", 5, "rank 1: out of memory"),
                pool.submit(ends, scratch, "kill", "kill rank=1 step=3 place=backward", 137, ""),
                pool.submit(ends, scratch, "rate", "nan place=learning-rate step=3", 6,
                            r"step 3 \(epoch 1\): the learning rate is not finite \(nan\)"),
                pool.submit(ends, scratch, "full at the end", "full-disk rank=0 path=model.safetensors count=0", 8,
                            "No space left on device"),
                pool.submit(goes_on, scratch, "full", "full-disk rank=0 path=model.safetensors", "No space left on device", model),
                pool.submit(goes_on, scratch, "short", "short-write rank=0 count=0", "", model),
                pool.submit(goes_on, scratch, "slow", "slow-disk rank=0 path=model.safetensors seconds=0.2 count=0", "", model),
                pool.submit(goes_on, scratch, "delay", "delay rank=1 seconds=0.1 count=5", "", model),
                pool.submit(not_finite, scratch, "weight", "nan place=weight step=3",
                            "the output of layer 'conv1'", ""),
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
