"""Reads and compares the run folders of training runs."""

import hashlib
import json

from stage import Failed


def metrics(folder):
    text = (folder / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def losses(folder):
    return [line["loss"] for line in metrics(folder) if "loss" in line]


def accuracies(folder):
    return [line["val_accuracy"] for line in metrics(folder) if "val_accuracy" in line]


def epoch_seconds(folder):
    lines = (folder / "summary.csv").read_text(encoding="utf-8").splitlines()
    place = lines[0].split(",").index("seconds")
    return [float(line.split(",")[place]) for line in lines[1:]]


def trace_spans(folder):
    """Of a run with --trace: all spans of the trace, and those of kernels and copies on a GPU."""
    events = json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    return spans, [span for span in spans if rows[span["tid"]].startswith("GPU, stream ")]


def checkpoint_hash(folder):
    return hashlib.sha256((folder / "latest" / "model.safetensors").read_bytes()).hexdigest()


def largest_difference(ours, theirs, tolerances):
    """The largest relative difference, its step, and the first step beyond its tolerance (0: none); steps count from 1."""
    if len(ours) != len(theirs) or not ours:
        raise Failed(f"{len(ours)} steps in place of {len(theirs)}")
    # A NaN is larger than anything.
    apart = [abs(a - b) / abs(b) if a == a else float("inf") for a, b in zip(ours, theirs)]
    worst = max(range(len(apart)), key=lambda step: apart[step])
    exceeds = next((step for step, (d, t) in enumerate(zip(apart, tolerances), 1) if not d <= t), 0)
    return apart[worst], worst + 1, exceeds


def same_tensors(a, b):
    for name in ("model.safetensors", "optimizer.safetensors"):
        if (a / "latest" / name).read_bytes() != (b / "latest" / name).read_bytes():
            raise Failed(f"{name} differs")
