"""Shared by the scripts: starting each side on its cores, reading its line of JSON, and tables."""

import contextlib
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Those that pytorch_step.py takes from torchvision.
TORCHVISION = ["alexnet", "convnext-tiny", "densenet121", "efficientnet-b0", "mobilenet-v3-large", "mobilenet-v3-small", "resnet18",
               "resnet34", "shufflenet-v2", "squeezenet1-1", "vgg11", "vgg11-bn", "vgg16", "vgg16-bn", "wide-resnet50-2"]
DEFAULT_BATCH = {"lenet": 256, "mnist-slim": 128, "mnist-towers": 128, "caffe-lenet": 64, "resnet18-d2l": 64,
                 "cifar10-tutorial": 128, "resnet9": 32, "mobilenet-v2": 16, "resnet50": 16,
                 **{model: 16 for model in TORCHVISION}}
# Height and width of the colour images of a model; other models use the built-in data set, 28x28 greyscale.
COLOUR_SIZE = {"cifar10-tutorial": 24, "resnet9": 32, "mobilenet-v2": 224, "resnet50": 224,
               **{model: 224 for model in TORCHVISION}}
# What hides all instructions beyond a set from ddp_train with its oneDNN, and from PyTorch with its libraries and compiler.
INSTRUCTION_SETS = {
    "avx2": {"DDP_INSTRUCTION_SET": "avx2+onednn", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
             "MKL_ENABLE_INSTRUCTIONS": "AVX2", "TORCHINDUCTOR_CPP_MARCH": "x86-64-v3"},
}


def fail(message, code=3):
    print(f"{pathlib.Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(code)


def cores(ranks, first=0):
    """`ranks` of the cores that this process may use, starting with number `first`, in the syntax of taskset."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < first + ranks:
        fail(f"{first + ranks} ranks need a core each, but only {len(allowed)} are available")
    return ",".join(str(core) for core in allowed[first:first + ranks])


def utc():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def cpu_info(key):
    """What /proc/cpuinfo says of the first core, or "" if it does not know that key."""
    found = re.search(rf"^{key}\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def processor_name():
    """Its name without trade marks: "Intel Xeon Processor"."""
    return re.sub(r"[(].*?[)]", "", cpu_info("model name")).strip() or platform.machine()


def processor():
    """Family and model of the processor, since its name may say neither: "family 25 model 17"."""
    family, model = cpu_info("cpu family"), cpu_info("model")
    return f"family {family} model {model}" if family and model else platform.machine()


def machine():
    """The processor as the pages of figures name it: "AMD EPYC, family 25 model 17"."""
    return f"{processor_name()}, {processor()}"


def keep(file, record):
    """Appends a record to a file of bench/results/, from which bench/tables writes the pages of figures."""
    path = ROOT / "bench" / "results" / file
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"date": utc()[:10], "machine": machine(), **record}, ensure_ascii=False) + "\n")
    print(f"kept in {path}")


def fail_with_last_line(what, code, *outputs):
    """Exits with the last line of the first non-empty output of a command."""
    said = next((output.strip() for output in outputs if output.strip()), "no output")
    fail(f"{what} ended with code {code}: {said.splitlines()[-1]}", 1)


def run_json(command, what, environment=None, seconds=None):
    """Runs the command and returns the JSON object in the last line of its standard output. After so many seconds, if given, it
    is killed with all its processes, and subprocess.TimeoutExpired is raised."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                          start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    lines = out.strip().splitlines()
    if process.returncode == 0 and lines:
        try:
            return json.loads(lines[-1])
        except json.JSONDecodeError:
            pass
    return fail_with_last_line(what, process.returncode, err, out)


def find_program(ranks):
    """The path of ddp_train; checks that mpirun exists if it is needed."""
    program = os.environ.get("DDP_TRAIN", str(ROOT / "build/release/src/ddp_train"))
    if not os.access(program, os.X_OK):
        fail(f"program {program} not found; run launch/build first, or set DDP_TRAIN")
    if ranks > 1 and shutil.which("mpirun") is None:
        fail("mpirun not found; run launch/setup first")
    return program


def data_options(model):
    """The options that give ddp_train images of the model's size."""
    side = COLOUR_SIZE.get(model)
    return [] if side is None else ["--dataset", "synthetic", "--image-size", str(side)]


def bench_command(program, model, ranks, batch, precision, data, first=0):
    """The command that times the training step of ddp_train, and its environment; `data` from data_options(), `first`
    as for cores()."""
    command = ["taskset", "-c", cores(ranks, first)]
    environment = dict(os.environ)
    if ranks > 1:
        command += ["mpirun", "--quiet", "--bind-to", "none", "-np", str(ranks)]
        environment.setdefault("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
        if os.geteuid() == 0:
            environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command += [program, "bench", "--model", model, "--global-batch", str(batch), "--precision", precision,
                "--lr", "0.01", "--momentum", "0.9", "--threads", "1", *data]
    return command, environment


def ddp_train(*args):
    """Samples per second of the training step of ddp_train; arguments as for bench_command()."""
    command, environment = bench_command(*args)
    return run_json(command, "ddp_train bench", environment)["samples_per_second"]


class WaitingBench:
    """A ddp_train process that times its training step for a third of a second on request.

    with WaitingBench(program, "lenet", 2, 256, "fp32", []) as ranks:
        ranks.ask()
        print(ranks.answer(), "samples per second")
    """

    def __init__(self, *args):
        """Arguments as for bench_command()."""
        command, environment = bench_command(*args)
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.process = subprocess.Popen([*command, "--on-request"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, env=environment)
        # The first answer comes after kernels are chosen and warmed up; only then the next process may start choosing its own.
        self.ask()
        self.answer()

    def ask(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("\n")
            self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.errors.seek(0)
            fail_with_last_line("ddp_train bench", code, self.errors.read())
        return json.loads(line)["samples_per_second"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def warn_when_busy():
    """Warns if the cores are busy with other work, which makes the results unreliable."""

    def ticks():
        with open("/proc/stat", encoding="ascii") as stat:
            fields = [int(field) for field in stat.readline().split()[1:9]]
        return fields[3] + fields[4], sum(fields)

    idle, total = ticks()
    time.sleep(1)
    idle_later, total_later = ticks()
    busy = 100 - 100 * (idle_later - idle) // max(1, total_later - total)
    if busy > 10:
        print(f"warning: the cores of this machine are {busy} % busy with other work; measure again when they are not",
              file=sys.stderr)


def measure_in_turn(rounds, sides):
    """Calls the functions of all (title, function returning samples per second) in turn, alternating the order; prints a row
    per round and the medians, and returns the speeds of the rounds by title."""
    titles = [title for title, _ in sides]
    widths = [max(len(title), 10) for title in titles]

    def print_row(label, values):
        cells = "  ".join(f"{value:>{width}}" for value, width in zip(values, widths))
        print(f"{label:>5}  {cells}", flush=True)

    print_row("round", titles)
    speeds = {title: [] for title in titles}
    for number in range(rounds):
        for title, function in sides if number % 2 == 0 else sides[::-1]:
            speeds[title].append(function())
        print_row(number + 1, [f"{speeds[title][-1]:.1f}" for title in titles])
    print_row("mid.", [f"{statistics.median(speeds[title]):.1f}" for title in titles])
    return speeds
