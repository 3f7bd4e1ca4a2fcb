"""Stage `faults`: memory errors and races, determinism, stop and resume, limits of memory, NCCL's failures, accuracy."""

import os
import pathlib
import re
import signal
import subprocess
import time

import training
from stage import Failed
from stage_first import SMALL

EXACT = ["--deterministic", "--logical-shards", "4", "--max-steps", "24"]


def train(check, name, arguments, ranks=1, seconds=100, code=0, **variables):
    folder = check.folder(name)
    ended = check.ddp([*SMALL, "--device", "cuda", *arguments, "--output", str(folder)], seconds, ranks, **variables)
    check.expect(ended, code)
    return folder, ended


def sanitize(tool, command):
    def run(check):
        ended = check.ours(["compute-sanitizer", "--tool", tool, "--target-processes", "all", "--kernel-name", "kns=ddp",
                            "--error-exitcode", "99", "--print-limit", "20", *command(check)], 200)
        if "Sanitizer failed to handle" in ended.output:
            raise Failed("compute-sanitizer itself failed; see log.txt")
        errors = re.findall(r"ERROR SUMMARY: (\d+) error", ended.output) or re.findall(
            r"RACECHECK SUMMARY: (\d+) hazard", ended.output)
        if ended.timed_out:
            raise Failed("did not end in time")
        if not errors:
            raise Failed(f"no summary: {ended.last_line()}")
        if ended.code == 99 or any(int(count) > 0 for count in errors):
            raise Failed(f"{'+'.join(errors)} errors; see log.txt")
        check.expect(ended)
        return "no errors in kernels of our own"

    return run


def operators_command(check):
    return [check.machine.operators, "--gtest_filter=*SimpleOperators*:*Softmax*:*Flat*:*Update*:*Muon*:*Input*"]


def convolutions_command(check):
    return [check.machine.operators, "--gtest_filter=*Operators.Conv*:*Operators.Linear*:*Golden*"]


def training_command(check):
    # racecheck of CUDA 13.0 fails inside a replayed graph ("failed to handle a hardware exception"), and on an H100 and an
    # H200 without one too, in kernels of cuDNN.
    return [check.machine.program, *SMALL, "--device", "cuda", "--precision", "bf16", "--cuda-graph", "off", "--max-steps",
            "3", "--output", check.folder("run")]


def repeats(check):
    a, _ = train(check, "a", EXACT)
    b, _ = train(check, "b", EXACT)
    training.same_tensors(a, b)
    return "the same bytes"


def one_and_two_ranks(check):
    a, _ = train(check, "a", EXACT)
    b, _ = train(check, "b", [*EXACT, "--oversubscribe-gpus"], ranks=2)
    training.same_tensors(a, b)
    return "the same bytes"


def graph_and_none(check):
    a, _ = train(check, "a", EXACT)
    b, _ = train(check, "b", [*EXACT, "--cuda-graph", "off"])
    training.same_tensors(a, b)
    return "the same bytes"


def one_in_flight_and_many(check):
    # Images that are jittered come from the host, in a copy beside the steps before; others lie on the GPU.
    for way, source in (("resident", []), ("streamed", ["--color-jitter", "0.2,0.2,0"])):
        a, _ = train(check, f"{way}-a", [*EXACT, *source, "--steps-in-flight", "1"])
        for name, more in (("b", ["8"]), ("c", ["3", "--cuda-graph", "off"])):
            b, _ = train(check, f"{way}-{name}", [*EXACT, *source, "--steps-in-flight", *more])
            training.same_tensors(a, b)
    return "the same bytes"


def non_finite_in_flight(check):
    """The step that is named, and what is kept of it, do not depend on the steps that have begun behind it."""
    seen = set()
    for in_flight in ("1", "4"):
        folder, ended = train(check, in_flight, [*EXACT, "--lr", "1e6", "--steps-in-flight", in_flight], code=6)
        said = re.search(r"step (\d+) \(epoch \d+\): the (loss|gradient) is not finite, [^;]*", ended.output)
        if not said:
            raise Failed(f"no step is named: {ended.last_line()}")
        kept = folder / f"nonfinite-{said[1]}"
        seen.add((said[0], *[(kept / file).read_bytes() for file in ("weights.safetensors", "pixels.bin")]))
    if len(seen) != 1:
        raise Failed("another step is named or kept with steps in flight")
    return said[0]


