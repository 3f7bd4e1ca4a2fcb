"""Stage `first`: does it run, and does it compute the same as the CPU?"""

import concurrent.futures
import json
import os
import re
import statistics

import networks
import training
from stage import Failed

SMALL = ["--dataset", "glyphs", "--train-limit", "1000", "--test-limit", "200", "--global-batch", "128", "--lr", "0.05",
         "--momentum", "0.9", "--progress", "none", "--log-interval", "1"]

# Name, arguments of `bench`.
BENCHES = {
    "lenet": ["--model", "lenet", "--global-batch", "256"],
    "resnet18-d2l": ["--model", "resnet18-d2l", "--global-batch", "256"],
    "resnet50": ["--model", "resnet50", "--global-batch", "256", "--dataset", "synthetic", "--image-size", "224"],
    "mobilenet-v2": ["--model", "mobilenet-v2", "--global-batch", "256", "--dataset", "synthetic", "--image-size", "224"],
}


def describe(check):
    ended = check.expect(check.ours([check.machine.describe], 60))
    description = json.loads(ended.stdout)
    (check.machine.out / "gpu.json").write_text(ended.stdout, encoding="utf-8")
    return description.get("deviceName", "")


def devices(check):
    check.expect(check.ddp(["devices"], 60))


def ready(check):
    ended = check.expect(check.ddp(["check", "--device", "cuda"], 120))
    if "NCCL" not in ended.stdout or ended.stdout.strip().splitlines()[-1] != "ready":
        raise Failed("no sums by NCCL, or not ready")
    return "ready, sums by NCCL"


def ready_through_host(check):
    ended = check.expect(check.ddp(["check", "--device", "cuda", "--gpus", "0", "--oversubscribe-gpus"], 120, ranks=2))
    if "MPI through the host" not in ended.stdout or ended.stdout.strip().splitlines()[-1] != "ready":
        raise Failed("no sums through the host, or not ready")
    return "ready, sums through the host"


