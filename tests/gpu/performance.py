#!/usr/bin/env python3
"""Training steps of ddp_train on a GPU beside the same steps in PyTorch, as a table in Markdown.

    tests/gpu/performance.py --program build/gpu/src/ddp_train --out performance-gpu.md

Every way to run the step is measured --rounds times, all of them in turn; the table holds the medians. What cannot be
measured is a dash, with its reason below the table, and then the exit code is 1.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PRECISIONS = ["fp32", "tf32", "bf16"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    if min(args.batch, args.rounds) < 1:
        parser.error("--batch and --rounds are at least 1")
    return args


def ours(args, graph):
    return lambda precision: [args.program, "bench", "--device", "cuda", "--model", args.model, "--global-batch",
                              str(args.batch), "--precision", precision, "--cuda-graph", graph, "--momentum", "0.9"]


def theirs(args, mode):
    # Trying plain layout as well would double the time that torch.compile takes, and it never wins on a GPU.
    layout = "on" if mode == "compile" else "auto"
    return lambda precision: [sys.executable, str(ROOT / "bench/pytorch_step.py"), "--device", "cuda", "--mode", mode,
                              "--model", args.model, "--batch", str(args.batch), "--precision", precision,
                              "--channels-last", layout, "--seconds", "0.3", "--repeats", "5"]


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def samples_per_second(command):
    """The figure, or the reason why there is none."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        return json.loads(last_line(result.stdout))["samples_per_second"]
    except subprocess.TimeoutExpired:
        return "it took more than 600 s"
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    except (json.JSONDecodeError, KeyError):
        return f"code {result.returncode}: {last_line(result.stderr) or last_line(result.stdout) or 'no output'}"


def measure(ways, rounds):
    """{(way, precision): median samples per second}, {(way, precision): reason}."""
    figures, reasons = {}, {}
    for _ in range(rounds):
        for precision in PRECISIONS:
            for way, command in ways.items():
                key = way, precision
                if key in reasons:
                    continue
                figure = samples_per_second(command(precision))
                if isinstance(figure, str):
                    reasons[key] = figure
                    print(f"{', '.join(way)}, {precision}: {figure}", file=sys.stderr, flush=True)
                else:
                    figures.setdefault(key, []).append(figure)
                    print(f"{', '.join(way)}, {precision}: {figure:.0f} images/s", flush=True)
    return {key: statistics.median(values) for key, values in figures.items()}, reasons


def table(ways, figures, batch):
    lines = ["| program | step | " + " | ".join(PRECISIONS) + " |", "| --- | --- |" + " ---: |" * len(PRECISIONS)]
    for way in ways:
        cells = []
        for precision in PRECISIONS:
            figure = figures.get((way, precision))
            cells.append("–" if figure is None else f"{figure:,.0f} ({batch / figure * 1e6:.1f} µs)")
        lines.append(f"| {way[0]} | {way[1]} | " + " | ".join(cells) + " |")
    return lines


def ratios(figures, ours_way, others):
    lines = []
    for other in others:
        known = [f"{figures[ours_way, p] / figures[other, p]:.2f} ({p})" for p in PRECISIONS
                 if (ours_way, p) in figures and (other, p) in figures]
        if known:
            lines.append(f"- {ours_way[0]} ({ours_way[1]}) over {other[0]} ({other[1]}): {', '.join(known)}")
    return lines


def said_by(command, otherwise):
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return otherwise
    return last_line(result.stdout) if result.returncode == 0 and result.stdout.strip() else otherwise


def main():
    args = parse()
    torch = "PyTorch " + said_by([sys.executable, "-c", "import torch; print(torch.__version__)"], "(not there)")
    card = said_by(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], "an unknown card")
    ways = {
        ("ddp_train", "CUDA graph"): ours(args, "on"),
        ("ddp_train", "no graph"): ours(args, "off"),
        (torch, "eager"): theirs(args, "eager"),
        (torch, "torch.compile"): theirs(args, "compile"),
        (torch, "CUDA graph of the whole step"): theirs(args, "graph"),
    }
    figures, reasons = measure(ways, args.rounds)
    graph, _, *others = ways
    lines = [f"## {args.model}, batch {args.batch}, one {card.replace(', ', ', driver ')}", "",
             "Images per second of training steps, and the time of a step.", "", *table(ways, figures, args.batch), "",
             *ratios(figures, graph, others), ""]
    lines += [f"- {', '.join(way)}, {precision}: {reason}" for (way, precision), reason in reasons.items()]
    text = "\n".join(lines).rstrip() + "\n"
    pathlib.Path(args.out).write_text(text, encoding="utf-8")
    print(text)
    if reasons:
        sys.exit(f"{len(reasons)} of {len(ways) * len(PRECISIONS)} ways to run the step could not be measured")


if __name__ == "__main__":
    main()