def resumed(check):
    a, _ = train(check, "a", EXACT)
    b, _ = train(check, "b", [*EXACT[:-1], "5"])
    check.expect(check.ddp([*SMALL, "--device", "cuda", "--oversubscribe-gpus", *EXACT, "--output", str(b), "--resume",
                            "auto"], 100, ranks=2))
    training.same_tensors(a, b)
    return "the same bytes after 5 steps on one rank and the rest on two"


class LongRun:
    """A training run in the background that has completed its first steps."""

    def __init__(self, check, arguments, ranks=1, **variables):
        self.folder = check.folder("long")
        command = ["mpirun", "-q", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), str(check.machine.program),
                   *SMALL, "--device", "cuda", "--epochs", "1000000", "--checkpoint-every", "0", "--output",
                   str(self.folder), *arguments]
        self.said = open(check.scratch / "long.txt", "w+", encoding="utf-8")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said,
                                        cwd=check.machine.root, env={**check.machine.environment, **variables})
        for _ in range(600):
            if self.process.poll() is not None:
                raise Failed(f"the run ended with code {self.process.returncode}: {self.output()[-300:]}")
            if (self.folder / "metrics.jsonl").exists() and len(training.losses(self.folder)) >= 20:
                return
            time.sleep(0.1)
        self.kill()
        raise Failed("the run did not begin within a minute")

    def output(self):
        self.said.seek(0)
        return self.said.read()

    def children(self):
        """The processes that mpirun started."""
        pid = self.process.pid
        try:
            return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
        except FileNotFoundError:
            return []

    def kill(self):
        for pid in self.children():
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Stops the run by SIGUSR1 with code 75; returns how. One mpirun was seen that does not forward the signal."""
        self.process.send_signal(signal.SIGUSR1)
        try:
            self.process.wait(10)
            how = "SIGUSR1 to mpirun"
        except subprocess.TimeoutExpired:
            for pid in self.children():
                os.kill(pid, signal.SIGUSR1)
            how = "SIGUSR1 to the rank, as mpirun did not pass it on"
        self.ends_with(75)
        return how

    def ends_with(self, code, seconds=40):
        try:
            got = self.process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise Failed(f"the run did not end within {seconds} s") from error
        if got != code:
            raise Failed(f"exit code {got} in place of {code}: {self.output()[-300:]}")


def stops_on_request(check):
    run = LongRun(check, [])
    how = run.stop()
    if not (run.folder / "latest" / "state.json").exists():
        raise Failed("no checkpoint was saved")
    return f"saved and ended with 75 by {how}"


def gpu_memory_used(check):
    ended = check.expect(check.run(["nvidia-smi", "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits"], 30))
    return [int(value) for value in ended.stdout.splitlines()[0].split(",")]


def memory_cap(check):
    """Two jobs share a GPU: each allocates what its plan needs, within its share."""
    before, total = gpu_memory_used(check)
    run = LongRun(check, ["--gpu-memory-fraction", "0.4"])
    try:
        during, _ = gpu_memory_used(check)
    finally:
        run.stop()
    check.figures.update(memory_before=before, memory_during=during, memory_total=total)
    said = f"{during - before} MiB of {total} MiB during the run"
    if (during - before) > 0.4 * total:
        raise Failed(said)
    return said


def small_memory(check):
    _, ended = train(check, "a", ["--gpu-memory-limit", "1MiB"], code=5)
    if "error: " not in ended.stderr:
        raise Failed("no error line")
    return ended.last_line()


def sharing_refused(check):
    ended = check.expect(check.ddp(["check", "--device", "cuda", "--gpus", "0"], 60, ranks=2), 3)
    return ended.last_line()


def nccl_pair(check, how):
    """Two ranks on one GPU that claim to be on two hosts, since NCCL would otherwise reject them."""
    each = []
    for rank in range(2):
        each += ([":"] if rank else []) + ["-np", "1", "-x", f"NCCL_HOSTID=host{rank}", "-x", "NCCL_SOCKET_IFNAME=lo",
                                           str(check.machine.pair), how]
    return check.ours(["mpirun", "-q", "--oversubscribe", "--bind-to", "none", *each], 60)


def nccl_sums(check):
    return check.expect(nccl_pair(check, "sums")).last_line()


def nccl_aborts(check):
    begin = time.monotonic()
    ended = nccl_pair(check, "hang")
    if ended.timed_out or ended.code != 7:
        raise Failed(f"code {ended.code}: {ended.last_line()}")
    return f"code 7 after {time.monotonic() - begin:.0f} s: {ended.last_line()}"


def killed_rank(check):
    """After a rank is killed the job ends within seconds."""
    run = LongRun(check, ["--oversubscribe-gpus"], ranks=2)
    children = run.children()
    if not children:
        run.kill()
        raise Failed("no ranks were found")
    begin = time.monotonic()
    os.kill(children[-1], signal.SIGKILL)
    try:
        run.process.wait(20)
    except subprocess.TimeoutExpired as error:
        run.kill()
        raise Failed("the job went on for 20 s") from error
    if run.process.returncode == 0:
        raise Failed("the job ended with 0")
    return f"ended with {run.process.returncode} after {time.monotonic() - begin:.1f} s"


def accuracy_of(config, tolerance, expected, *arguments, seconds=120):
    def run(check):
        wanted = check.machine.reference.get("accuracy", {}).get(config, expected)
        folder = check.folder("run")
        check.expect(check.ddp(["--config", config, "--device", "cuda", "--output", str(folder), "--progress", "none",
                                *arguments], seconds))
        reached, time_of_epoch = training.accuracies(folder)[-1], training.epoch_seconds(folder)
        check.figures.update(config=config, arguments=list(arguments), accuracy=reached, expected=wanted,
                             epoch_seconds=time_of_epoch)
        said = f"{reached:.4f} (CPU {wanted:.4f}), {min(time_of_epoch):.2f} s an epoch"
        if not reached >= wanted - tolerance:
            raise Failed(said)
        return said

    return run


def run(stage):
    stage.check("deterministic: two runs", repeats)
    stage.check("deterministic: CUDA graph and none", graph_and_none)
    stage.check("deterministic: one rank and two", one_and_two_ranks)
    stage.check("deterministic: one step in flight and many", one_in_flight_and_many)
    stage.check("deterministic: a step that is not finite, with others in flight", non_finite_in_flight)
    stage.check("deterministic: stopped and resumed on two ranks", resumed)
    stage.check("USR1 saves and stops", stops_on_request)
    stage.check("a killed rank ends the job", killed_rank)
    stage.check("too little memory is refused", small_memory)
    stage.check("the share of memory is kept", memory_cap)
    stage.check("two ranks on one GPU are refused", sharing_refused)
    stage.check("NCCL: two ranks on one GPU as on two hosts", nccl_sums)
    stage.check("NCCL: a rank that never comes is named, and NCCL aborted", nccl_aborts)
    stage.check("training: quickstart", accuracy_of("configs/quickstart.cfg", 0.01, 0.983))
    data = stage.machine.data
    if data is not None and (data / "fashion-mnist").is_dir():
        for precision in ("fp32", "bf16"):
            stage.check(f"training: LeNet on Fashion-MNIST, {precision}",
                        accuracy_of("configs/lenet-fashion-mnist-90.cfg", 0.01, 0.9077, "--data-dir", str(data),
                                    "--precision", precision))
    if data is not None and (data / "cifar-10-batches-bin").is_dir():
        stage.check("training: ResNet-9 on CIFAR-10, bf16",
                    accuracy_of("configs/resnet9-cifar10.cfg", 0.01, 0.8738, "--data-dir", str(data), "--precision", "bf16",
                                "--workers", "12", seconds=240))
        # 0.94 on the original pixels, 0.907 on those of JPEG files.
        stage.check("training: cifar10-94", accuracy_of("configs/cifar10-94.cfg", 0.005, 0.907, "--data-dir", str(data)))
    stage.check("memcheck: training steps", sanitize("memcheck", training_command))
    stage.check("racecheck: training steps", sanitize("racecheck", training_command))
    stage.check("memcheck: operators", sanitize("memcheck", operators_command))
    stage.check("racecheck: operators", sanitize("racecheck", operators_command))
    stage.check("memcheck: convolutions and linear layers", sanitize("memcheck", convolutions_command))
