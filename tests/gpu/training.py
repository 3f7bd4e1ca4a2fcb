"""Training runs of the checks: what they leave in their folders, and how near two of them are."""

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


def largest_difference(ours, theirs):
    """The largest relative difference, and its step, counted from 1."""
    if len(ours) != len(theirs) or not ours:
        raise Failed(f"{len(ours)} steps in place of {len(theirs)}")
    # A NaN is larger than anything.
    worst = max(((abs(a - b) / abs(b) if a == a else float("inf"), step)
                 for step, (a, b) in enumerate(zip(ours, theirs), 1)), key=lambda pair: pair[0])
    return worst


def same_tensors(a, b):
    for name in ("model.safetensors", "optimizer.safetensors"):
        if (a / "latest" / name).read_bytes() != (b / "latest" / name).read_bytes():
            raise Failed(f"{name} differs")
