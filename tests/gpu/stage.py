"""Shared by the stages of tests/gpu/run: starts programs with a time limit and stores each result immediately.

    stage = Stage("first", machine, results, limit=480)
    stage.check("devices", lambda check: check.expect(check.ddp(["devices"], seconds=60)))

A check is a function that takes a Check, starts programs with it and returns the line to show; it fails by raising
Failed. A program that exceeds its time limit is killed with all of its children.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time


class Failed(Exception):
    """A failed check; the message is one line."""


@dataclasses.dataclass
class Ended:
    """How a program ended."""
    command: list
    code: int
    stdout: str
    stderr: str
    timed_out: bool

    @property
    def output(self):
        return self.stdout + self.stderr

    def last_line(self):
        for text in (self.stderr, self.stdout):
            lines = [line for line in text.splitlines() if line.strip()]
            if lines:
                return lines[-1].strip()
        return "no output"


@dataclasses.dataclass
class Machine:
    """Paths of programs, scripts and results. `environment` is for our own programs; other programs get os.environ."""
    root: pathlib.Path         # parent of configs and bench
    program: pathlib.Path      # ddp_train
    operators: pathlib.Path    # the operators' tests
    describe: pathlib.Path     # describe_gpu
    pair: pathlib.Path         # nccl_pair
    reference: dict            # from tests/gpu/reference; {} if there is none
    data: pathlib.Path | None  # folder of the data sets, if any
    python: str                # a Python with PyTorch
    environment: dict
    out: pathlib.Path


class Results:
    """Writes results immediately: results.jsonl for programs, summary.txt for people, log.txt with all output."""

    def __init__(self, out):
        self.out = out
        self.passed = self.failed = 0
        self.lock = threading.Lock()
        for name in ("results.jsonl", "summary.txt", "log.txt"):
            (out / name).write_text("", encoding="utf-8")

    def _append(self, name, text):
        with open(self.out / name, "a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def log(self, text):
        with self.lock:
            self._append("log.txt", text)

    def add(self, stage, name, ok, seconds, detail, figures):
        with self.lock:
            self.passed += ok
            self.failed += not ok
            result = {"stage": stage, "check": name, "ok": ok, "seconds": round(seconds, 1), "detail": detail, **figures}
            self._append("results.jsonl", json.dumps(result) + "\n")
            line = f"{'ok    ' if ok else 'FAILED'}  {stage}: {name} ({seconds:.1f} s)" + (f": {detail}" if detail else "")
            self._append("summary.txt", line + "\n")
            print(line, flush=True)


def run_program(command, seconds, environment=None, cwd=None, stdin=None):
    """Runs a command in its own process group, which is killed as a whole after the time limit."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(command, stdout=out, stderr=err, stdin=stdin or subprocess.DEVNULL, cwd=cwd,
                                       env=environment, start_new_session=True)
        except OSError as error:
            return Ended(command, 127, "", f"{command[0]}: {error.strerror}", False)
        timed_out = False
        try:
            process.wait(timeout=max(0.1, seconds))
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            # Also processes left behind by a program that has ended.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
        return Ended(command, process.returncode, texts[0], texts[1], timed_out)


class Check:
    """One check of a stage: starts programs and collects figures for results.jsonl."""

    def __init__(self, stage, name):
        self.stage = stage
        self.machine = stage.machine
        self.name = name
        self.figures = {}
        self.scratch = stage.scratch / "".join(c if c.isalnum() else "-" for c in name)
        self.scratch.mkdir(parents=True, exist_ok=True)

    def run(self, command, seconds, environment=None):
        """Runs a command for at most `seconds`, limited by the time that the stage has left."""
        ended = run_program([str(word) for word in command], min(seconds, self.stage.left()), environment,
                            cwd=self.machine.root)
        self.stage.results.log(f"\n==== {self.stage.name}: {self.name}: {' '.join(ended.command)}\n{ended.output}\n"
                               f"==== code {ended.code}{', killed: out of time' if ended.timed_out else ''}\n")
        return ended

    def ours(self, command, seconds, **variables):
        """The same for our own programs."""
        return self.run(command, seconds, {**self.machine.environment, **variables})

    def ddp(self, arguments, seconds, ranks=1, **variables):
        launch = ["mpirun", "-q", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
        return self.ours([*launch, str(self.machine.program), *arguments], seconds, **variables)

    @staticmethod
    def expect(ended, code=0):
        if ended.timed_out:
            raise Failed(f"did not end in time: {' '.join(ended.command[:12])} ...")
        if ended.code != code:
            raise Failed(f"exit code {ended.code} in place of {code}: {ended.last_line()}")
        return ended

    def folder(self, name):
        """The path of an output folder that does not exist yet."""
        path = self.scratch / name
        shutil.rmtree(path, ignore_errors=True)
        return path


class Stage:
    """Runs checks one after the other, or several at once, within the stage's time limit; those that do not fit have failed."""

    def __init__(self, name, machine, results, limit, scratch, only=""):
        """`only`: a regular expression; other checks are skipped."""
        self.name = name
        self.only = re.compile(only)
        self.machine = machine
        self.results = results
        self.deadline = time.monotonic() + limit
        self.scratch = scratch / name

    def left(self):
        return self.deadline - time.monotonic()

    def share(self, most, later):
        """Up to `most` seconds of the stage's remaining time, of which `later` are reserved for the checks to come."""
        return max(1, min(most, self.left() - later))

    def check(self, name, function):
        if not self.only.search(name):
            return True
        if self.left() < 1:
            self.results.add(self.name, name, False, 0, "not started: the stage's time is over", {})
            return False
        begin = time.monotonic()
        check = Check(self, name)
        try:
            detail, ok = function(check) or "", True
        except Failed as failure:
            detail, ok = str(failure), False
        except Exception as error:  # pylint: disable=broad-except  # an error in one check must not end the others
            detail, ok = f"the check itself failed: {type(error).__name__}: {error}", False
        self.results.add(self.name, name, ok, time.monotonic() - begin, detail, check.figures)
        return ok

    def check_together(self, checks, at_once):
        """Runs checks [(name, function)] that measure no time, several at once."""
        waiting = list(checks)
        lock = threading.Lock()

        def work():
            while True:
                with lock:
                    if not waiting:
                        return
                    name, function = waiting.pop(0)
                self.check(name, function)

        threads = [threading.Thread(target=work) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
