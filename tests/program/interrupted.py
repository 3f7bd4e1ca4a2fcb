#!/usr/bin/env python3
"""Interrupts runs at random times and checks how they end.

    interrupted.py PROGRAM LAUNCH_RUN [--count N] [--seed S] [--kinds freeze,kill,signal] [--ranks 2,3,4]

freeze   SIGSTOP to a rank, from before MPI starts to after it ends: the job ends within seconds after --timeout with
         exit code 7 and a message that names the rank.
kill     SIGKILL to a rank, to mpirun or to all ranks: the job ends within 3 s, and if a single rank was killed, the last
         line names the rank and the signal; only the signal if mpirun may not have noted yet that the job runs.
signal   USR1, TERM or INT to launch/run: the job ends within seconds with exit code 75.

A run that had already ended must exit with 0, and nothing else is checked. The last line counts the outcomes. The exit code
is 1 if anything was wrong.
"""

import argparse
import collections
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TIMEOUT = 4  # --timeout of the runs
# Time limits for the end of a job, in addition to --timeout where it applies. Machines under load are slow.
FREEZE_ENDS = 6
KILL_ENDS = 3
SIGNAL_ENDS = 8
# Open MPI 4 does not say which rank was killed, and sometimes hangs, if it dies before mpirun has noted that all of them run.
STARTING = 0.5


def read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""


def children(process):
    return [int(word) for word in read(f"/proc/{process}/task/{process}/children").split()]


def rank_of(process):
    found = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)\0", read(f"/proc/{process}/environ"))
    return int(found.group(1)) if found else None


def alive(process):
    status = read(f"/proc/{process}/stat").rpartition(b")")[2].split()
    return bool(status) and status[0] not in (b"Z", b"X")


