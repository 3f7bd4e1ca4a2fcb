#!/usr/bin/env python3
"""False alarms: false_alarms.py DDP_TRAIN_FAULTS MPIRUN [MINUTES] [--seconds S] [--seed N].

Runs that are slow but do not hang, with a --hang-timeout much shorter than the default: long evaluations on one rank and on all,
evaluations and checkpoints that are silent for longer than --hang-timeout, large checkpoints, more ranks than cores. Each run
goes on for S seconds and is then asked to stop. It must end with code 75 and without a hang table. Run it beside other work.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

GLYPHS = ["--dataset", "glyphs", "--device", "cpu", "--threads", "1", "--progress", "none", "--epochs", "100000"]
LENET = [*GLYPHS, "--train-limit", "4000", "--global-batch", "200"]
# Its evaluation takes much longer than its training.
RESNET = [*GLYPHS, "--model", "resnet18-d2l", "--train-limit", "96", "--global-batch", "24", "--test-limit", "3000"]

# Name: ranks, --hang-timeout, faults (tests/faults/fault.h), options.
KINDS = {
    "long evaluations": ((2, 4), 5, "", RESNET),
    "long evaluations on all ranks": ((2, 4), 5, "", [*RESNET, "--eval-on", "all"]),
    "silent evaluations": ((2, 4), 3, "sleep rank=0 place=evaluation seconds=9 count=0", [*LENET, "--test-limit", "1000"]),
    "slow disk": ((2, 4), 3, "slow-disk rank=0 path=model.safetensors seconds=4 count=0",
                  [*LENET, "--test-limit", "1000", "--checkpoint-every", "7"]),
    "large network": ((2, 3), 10, "", [*GLYPHS, "--model", "resnet18-d2l", "--train-limit", "200", "--global-batch", "24",
                                       "--test-limit", "1000", "--checkpoint-every", "5"]),
    "slow messages": ((2, 4), 3, "delay rank=1 place=reduction seconds=0.1 count=0",
                      [*LENET, "--test-limit", "1000", "--checkpoint-every", "10"]),
}


def run(arguments, scratch, name, number, ranks, seconds):
    """One run; what is wrong with it or None, and what it did."""
    _, hang_timeout, faults, options = KINDS[name]
    folder = scratch / str(number)
    folder.mkdir()
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_orte_tmpdir_base": str(folder),
                   "XDG_CACHE_HOME": str(scratch / "cache"), "DDP_FAULTS": faults}
    command = [arguments.mpirun, "-q", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), arguments.program, *options,
               "--hang-timeout", str(hang_timeout), "--log-interval", "1", "--output", str(folder / "run")]
    with open(folder / "said", "wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)
            try:
                code = process.wait(timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()
                code = None
    text = (folder / "said").read_text(errors="replace")
    log = folder / "run" / "metrics.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    evaluations = sum("val_loss" in record for record in records)
    steps = max([record["step"] for record in records], default=0)
    longest = max([record["seconds"].get("evaluation", 0) for record in records if "seconds" in record], default=0)
    notices = text.count("no progress on any rank for 10 s")
    tables = len(list((folder / "run").glob("hang-*.txt")))
    did = {"steps": steps, "evaluations": evaluations, "longest": longest, "notices": notices}
    if code == 75 and tables == 0 and evaluations > 0:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        return None, did
    end = "\n    ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()[-12:])
    return f"{name}, {ranks} ranks: exit code {code} in place of 75, {tables} hang tables, {evaluations} evaluations\n    {end}", did


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("mpirun")
    parser.add_argument("minutes", type=float, nargs="?", default=60)
    parser.add_argument("--seconds", type=float, default=150, help="length of a run")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    generator = random.Random(arguments.seed)
    end = time.monotonic() + 60 * arguments.minutes
    wrong = []
    number = 0
    names = []
    with tempfile.TemporaryDirectory() as scratch:
        while time.monotonic() < end:
            names = names or generator.sample(list(KINDS), len(KINDS))
            name = names.pop()
            ranks = generator.randint(*KINDS[name][0])
            seconds = min(arguments.seconds, max(20.0, end - time.monotonic()))
            failure, did = run(arguments, pathlib.Path(scratch), name, number, ranks, seconds)
            number += 1
            print(f"{name}, {ranks} ranks, {seconds:.0f} s: {did['steps']} steps, {did['evaluations']} evaluations of up to "
                  f"{did['longest']:.1f} s, {did['notices']} notices{'' if failure is None else ', FAILED'}", flush=True)
            if failure is not None:
                wrong.append(failure)
    for each in wrong:
        print("FAILED: " + each)
    print(f"seed {arguments.seed}: {number} runs, {len(wrong)} with a false alarm or another end")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
