#!/usr/bin/env python3
"""Hangs of every kind: hangs.py DDP_TRAIN_FAULTS MPIRUN [--count N] [--seed S] [--jobs J].

Each run hangs by a fault in one rank (tests/faults/fault.h). It must end with code 7 within --hang-timeout and ten seconds,
name the rank, what is wrong with it, and its step and phase; the table in the run folder must mark it alone; and nothing may
be left running. Long evaluations and slow checkpoints are no hangs. Without --count every kind runs once; with it, that many
runs of random kinds, ranks and steps.
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

HANG_TIMEOUT = 3
TOLERANCE = 10

# Name: the fault, what the error says of the rank, and the phase that it names. "{r}": the rank, "{s}": the step.
HANGS = {
    "stopped": ("stop rank={r} step={s} place=backward", r"is stopped by a signal", r"step {s}, backward"),
    "stopped in set-up": ("stop rank={r} place=set-up", r"is stopped by a signal", r"set-up"),
    "loader": ("sleep rank={r} step={s} place=loader count=0", r"is in its loader", r"step \d+, data"),
    "death in an all-reduce": ("die rank={r} step={s} place=reduction seconds=0.5", r"is silent: .*",
                               r"step {s}, reduction.*"),
    "left early": ("leave rank={r} step={s} place=data", r"has not arrived: it has left the training loop", r"step {s}, end"),
    "kernel": ("sleep rank={r} step={s} place=forward", r"is in a kernel", r"step {s}, forward"),
    "stuck set-up": ("sleep rank={r} place=set-up", r"has not arrived", r"set-up"),
    "file system": ("slow-disk rank=0 path=checkpoints/.tmp-probe", r"is in a file system call, writing /.*\.tmp-probe.*",
                    r"set-up"),
    "lost message": ("drop rank={r} step={s} place=reduction count=0", None, None),
}
# No hangs: the run ends by itself.
SLOW = {
    "evaluation": f"sleep rank=0 place=evaluation seconds={HANG_TIMEOUT + 2}",
    "checkpoint": f"slow-disk rank=0 path=model.safetensors seconds={HANG_TIMEOUT + 2}",
    "slow steps": f"delay rank=1 place=reduction seconds=0.5 count=6",
}


def left_running(tag):
    """The processes with this text in their environment."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if tag.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            pass
    return found


def start(arguments, scratch, name, ranks, fault):
    folder = scratch / re.sub(r"\W", "-", name)
    folder.mkdir()
    tag = f"DDP_HANG_TEST={folder}"
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_orte_tmpdir_base": str(folder),
                   "XDG_CACHE_HOME": str(scratch / "cache"), "DDP_FAULTS": fault, "DDP_HANG_TEST": str(folder)}
    command = [arguments.mpirun, "-q", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), arguments.program,
               "--dataset", "glyphs", "--train-limit", "600", "--test-limit", "100", "--global-batch", "60", "--threads", "1",
               "--progress", "none", "--epochs", "2", "--hang-timeout", str(HANG_TIMEOUT), "--output", str(folder / "run")]
    begin = time.monotonic()
    with open(folder / "said", "wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
        try:
            code = process.wait(timeout=HANG_TIMEOUT + TOLERANCE + 60)
        except subprocess.TimeoutExpired:
            process.kill()
            code = None
    seconds = time.monotonic() - begin
    remaining = left_running(tag)
    for _ in range(20):
        if not remaining:
            break
        time.sleep(0.1)
        remaining = left_running(tag)
    return folder, code, seconds, (folder / "said").read_text(errors="replace"), remaining


def table_of(folder, said):
    """The lines of the table: of the file if there is one, and otherwise as printed."""
    files = list((folder / "run").glob("hang-*.txt")) if (folder / "run").is_dir() else []
    text = files[0].read_text() if files else said
    return [line for line in text.splitlines() if re.match(r"(->)?\s+\d+ ", line)], bool(files)


def hang(arguments, scratch, name, number, ranks, rank, step):
    """One run that hangs; what is wrong with its end, or None."""
    fault, reason, phase = HANGS[name]
    if name == "file system":
        rank = 0
    folder, code, seconds, said, remaining = start(arguments, scratch, f"{name} {number}", ranks,
                                                   fault.format(r=rank, s=step))
    where = f"{name}, rank {rank} of {ranks}, step {step}: "
    if code != 7:
        return f"{where}exit code {code} in place of 7 after {seconds:.1f} s: {said}"
    if seconds > HANG_TIMEOUT + TOLERANCE:
        return f"{where}took {seconds:.1f} s"
    if remaining:
        return f"{where}left running: {remaining}"
    errors = [line for line in said.splitlines() if "ddp_train: error" in line]
    if len(errors) != 1:
        return f"{where}{len(errors)} errors: {said}"
    lines, in_file = table_of(folder, said)
    if len(lines) != ranks:
        return f"{where}{len(lines)} lines in the table: {said}"
    if "set-up" not in name and not in_file:
        return f"{where}no table in the run folder"
    if reason is None:
        return None if "so a message was lost" in errors[0] else f"{where}{said}"
    wanted = rf"rank {rank} on host \S+ \(process \d+\) {reason} \({phase.format(s=step)}\); raise --hang-timeout"
    if not re.search(wanted, errors[0]):
        return f"{where}not '{wanted}': {said}"
    marked = [line.split()[1] for line in lines if line.startswith("->")]
    if marked != [str(rank)]:
        return f"{where}marked are {marked}: {said}"
    shutil.rmtree(folder, ignore_errors=True)
    return None


def slow(arguments, scratch, name):
    _, code, _, said, remaining = start(arguments, scratch, "slow " + name, 2, SLOW[name])
    return None if code == 0 and not remaining else f"slow {name}: exit code {code}: {said}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("mpirun")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=4, help="runs at the same time; they mostly wait")
    arguments = parser.parse_args()
    generator = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as scratch_name:
        scratch = pathlib.Path(scratch_name)
        # Kernels are timed once for all runs.
        start(arguments, scratch, "first", 2, "")
        start(arguments, scratch, "first of 3", 3, "")
        names = [generator.choice(list(HANGS)) for _ in range(arguments.count)] or list(HANGS)
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            runs = []
            for number, name in enumerate(names):
                ranks = generator.choice([2, 3])
                runs.append(pool.submit(hang, arguments, scratch, name, number, ranks, generator.randrange(ranks),
                                        generator.randrange(2, 9)))
            if arguments.count == 0:
                runs += [pool.submit(slow, arguments, scratch, name) for name in SLOW]
            wrong = [run.result() for run in runs if run.result()]
    for each in wrong:
        print("FAILED: " + each)
    print(f"seed {arguments.seed}: {len(runs)} runs, {len(wrong)} ended wrongly")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