def age(process):
    """Seconds since a process was created."""
    fields = read(f"/proc/{process}/stat").rpartition(b")")[2].split()
    if len(fields) < 20:
        return 0.0
    return float(read("/proc/uptime").split()[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


class Job:
    """launch/run with its mpirun and ranks."""

    def __init__(self, arguments, ranks, folder):
        self.words = open(folder / "words", "w+b")
        command = [arguments.launch, "-np", str(ranks), "--", "--dataset", "glyphs", "--train-limit", "1000",
                   "--test-limit", "200", "--global-batch", "128", "--threads", "1", "--progress", "none",
                   "--max-steps", "400", "--timeout", str(TIMEOUT), "--output", str(folder / "run")]
        environment = dict(os.environ, DDP_TRAIN=arguments.program, XDG_CACHE_HOME=str(folder / "cache"))
        self.begin = time.monotonic()
        # Background jobs of a shell ignore INT, and their children inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.words, env=environment,
                                        start_new_session=True)
        self.seen = {}

    def mpirun(self):
        for child in children(self.process.pid):
            if read(f"/proc/{child}/comm").strip() == b"mpirun":
                return child
        return None

    def ranks(self):
        """The living processes of the ranks, by rank."""
        found = {rank_of(child): child for child in children(self.mpirun() or 0) if alive(child)}
        found.pop(None, None)
        self.seen.update(found)
        return found

    def wait(self, limit):
        """Seconds until the job ended, or None."""
        begin = time.monotonic()
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        return time.monotonic() - begin

    def lines(self):
        self.words.seek(0)
        return [line for line in self.words.read().decode(errors="replace").splitlines() if line.strip()]

    def clear(self):
        """Kills whatever is left of the job."""
        processes = list(self.seen.values()) + [self.mpirun(), self.process.pid]
        left = [p for p in self.seen.values() if alive(p)]
        for process in processes:
            if process and alive(process):
                os.kill(process, signal.SIGKILL)
        self.process.wait()
        self.words.close()
        return left


def moment(kind, life, generator):
    """Seconds after the start: a third each in starting up, training, and the end."""
    third = generator.randrange(3)
    if third == 0:
        return generator.uniform(0, 0.5 * life)
    if third == 1:
        return generator.uniform(0.3, 0.9) * life
    return generator.uniform(0.85, 1.02) * life


def trial(arguments, ranks, life, generator, folder, counts):
    """One run with one interruption; returns what was wrong with its end, or None."""
    kind = generator.choice(arguments.kinds)
    delay = moment(kind, life[ranks], generator)
    job = Job(arguments, ranks, folder)
    target = None
    target_age = 0.0
    what = kind
    try:
        time.sleep(delay)
        if kind == "signal":
            number = generator.choice([signal.SIGUSR1, signal.SIGTERM, signal.SIGINT])
            what += " " + number.name
            # Until it has executed the script, bash does not handle signals.
            while job.process.poll() is None and b"launch" not in read(f"/proc/{job.process.pid}/cmdline"):
                time.sleep(0.005)
            time.sleep(0.05)
            job.process.send_signal(number)
            limit = SIGNAL_ENDS
        else:
            while not job.ranks() and job.process.poll() is None:
                time.sleep(0.005)
            living = sorted(job.ranks().items())
            if living:
                target = generator.choice(living)
                victims = [target[1]]
                if kind == "kill":
                    victim = generator.choice(["rank", "rank", "mpirun", "all"])
                    what += " " + victim
                    if victim == "mpirun":
                        victims = [job.mpirun()]
                    elif victim == "all":
                        victims = [process for _, process in living]
                    if victim != "rank":
                        target = None
                target_age = age(victims[0]) if victims[0] else 0.0
                for process in victims:
                    try:
                        os.kill(process, signal.SIGSTOP if kind == "freeze" else signal.SIGKILL)
                    except (ProcessLookupError, TypeError):
                        target = None
            limit = TIMEOUT + FREEZE_ENDS if kind == "freeze" else KILL_ENDS
        seconds = job.wait(limit * arguments.patience)
        code = job.process.poll()
        lines = job.lines()
        counts[f"{what}: {'hangs' if code is None else code}"] += 1
        where = f"{what} after {delay:.2f} of {life[ranks]:.2f} s, {ranks} ranks, target {target}"
        if seconds is None:
            return f"{where}: has not ended after {limit} s: {lines}"
        if code == 0:
            return None
        if kind == "signal":
            if code != 75:
                return f"{where}: exit code {code}: {lines}"
        elif kind == "freeze":
            if code != 7 or target is None:
                return f"{where}: exit code {code}: {lines}"
            named = re.compile(rf"\brank {target[0]}\b|\bprocess {target[1]}\b")
            blamed = [line for line in lines if "stopped" in line]
            if not blamed or not any(named.search(line) for line in blamed):
                return f"{where}: nothing names the rank: {lines}"
        elif target is not None:
            last = lines[-1] if lines else ""
            named = rf"rank {target[0]} on host \S+ was ended"
            if target_age < STARTING * arguments.patience:
                named += "|mpirun or a rank was ended|one was ended"
            if not re.search(rf"({named}) by signal 9 \(KILL\)", last):
                return f"{where}: exit code {code}, the last line does not name it: {lines}"
        return None
    finally:
        left = job.clear()
        if left and kind != "freeze":
            counts["ranks left behind"] += len(left)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("launch")
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=["freeze", "kill", "signal"])
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[2, 3, 4])
    parser.add_argument("--patience", type=float, default=1, help="factor of all limits, for a machine under load")
    arguments = parser.parse_args()
    arguments.program = os.path.abspath(arguments.program)
    generator = random.Random(arguments.seed)
    print(f"seed {arguments.seed}")
    counts = collections.Counter()
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        life = {}
        for ranks in arguments.ranks:
            for _ in range(2):  # the second run uses the plan from the cache
                job = Job(arguments, ranks, folder)
                seconds = job.wait(120)
                if seconds is None or job.process.returncode != 0:
                    sys.exit(f"an undisturbed run of {ranks} ranks fails: {job.lines()}")
                life[ranks] = seconds
                job.clear()
                shutil.rmtree(folder / "run")
        for _ in range(arguments.count):
            problem = trial(arguments, generator.choice(arguments.ranks), life, generator, folder, counts)
            if problem:
                wrong.append(problem)
                print("FAILED: " + problem, flush=True)
            shutil.rmtree(folder / "run", ignore_errors=True)
    for what, count in sorted(counts.items()):
        print(f"{count:6}  {what}")
    print(f"{arguments.count} interruptions, {len(wrong)} with a wrong end")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