def operators(check):
    """The operators' tests against references in double precision, which the CPU computes: in parts, on every second core."""
    parts = max(1, min(8, (os.cpu_count() or 1) // 2))
    with concurrent.futures.ThreadPoolExecutor(parts) as pool:
        runs = [pool.submit(check.ours, [check.machine.operators], 240, GTEST_TOTAL_SHARDS=str(parts),
                            GTEST_SHARD_INDEX=str(part)) for part in range(parts)]
    ended = [run.result() for run in runs]
    (check.machine.out / "operators.txt").write_text("".join(e.output for e in ended), encoding="utf-8")
    failed = sorted({name for e in ended for name in re.findall(r"^\[  FAILED  \] (\S+), where", e.stdout, re.MULTILINE)})
    if failed:
        raise Failed(f"{len(failed)} failed, the first is {failed[0]}")
    passed = 0
    for each in ended:
        check.expect(each)
        passed += int((re.search(r"^\[  PASSED  \] (\d+) test", each.stdout, re.MULTILINE) or ["", 0])[1])
    if passed == 0:
        raise Failed("no test ran; is there a GPU?")
    return f"{passed} passed"


def same_bytes_on_the_cpu(check):
    """Compares a deterministic training on this machine's CPU with that of the machine that packed the bundle."""
    expected = check.machine.reference.get("checkpoint")
    if expected is None:
        raise Failed("there are no CPU results to compare with; pack the bundle with them")
    folder = check.folder("run")
    check.expect(check.ddp([*networks.EXACT, "--output", str(folder)], 60, **networks.EXACT_ENVIRONMENT))
    if training.checkpoint_hash(folder) != expected:
        raise Failed("the checkpoint has other bytes than on the machine that packed the bundle")
    return "the bytes of the machine that packed the bundle"


def losses_of(network, precision, graph):
    def run(check):
        folder = check.folder("run")
        arguments = [*networks.NETWORKS[network], *networks.COMMON, "--device", "cuda", "--precision", precision,
                     "--cuda-graph", graph, "--output", str(folder)]
        check.expect(check.ddp(arguments, 120))
        reference = check.machine.reference.get("losses", {}).get(network)
        noisy = check.machine.reference.get("noisy", {}).get(network)
        if reference is None or noisy is None:
            raise Failed("there are no CPU results to compare with; pack the bundle with them")
        tolerances = networks.tolerances(precision, reference, check.machine.reference["again"][network], noisy)
        worst, step, exceeds = training.largest_difference(training.losses(folder), reference, tolerances)
        check.figures.update(network=network, precision=precision, graph=graph, difference=worst, step=step)
        said = f"largest relative difference from the CPU {worst:.1e}, at step {step} (tolerance {tolerances[step - 1]:.1e})"
        if exceeds:
            raise Failed(f"{said}; step {exceeds} is beyond its tolerance of {tolerances[exceeds - 1]:.1e}")
        return said

    return run


def overflow(check):
    """Steps whose gradient overflows are repeated with a lower loss scale, also those of a recorded step."""
    ways = []
    for graph, in_flight in (("on", 4), ("off", 1)):
        folder = check.folder(f"run-{graph}")
        ended = check.expect(check.ddp([*networks.NETWORKS["lenet"], *networks.COMMON, "--device", "cuda", "--precision",
                                        "fp16", "--loss-scale", 16777216, "--loss-scale-interval", 6, "--deterministic",
                                        "--steps-in-flight", in_flight, "--cuda-graph", graph, "--output", str(folder)],
                                       120))
        repeated = len(re.findall("the gradient overflows in fp16", ended.stderr))
        if repeated < 2 or len(training.losses(folder)) != networks.STEPS:
            raise Failed(f"{repeated} steps repeated, {len(training.losses(folder))} of {networks.STEPS} recorded")
        ways.append((repeated, training.checkpoint_hash(folder)))
    if len(set(ways)) != 1:
        raise Failed("other bytes with a recorded step")
    return f"{ways[0][0]} repeated, the same bytes with and without a CUDA graph"


def bench(check, name, precision, graph="on", seconds=150, in_flight=0, **variables):
    """The JSON line of `bench`, whose figures are stored."""
    ended = check.expect(check.ddp(["bench", "--device", "cuda", "--momentum", "0.9", "--lr", "0.001", "--precision",
                                    precision, "--cuda-graph", graph, "--steps-in-flight", in_flight, *BENCHES[name]],
                                   seconds, **variables))
    line = json.loads(ended.stdout.strip().splitlines()[-1])
    way = f"{graph}, {in_flight} step{'s' if in_flight > 1 else ''} in flight" if in_flight else graph
    check.figures.update(bench=name, precision=precision, graph=way, images_per_second=line["samples_per_second"],
                         step_ms=line["step_ms"])
    return line


def bench_of(name, precision, graph="on", in_flight=0):
    def run(check):
        line = bench(check, name, precision, graph, in_flight=in_flight)
        return f"{line['samples_per_second']:,.0f} images/s, {line['step_ms']:.3f} ms a step"

    return run


def trace_of(graph):
    def run(check):
        folder = check.folder("run")
        # With others in flight, kernels of a step also run before the host finishes the one before it.
        check.expect(check.ddp([*SMALL, "--device", "cuda", "--cuda-graph", graph, "--steps-in-flight", "1", "--max-steps",
                                "40", "--eval-every", "0", "--trace", "--output", str(folder)], 100))
        spans, kernels = training.trace_spans(folder)
        if not kernels:
            raise Failed("no kernels in the trace; the log says why")
        streams = len({kernel["tid"] for kernel in kernels})
        shares, counts = [], []
        # The first steps load libraries and record the graph.
        for step in [span for span in spans if re.fullmatch(r"step \d+", span["name"])][5:]:
            end = step["ts"] + step["dur"]
            inside = [kernel for kernel in kernels if step["ts"] <= kernel["ts"] < end]
            counts.append(len(inside))
            shares.append(sum(min(end, kernel["ts"] + kernel["dur"]) - kernel["ts"] for kernel in inside) / step["dur"])
        share = statistics.median(shares)
        check.figures.update(kernels=len(kernels), streams=streams, per_step=statistics.median(counts), share=share)
        said = f"{statistics.median(counts):g} kernels of a step on {streams} streams take {share:.0%} of it"
        if min(counts) == 0 or not 0.01 < share <= 1.05 * streams:
            raise Failed(f"{said}; {counts.count(0)} steps have no kernel")
        return said

    return run


def run(stage):
    stage.check("describe the GPU for cuDNN", describe)
    stage.check("devices", devices)
    stage.check("check: one rank, NCCL", ready)
    stage.check("check: two ranks on one GPU, through the host", ready_through_host)
    stage.check("operators against double precision", operators)
    stage.check("the CPU repeats the bytes of the bundle", same_bytes_on_the_cpu)
    ways = [("fp32", "on"), ("fp32", "off"), ("tf32", "on"), ("bf16", "on"), ("fp16", "on")]
    stage.check_together([(f"losses of {network}, {precision}, CUDA graph {graph}", losses_of(network, precision, graph))
                          for network in networks.NETWORKS for precision, graph in ways], at_once=6)
    stage.check("a gradient that overflows in fp16", overflow)
    for graph in ("on", "off"):
        stage.check(f"kernels in the trace, CUDA graph {graph}", trace_of(graph))
    for name in BENCHES:
        for precision in ("fp32", "tf32", "bf16", "fp16") if name == "lenet" else ("bf16", "fp16"):
            stage.check(f"bench {name}, {precision}", bench_of(name, precision))
    stage.check("bench lenet, bf16, without a CUDA graph", bench_of("lenet", "bf16", "off"))
    for in_flight in (1, 16):
        stage.check(f"bench lenet, bf16, {in_flight} in flight", bench_of("lenet", "bf16", in_flight=in_flight))
