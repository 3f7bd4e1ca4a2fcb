"""Reads bench/results/ and makes Markdown tables of it: what bench/tables puts into the pages and bench/chart.py draws.

    for row in figures.cpu_steps(figures.machine("amd-epyc-26")):
        print(row["model"], row["same"].ours, row["same"].theirs, row["same"].ratio)
"""

import json
import pathlib
import re
import statistics
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGES = ROOT / "bench" / "pages"
MODES = ["eager", "graph", "compile"]
# Copy bandwidth, as measured by a device-to-device copy (bytes read plus bytes written) and, where that is unknown, NVIDIA's
# datasheet. TB/s.
BANDWIDTH = {"H100 80GB HBM3": 3.0, "H200": 4.3}


def fail(message):
    print(f"{pathlib.Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(2)


def records(name):
    """The lines of a file of bench/results/, each an object; a line that is none is an error that names it."""
    path, found = RESULTS / name, []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            fail(f"{path}:{number}: {error}")
    return found


def document(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return fail(f"{path}: {error}")


# Tables

def table(head, rows, right=()):
    """A Markdown table with aligned columns; `right`: columns of numbers."""
    widths = [max(len(str(row[i])) for row in [head, *rows]) for i in range(len(head))]

    def line(cells):
        return "| " + " | ".join(str(c).rjust(w) if i in right else str(c).ljust(w)
                                 for i, (c, w) in enumerate(zip(cells, widths))) + " |"

    rule = ["-" * (w - 1) + ":" if i in right else "-" * w for i, w in enumerate(widths)]
    return [line(head), line(rule), *(line(row) for row in rows)]


def speed(value):
    """Images per second: about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def shown(value, form=""):
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(shown(one, form) for one in value)
    return format(value, form or ("," if isinstance(value, int) else ""))


def generic(spec):
    """`FILE key=value ... | column | column:format | ...`: the records of a file with these values, a row each. With `by=a,b`
    records that agree in these keys are one row, of the newest figure in each column."""
    source, *columns = [part.strip() for part in spec.split("|")]
    name, *conditions = re.findall(r'(?:[^\s"]|"[^"]*")+', source)
    wanted = dict(condition.replace('"', "").split("=", 1) for condition in conditions)
    keys = [key for key in wanted.pop("by", "").split(",") if key]
    rows = [record for record in records(name) if all(str(record.get(key)) == value for key, value in wanted.items())]
    if keys:
        newest = {}
        for row in rows:
            newest.setdefault(tuple(row.get(key) for key in keys), {}).update(row)
        rows = list(newest.values())
    if not rows:
        fail(f"bench/results/{name} has no record with {wanted}")
    parts = [re.fullmatch(r"(.+?)(?::([^:]+))?", column) for column in columns]
    for part in parts:
        if not any(part[1] in row for row in rows):
            fail(f"bench/results/{name} has no '{part[1]}' in records with {wanted}")
    cells = [[shown(row.get(part[1]), part[2] or "") for part in parts] for row in rows]
    right = [i for i in range(len(parts)) if any(isinstance(row.get(parts[i][1]), (int, float)) for row in rows)]
    return table([part[1] for part in parts], cells, right)


# Training steps on a CPU core, by bench/compare

def machines():
    """The machines in bench/pages/machines.json, with the targets of each."""
    return document(PAGES / "machines.json")


def machine(name):
    found = [one for one in machines()["cpu"] if one["name"] == name]
    return found[0] if found else fail(f"{PAGES}/machines.json has no CPU named '{name}'")


class Pair(NamedTuple):
    """Samples per second of both sides in the same run, medians of the rounds; `rounds` 0: each side was timed once, not in turn."""
    ours: float
    our_precision: str
    theirs: float
    their_precision: str
    ratio: float
    rounds: int
    note: str
    day: str


class Side(NamedTuple):
    program: str
    precision: str
    note: str
    rounds: dict

    def of(self, numbers):
        return statistics.median(self.rounds[number] for number in numbers)


def sides(run):
    """The sides of a run, as bench/compare calls them: "ddp_train fp32", "PyTorch bf16 compile"; a note may follow a comma."""
    found = {}
    for record in run:
        found.setdefault(record["side"], {})[record["round"]] = record["samples_per_second"]
    return [Side(name.split()[0], name.split()[1].strip(","), name.partition(", ")[2], rounds) for name, rounds in found.items()]


def pair(all_sides, day):
    """The fastest side of each program on that day, of those that took turns; without turns, of the first tries."""
    for turns in (True, False):
        measured = {}
        for side in all_sides:
            numbers = [number for number in side.rounds if (number > 0) == turns]
            if numbers:
                measured.setdefault(side.program, []).append((side.of(numbers), side))
        if len(measured) == 2:
            mine, other = (max(measured[program], key=lambda one: one[0])[1] for program in ("ddp_train", "PyTorch"))
            common = [n for n in mine.rounds if n in other.rounds and (n > 0) == turns]
            if not common:
                continue
            ratio = statistics.median(mine.rounds[n] / other.rounds[n] for n in common)
            return Pair(mine.of(common), mine.precision, other.of(common), other.precision, ratio, len(common) if turns else 0, mine.note,
                        day)
    return None


def latest(pairs):
    """The newest pair that was measured in turns, or else the newest."""
    pairs = [one for one in pairs if one is not None]
    in_turns = [one for one in pairs if one.rounds > 0]
    return (in_turns or pairs or [None])[-1]


def cpu_steps(of):
    """For each model and batch {"model", "batch", "ranks", "same": Pair in fp32, "best": Pair in the faster precisions or None}."""
    groups = {}
    for number, record in enumerate(records(of["results"]), 1):
        if "processor" in of and not (record.get("processor", "") + " ").startswith(of["processor"] + " "):
            continue
        if "run" not in record or "round" not in record:
            fail(f"bench/results/{of['results']}:{number}: a record without 'run' and 'round'; measure with this version of bench/compare")
        key = (record["model"], record["global_batch"], record["ranks"])
        groups.setdefault(key, {}).setdefault(record["run"], []).append(record)
    rows = []
    for (model, batch, ranks), runs in groups.items():
        by_run = [(sides(run), start[:10]) for start, run in runs.items()]
        tried = [(run, day) for run, day in by_run if any(side.precision == "bf16" and side.program == "ddp_train" for side in run)]
        row = {"model": model, "batch": batch, "ranks": ranks,
               "same": latest(pair([side for side in run if side.precision == "fp32"], day) for run, day in by_run),
               "best": latest(pair(run, day) for run, day in tried) if of.get("bf16", True) else None}
        if row["same"] or row["best"]:
            rows.append(row)
    order = of.get("order", list(of.get("targets", {})))
    return sorted(rows, key=lambda row: order.index(row["model"]) if row["model"] in order else len(order))


def target(of, model, which):
    """The target of a model: `which` 0 in the same precision, 1 in the faster one of each side."""
    values = of.get("targets", {}).get(model, of.get("targets", {}).get("*", []))
    return values[which] if which < len(values) else None


def rounds_of(measured):
    rounds = str(measured.rounds) if measured.rounds else "once, not in turns"
    return f"{rounds}, {measured.note}" if measured.note else rounds


def cpu_table(name):
    of = machine(name)
    rows = cpu_steps(of)
    if not rows:
        fail(f"bench/results/{of['results']} has no run for '{name}'")
    best = any(row["best"] for row in rows)
    head = ["model", "batch", "ddp_train fp32", "PyTorch fp32", "ratio", "target"]
    head += ["ddp_train best", "PyTorch best", "ratio", "target"] if best else []
    cells = []
    for row in rows:
        same, other = row["same"], row["best"]
        title = row["model"] + (f", {row['ranks']} ranks" if row["ranks"] > 1 else "")
        line = [title, str(row["batch"])]
        line += [speed(same.ours), speed(same.theirs), f"{same.ratio:.2f}"] if same else ["", "", ""]
        line.append(shown(target(of, row["model"], 0)))
        if best:
            line += [f"{speed(other.ours)} {other.our_precision}", f"{speed(other.theirs)} {other.their_precision}",
                     f"{other.ratio:.2f}", shown(target(of, row["model"], 1))] if other else ["", "", "", ""]
        newest = max((one for one in (same, other) if one), key=lambda one: one.day)
        line += [rounds_of(same or other), newest.day]
        cells.append(line)
    return table([*head, "rounds", "measured"], cells, range(1, len(head) + 1))


# GPUs, by tests/gpu/report

def gpu(name):
    """What tests/gpu/report wrote about a GPU."""
    return document(RESULTS / gpu_file(name))


def gpu_file(name):
    return "gpu-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".json"


def gpu_rate(step):
    return statistics.mean(step["ddp_train"])


def gpu_steps(name, precision="bf16"):
    return [step for step in gpu(name)["steps"] if step["precision"] == precision]


def gpu_targets(name):
    return machines()["gpu"].get(name, {})


def gpu_table(name, precision="bf16"):
    """Images per second of the training step, and over PyTorch's modes, with the targets."""
    targets = gpu_targets(name) if precision == "bf16" else {}
    head = ["model", "ddp_train", "target"]
    for mode in MODES:
        head += [f"over {mode}", "target"]
    cells = []
    for step in gpu_steps(name, precision):
        wanted = targets.get(step["model"], {})
        row = [step["model"], f"{gpu_rate(step):,.0f}", shown(wanted.get("images/s"))]
        for mode in MODES:
            row += [f"{gpu_rate(step) / step[mode]:.2f}" if mode in step else "–", shown(wanted.get(mode))]
        cells.append(row)
    return table(head, cells, range(1, len(head)))


def gpu_report(name):
    """All else that was measured on a GPU."""
    found = gpu(name)
    lines = [f"Compute capability {found['capability']}, driver {found['driver']}, CUDA {found['cuda']}, commit {found['commit']}. "
             f"`tests/gpu/run`: {found['passed']} of {found['checks']} checks passed{'; these did not:' if found['failed'] else '.'}", ""]
    lines += [f"- {failure}" for failure in found["failed"]] + ([""] if found["failed"] else [])
    for precision in dict.fromkeys(step["precision"] for step in found["steps"]):
        rows = [[step["model"], f"{gpu_rate(step):,.0f}", *(f"{step[mode]:,.0f}" if mode in step else "–" for mode in MODES)]
                for step in gpu_steps(name, precision)]
        lines += [f"Training steps in {precision} at batch 256, images per second, beside PyTorch {found['pytorch']}:", "",
                  *table(["model", "ddp_train", *(f"PyTorch {mode}" for mode in MODES)], rows, range(1, 5)), ""]
    lines += gpu_details(found) + gpu_traces(found) + gpu_counters(found, name)
    return lines[:-1]


def gpu_details(found):
    lines = []
    if found.get("late"):
        lines += ["Without kernels that start early (`DDP_EARLY_KERNELS=off`), bf16, images per second:", "",
                  *table(["model", "ddp_train"], [[r["model"], f"{r['images_per_second']:,.0f}"] for r in found["late"]], (1,)), ""]
    if found.get("precisions"):
        rows = [[r["model"], r["precision"], r["graph"], f"{r['images_per_second']:,.0f}", f"{r['step_ms']:.3f}"]
                for r in found["precisions"]]
        lines += ["Other precisions, and without a CUDA graph:", "",
                  *table(["model", "precision", "CUDA graph", "images/s", "ms a step"], rows, (3, 4)), ""]
    if found.get("training"):
        rows = [[f"`{r['configuration']}`", r["precision"], f"{r['accuracy']:.4f}", f"{r['on the CPU']:.4f}", f"{r['s an epoch']:.2f}"]
                for r in found["training"]]
        lines += ["Accuracies, one rank:", "",
                  *table(["configuration", "precision", "accuracy", "on the CPU", "s an epoch"], rows, (2, 3, 4)), ""]
    if found.get("losses"):
        ways = ["fp32", "fp32, no graph", "tf32", "bf16", "fp16"]
        rows = [[r["network"], *(f"{r[way]:.1e}" if way in r else "–" for way in ways)] for r in found["losses"]]
        lines += ["Largest relative difference of a loss from the CPU's in fp32, over 24 steps:", "",
                  *table(["network", *ways], rows, range(1, 6)), ""]
    return lines


def gpu_traces(found):
    lines = []
    rows = [[t["model"], shown(t["kernels"]), f"{t['busy_us']:,.0f}", f"{t['step_us']:,.0f}"] for t in found.get("traces", [])]
    if rows:
        lines += ["Kernels and copies of one step in bf16 at batch 256, from the run's trace; the time of one is until it has ended on "
                  "all multiprocessors:", "", *table(["model", "kernels", "µs", "step µs"], rows, range(1, 4)), ""]
    for trace in found.get("traces", []):
        rows = [[f"`{k['kernel']}`", shown(k["launches"]), f"{k['us']:,.0f}"] for k in trace["longest"]]
        lines += [f"{trace['model']}, the kernels that take longest in the trace:", "",
                  *table(["kernel", "launches", "µs"], rows, (1, 2)), ""]
    return lines


def gpu_counters(found, name):
    """Kernels as ncu measures them one by one."""
    bandwidth = next((value for card, value in BANDWIDTH.items() if card in name), None)
    lines, rows = [], []
    for step in found.get("counters", []):
        share = "–" if bandwidth is None else f"{step['bytes'] / bandwidth / 1e6 / step['us']:.0%}"
        rows.append([step["model"], shown(step["kernels"]), f"{step['us']:,.0f}", f"{step['bytes'] / 1e9:.2f}", share])
    if rows:
        lines += [f"Kernels of one step in bf16 at batch 256, as ncu measures them one by one; the bandwidth is {bandwidth} TB/s:", "",
                  *table(["model", "kernels", "µs", "GB moved", "of bandwidth"], rows, range(1, 5)), ""]
    for step in found.get("counters", []):
        rows = [[f"`{k['kernel']}`", shown(k["launches"]), f"{k['us']:,.0f}", f"{k['bytes'] / 1e6:,.0f}", f"{k['bytes'] / k['us'] / 1e6:.2f}"]
                for k in step["longest"]]
        lines += [f"{step['model']}, the kernels that take longest:", "", *table(["kernel", "launches", "µs", "MB", "TB/s"], rows, range(1, 5)), ""]
    return lines


def traffic_table():
    """Kernels, bytes and roofline time of a step on a GPU that is only described, by bench/traffic --save."""
    now, before = document(RESULTS / "gpu-traffic.json"), document(RESULTS / "gpu-traffic-before.json")
    names = [("kernels", "kernels", ","), ("gigabytes", "GB", ".2f"), ("milliseconds", "roofline ms", ".2f")]
    head = ["model", *(f"{title}, {when}" for _, title, _ in names for when in ("before", "now"))]
    rows = [[model, *(format(of[model][name], form) for name, _, form in names for of in (before, now))] for model in now]
    return table(head, rows, range(1, len(head)))


def kernel_table(kernels=None):
    """What the compiler made of our GPU kernels: these, or those that bench/kernels --save has kept."""
    names = ["registers", "blocks", "shared", "KiB", "wide", "tensor", "local"]
    rows = [[f"`{kernel['kernel']}`", *(f"{kernel[name]:,}" for name in names)] for kernel in kernels or records("gpu-kernels.jsonl")]
    return table(["kernel", *names], rows, range(1, 8))


# Targets that are missed

def missed():
    """A line of a list for each machine and model below its target."""
    lines = []
    for of in machines()["cpu"]:
        for row in cpu_steps(of):
            for which, name in ((0, "same"), (1, "best")):
                wanted, measured = target(of, row["model"], which), row[name]
                if wanted and measured and round(measured.ratio, 2) < wanted:
                    way = measured.our_precision if name == "same" else "the faster precision of each side"
                    lines.append((of["title"], f"{row['model']} {measured.ratio:.2f} of {wanted} in {way}"))
    for name, targets in machines()["gpu"].items():
        for step in gpu_steps(name):
            rate, wanted = gpu_rate(step), targets.get(step["model"], {})
            for mode in MODES:
                if mode in step and mode in wanted and round(rate / step[mode], 2) < wanted[mode]:
                    lines.append((name, f"{step['model']} {rate / step[mode]:.2f} of {wanted[mode]} over {mode}"))
            if rate < wanted.get("images/s", 0):
                lines.append((name, f"{step['model']} {rate:,.0f} of {wanted['images/s']:,} images/s"))
    by_machine = {}
    for name, text in lines:
        by_machine.setdefault(name, []).append(text)
    return [f"- {name}: {'; '.join(texts)}" for name, texts in by_machine.items()] or ["All targets are reached."]
