#!/usr/bin/env python3
"""Draws docs/speed.svg, the chart of the README, from the tables of docs/performance.md.

    bench/chart.py            # rewrites docs/speed.svg
    bench/chart.py --check    # fails if it is out of date
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
CHART = ROOT / "docs" / "speed.svg"
MODELS = ["lenet", "resnet18-d2l", "resnet50", "mobilenet-v2"]
CPU_MODELS = ["lenet", "cifar10-tutorial", "resnet9", "mobilenet-v2"]

STYLE = """text { fill: #24292f } .dim { fill: #57606a } .axis { stroke: #8c959f; stroke-dasharray: 3 3 }
    .ours { fill: #1a7f37 } .peer { fill: #8c959f }
    @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .dim { fill: #9198a1 } .axis { stroke: #6e7681 }
      .ours { fill: #3fb950 } .peer { fill: #6e7681 } }"""


def rows(lines, *columns):
    """The cells of the first table whose header has all `columns`, as {first cell: [cells of the columns]}."""
    for i, line in enumerate(lines):
        header = [cell.strip() for cell in line.strip("|\n ").split("|")]
        if not line.startswith("|") or not all(column in header for column in columns):
            continue
        found = {}
        for row in lines[i + 2:]:
            if not row.startswith("|"):
                break
            cells = [cell.strip() for cell in row.strip("|\n ").split("|")]
            found[cells[0]] = [cells[header.index(column)] for column in columns]
        return found
    sys.exit(f"{PAGE}: no table with the columns {', '.join(columns)}")


def number(text):
    return float(text.replace(",", ""))


def panel(x, title, models, bars):
    """A group of horizontal bars: for each model PyTorch at 1 and ours at the ratio."""
    left, unit = x + 116, 250 / max(ratio for ratio, _ in bars)
    out = [f'<text x="{x}" y="24" font-weight="600">{title}</text>']
    for i, (model, (ratio, rate)) in enumerate(zip(models, bars)):
        y = 42 + 46 * i
        out.append(f'<text x="{left - 8}" y="{y + 19}" text-anchor="end">{model}</text>')
        out.append(f'<rect class="ours" x="{left}" y="{y}" width="{ratio * unit:.1f}" height="15" rx="2"/>')
        out.append(f'<rect class="peer" x="{left}" y="{y + 17}" width="{unit:.1f}" height="11" rx="2"/>')
        inside = ratio * unit > 140
        place = f'x="{left + ratio * unit - 5:.1f}" text-anchor="end" style="fill:#fff"' if inside else f'x="{left + ratio * unit + 5:.1f}"'
        out.append(f'<text {place} y="{y + 12}" font-size="12">{ratio:.2f}× · {rate} images/s</text>')
    return out


def draw():
    lines = PAGE.read_text().splitlines()
    gpu = rows(lines, "ddp_train", "over eager", "over graph")
    cpu = rows(lines, "ddp_train", "PyTorch", "ratio")
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 262" font-family="system-ui, sans-serif" font-size="13" '
           'role="img" aria-label="Speed of training steps relative to PyTorch">',
           f"  <style>\n    {STYLE}\n  </style>"]
    out += panel(10, "NVIDIA H100, bf16, batch 256", MODELS, [(number(gpu[m][2]), gpu[m][0]) for m in MODELS])
    out += panel(440, "one CPU core (AVX-512), fp32", CPU_MODELS, [(number(cpu[m][2]), cpu[m][0]) for m in CPU_MODELS])
    out.append('<rect class="ours" x="10" y="236" width="14" height="12" rx="2"/><text x="30" y="247">ddp_train</text>')
    out.append('<rect class="peer" x="110" y="236" width="14" height="12" rx="2"/><text x="130" y="247">PyTorch = 1 '
               '(on the H100: the whole step as one CUDA graph)</text>')
    return "\n  ".join(out) + "\n</svg>\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        if CHART.read_text() != draw():
            sys.exit("docs/speed.svg is out of date; run bench/chart.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        CHART.write_text(draw())
