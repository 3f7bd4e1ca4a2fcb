"""Stages `speed`, `compile` and `variants`: the same training steps in ddp_train and in PyTorch, alternating, and the time of each kernel.

torch.compile takes minutes for a deep network, so it has its own stage; so have other precisions and ways to start kernels. In
each, the most important checks come first, and each leaves enough time for the rest.
"""

import csv
import io
import json
from functools import partial

import training
from stage import Failed
from stage_first import BENCHES, bench

# Time limit of a check in seconds; see Stage.share().
OURS, THEIRS, KERNELS = 100, 80, 120
TRACED = 12  # steps in a trace
LEAST = 15  # reserved for each check to come

# For torch.compile, fastest to compile first.
COMPILED = {"lenet": 100, "resnet18-d2l": 200, "mobilenet-v2": 240, "resnet50": 400}


# Beside bf16.
OTHER_PRECISIONS = {"lenet": ["fp32", "tf32"]}
# Also without kernels that start early (programmatic dependent launch).
WITHOUT_EARLY = ["lenet", "resnet50"]


def pytorch(check, name, mode, precision, seconds):
    batch = BENCHES[name][BENCHES[name].index("--global-batch") + 1]
    ended = check.run([check.machine.python, check.machine.root / "bench/pytorch_step.py", "--device", "cuda", "--model",
                       name, "--batch", batch, "--precision", precision, "--mode", mode, "--seconds", "0.3", "--repeats", "5",
                       "--optimizer", "fused", *(["--channels-last", "on"] if mode == "compile" else [])], seconds)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{") and line.endswith("}")]
    # A run that was interrupted has printed its best result so far.
    if not (ended.timed_out and lines):
        check.expect(ended)
    line = json.loads(lines[-1])
    check.figures.update(bench=name, precision=precision, pytorch=line["version"], mode=mode,
                         images_per_second=line["samples_per_second"], complete=line["complete"])
    said = f"{line['samples_per_second']:,.0f} images/s"
    return said if line["complete"] else f"{said}, the best within {seconds:.0f} s, in the compiler's mode '{line['compiled']}'"


def ours_of(name, seconds, precision="bf16", early=True):
    def run(check):
        line = bench(check, name, precision, seconds=seconds, **({} if early else {"DDP_EARLY_KERNELS": "off"}))
        if not early:
            check.figures.update(early="off")
        return f"{line['samples_per_second']:,.0f} images/s, {line['step_ms']:.3f} ms a step"

    return run


def theirs_of(name, mode, seconds, precision="bf16"):
    return lambda check: pytorch(check, name, mode, precision, seconds)


def traced_kernels_of(name, seconds):
    """Kernels of a step as the trace of the run shows them, in recorded steps: how often, and microseconds, by name."""

    def run(check):
        folder = check.folder("run")
        check.expect(check.ddp([*BENCHES[name], "--train-limit", "3072", "--test-limit", "32", "--max-steps", str(TRACED),
                                "--device", "cuda", "--precision", "bf16", "--momentum", "0.9", "--lr", "0.001", "--progress",
                                "none", "--checkpoint-every", "0", "--trace", "--output", str(folder)], seconds))
        spans = sorted(training.trace_spans(folder)[1], key=lambda span: span["ts"])
        begins = [i for i, span in enumerate(spans) if "load_input_kernel" in span["name"]]
        if len(begins) < TRACED:
            raise Failed(f"{len(begins)} steps are in the trace in place of {TRACED}")
        # The first steps load libraries; after the last one comes an evaluation.
        steps = range(TRACED // 2, TRACED - 1)
        inside = spans[begins[steps[0]]:begins[steps[-1] + 1]]
        sums = {}
        for span in inside:
            count, time = sums.get(span["name"], (0, 0.0))
            sums[span["name"]] = (count + 1, time + span["dur"])
        with open(check.machine.out / f"trace-{name}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["kernel", "launches", "microseconds"])
            for kernel, (count, time) in sorted(sums.items(), key=lambda item: -item[1][1]):
                writer.writerow([kernel, f"{count / len(steps):g}", f"{time / len(steps):.1f}"])
        step = (spans[begins[steps[-1] + 1]]["ts"] - inside[0]["ts"]) / len(steps)
        busy = sum(span["dur"] for span in inside) / len(steps)
        check.figures.update(bench=name, traced_kernels=len(inside) / len(steps), busy_us=busy, step_us=step)
        return f"{len(inside) / len(steps):g} kernels and copies take {busy:,.0f} us of a step of {step:,.0f} us"

    return run


def plan_of(name, seconds):
    def run(check):
        ended = check.expect(check.ddp(["plan", *BENCHES[name], "--device", "cuda", "--precision", "bf16"], seconds))
        (check.machine.out / f"plan-{name}.txt").write_text(ended.stdout, encoding="utf-8")

    return run


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


def kernels_of(name, seconds):
    def run(check):
        arguments = [str(check.machine.program), *BENCHES[name], "--train-limit", "1024", "--test-limit", "32",
                     "--max-steps", "3", "--device", "cuda", "--precision", "bf16", "--cuda-graph", "off", "--momentum",
                     "0.9", "--lr", "0.001", "--progress", "none", "--output", str(check.folder("run"))]
        # The clocks are left as they are; the plan was timed before, so no trial of a kernel is recorded.
        ended = check.expect(check.ours(["ncu", "--clock-control", "none", "--cache-control", "none", "--metrics",
                                         f"{TIME},{READ},{WRITTEN}", "--csv", *arguments], seconds))
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


def in_shares(stage, checks):
    """Runs checks [(name, limit in seconds, seconds -> function)] one after the other, each with its share of the time."""
    checks = [check for check in checks if stage.only.search(check[0])]
    for place, (name, most, function) in enumerate(checks):
        stage.check(name, function(stage.share(most, LEAST * (len(checks) - place - 1))))


def run(stage):
    checks = []
    for name in BENCHES:
        checks.append((f"ddp_train {name}", OURS, partial(ours_of, name)))
        checks += [(f"PyTorch {name}, {mode}", THEIRS, partial(theirs_of, name, mode)) for mode in ("eager", "graph")]
        checks.append((f"ddp_train {name} again", OURS, partial(ours_of, name)))
    for name in BENCHES:
        checks += [(f"plan of {name}", OURS, partial(plan_of, name)),
                   (f"trace of {name}", OURS, partial(traced_kernels_of, name))]
    checks += [(f"kernels of {name}", KERNELS, partial(kernels_of, name)) for name in BENCHES]
    in_shares(stage, checks)


def run_compile(stage):
    checks = []
    for name, most in COMPILED.items():
        checks.append((f"ddp_train {name} beside torch.compile", OURS, partial(ours_of, name)))
        checks.append((f"PyTorch {name}, compile", most, partial(theirs_of, name, "compile")))
    in_shares(stage, checks)


def run_variants(stage):
    checks = [(f"ddp_train {name} without early kernels", OURS, partial(ours_of, name, early=False)) for name in WITHOUT_EARLY]
    for name, precisions in OTHER_PRECISIONS.items():
        for precision in precisions:
            checks.append((f"ddp_train {name} in {precision}", OURS, partial(ours_of, name, precision=precision)))
            checks += [(f"PyTorch {name} in {precision}, {mode}", THEIRS, partial(theirs_of, name, mode, precision=precision))
                       for mode in ("eager", "graph")]
    in_shares(stage, checks)
