"""Stage `speed`: the same training steps in ddp_train and in PyTorch, in turn, and where a step's time goes."""

import csv
import io
import json

from stage import Failed
from stage_first import BENCHES, bench

MODES = {"eager": 100, "graph": 100, "compile": 200}  # PyTorch's, with their time limits in seconds


def pytorch(check, name, mode, seconds):
    batch = BENCHES[name][BENCHES[name].index("--global-batch") + 1]
    ended = check.run([check.machine.python, check.machine.root / "bench/pytorch_step.py", "--device", "cuda", "--model",
                       name, "--batch", batch, "--precision", "bf16", "--mode", mode, "--seconds", "0.3", "--repeats", "5",
                       "--optimizer", "fused", *(["--channels-last", "on"] if mode == "compile" else [])], seconds)
    check.expect(ended)
    line = json.loads(ended.stdout.strip().splitlines()[-1])
    check.figures.update(bench=name, precision="bf16", pytorch=line["version"], mode=mode,
                         images_per_second=line["samples_per_second"])
    return line["samples_per_second"]


def ours_of(name):
    def run(check):
        line = bench(check, name, "bf16")
        return f"{line['samples_per_second']:,.0f} images/s, {line['step_ms']:.3f} ms a step"

    return run


def theirs_of(name, mode, seconds):
    return lambda check: f"{pytorch(check, name, mode, seconds):,.0f} images/s"


UNITS = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1, "us": 1, "msecond": 1e3, "ms": 1e3, "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6,
         "Gbyte": 1e9}
TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"


def kernels_in(text):
    """[{kernel, microseconds, bytes}] in the order of launches, from the CSV that ncu prints."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    kernels = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        kernel = kernels.setdefault(row["ID"], {"kernel": row["Kernel Name"], "grid": row["Grid Size"]})
        kernel[row["Metric Name"]] = float(row["Metric Value"].replace(",", "")) * UNITS.get(row["Metric Unit"], 1)
    return [{"kernel": k["kernel"], "grid": k["grid"], "microseconds": k[TIME], "bytes": k[READ] + k[WRITTEN]}
            for k in kernels.values()]


def last_step(kernels):
    """The kernels of the last step that is complete: each begins with the input."""
    begins = [i for i, k in enumerate(kernels) if "load_input_kernel" in k["kernel"]]
    if len(begins) < 3:
        raise Failed(f"{len(begins)} steps were recorded, 3 are needed")
    # After the last training step comes an evaluation, which reads input too; the second is a training step.
    return kernels[begins[1]:begins[2]]


def kernels_of(name):
    def run(check):
        arguments = [str(check.machine.program), *BENCHES[name], "--train-limit", "1024", "--test-limit", "32",
                     "--max-steps", "3", "--device", "cuda", "--precision", "bf16", "--cuda-graph", "off", "--momentum",
                     "0.9", "--lr", "0.001", "--progress", "none", "--output", str(check.folder("run"))]
        # The clocks stay as they are; a plan was timed before, so that no trial of a kernel is recorded.
        ended = check.expect(check.ours(["ncu", "--clock-control", "none", "--cache-control", "none", "--metrics",
                                         f"{TIME},{READ},{WRITTEN}", "--csv", *arguments], 120))
        kernels = last_step(kernels_in(ended.stdout))
        with open(check.machine.out / f"kernels-{name}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["kernel", "grid", "microseconds", "bytes"])
            writer.writeheader()
            writer.writerows(kernels)
        microseconds = sum(k["microseconds"] for k in kernels)
        moved = sum(k["bytes"] for k in kernels)
        check.figures.update(bench=name, kernels=len(kernels), microseconds=microseconds, bytes=moved)
        return f"{len(kernels)} kernels, {microseconds:,.0f} us, {moved / 1e9:.2f} GB"

    return run


def run(stage):
    for name in BENCHES:
        stage.check(f"ddp_train {name}", ours_of(name))
        for mode in ("eager", "graph"):
            stage.check(f"PyTorch {name}, {mode}", theirs_of(name, mode, MODES[mode]))
        stage.check(f"ddp_train {name} again", ours_of(name))
    for name in BENCHES:
        stage.check(f"PyTorch {name}, compile", theirs_of(name, "compile", MODES["compile"]))
    for name in BENCHES:
        stage.check(f"kernels of {name}", kernels_of(name))
