#!/usr/bin/env python3
"""Draws docs/speed.svg, the chart of the README, from the newest figures in bench/results/.

    bench/chart.py            # rewrites docs/speed.svg
    bench/chart.py --check    # fails if it is out of date
"""
import sys

import figures

CHART = figures.ROOT / "docs" / "speed.svg"
GPU = "NVIDIA H100 80GB HBM3"
CPU = "amd-epyc-26"

STYLE = """text { fill: #24292f } .dim { fill: #57606a } .axis { stroke: #8c959f; stroke-dasharray: 3 3 }
    .ours { fill: #1a7f37 } .peer { fill: #8c959f }
    @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .dim { fill: #9198a1 } .axis { stroke: #6e7681 }
      .ours { fill: #3fb950 } .peer { fill: #6e7681 } }"""


def panel(x, title, bars):
    """A group of horizontal bars: for each model PyTorch at 1 and ours at the ratio."""
    left, unit = x + 116, 250 / max(ratio for _, ratio, _ in bars)
    out = [f'<text x="{x}" y="24" font-weight="600">{title}</text>']
    for i, (model, ratio, rate) in enumerate(bars):
        y = 42 + 46 * i
        out.append(f'<text x="{left - 8}" y="{y + 19}" text-anchor="end">{model}</text>')
        out.append(f'<rect class="ours" x="{left}" y="{y}" width="{ratio * unit:.1f}" height="15" rx="2"/>')
        out.append(f'<rect class="peer" x="{left}" y="{y + 17}" width="{unit:.1f}" height="11" rx="2"/>')
        inside = ratio * unit > 140
        place = f'x="{left + ratio * unit - 5:.1f}" text-anchor="end" style="fill:#fff"' if inside else f'x="{left + ratio * unit + 5:.1f}"'
        out.append(f'<text {place} y="{y + 12}" font-size="12">{ratio:.2f}× · {rate} images/s</text>')
    return out


def draw():
    gpu = [(step["model"], figures.gpu_rate(step) / step["graph"], f"{figures.gpu_rate(step):,.0f}") for step in figures.gpu_steps(GPU)]
    cpu = [(row["model"], row["same"].ratio, figures.speed(row["same"].ours)) for row in figures.cpu_steps(figures.machine(CPU))]
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 262" font-family="system-ui, sans-serif" font-size="13" '
           'role="img" aria-label="Speed of training steps relative to PyTorch">',
           f"  <style>\n    {STYLE}\n  </style>"]
    out += panel(10, "NVIDIA H100, bf16, batch 256", gpu)
    out += panel(440, "one CPU core (AMD EPYC, AVX-512), fp32", cpu)
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
