#!/usr/bin/env python3
"""Training samples per second of PyTorch, everything tuned in its favour; prints one line of JSON.

    bench/pytorch_step.py --model lenet --batch 256
    bench/pytorch_step.py --model lenet --batch 256 --ranks 2        # DistributedDataParallel over gloo, a core each
    bench/pytorch_step.py --model lenet --device cuda --mode graph --precision bf16

A step is: forward, loss, backward, SGD update, on one batch that already lies in the device's memory as float32 in the
layout of the net, so that reading and converting images costs PyTorch nothing. Where there is more than one way it takes
the fastest it finds: layout (channels_last or not), optimizer implementation (fused or foreach) and, with --mode compile,
the compiler's own mode. On the CPU the allocator keeps its memory and asks for huge pages, and denormals are flushed to
zero. On a GPU cuDNN times its kernels, and --mode graph replays the whole step as one CUDA graph.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

# These count only when they are set before the process starts.
TUNED = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "THP_MEM_ALLOC_ENABLE": "1",
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", required=True, help="a model of the table MODELS")
    parser.add_argument("--batch", type=int, default=0, help="global batch (default: the model's)")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--mode", choices=["eager", "compile", "graph"], default="eager",
                        help="compile: torch.compile, which takes a minute before it starts; graph: the whole step as a "
                        "CUDA graph")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="fp32")
    parser.add_argument("--channels-last", choices=["auto", "on", "off"], default="auto")
    parser.add_argument("--threads", type=int, default=1, help="per rank")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.7, help="length of one repeat")
    args = parser.parse_args()
    if args.device == "cpu" and (args.mode == "graph" or args.precision == "tf32"):
        parser.error("--mode graph and --precision tf32 are for --device cuda")
    if args.device == "cuda" and args.ranks > 1:
        parser.error("--device cuda is for one rank")
    return args


# ---- models: the same nets as in src/model -------------------------------------------------------------------------


def lenet(nn):
    return nn.Sequential(
        nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))


def resnet18_d2l(nn):
    """ResNet-18 for small images as in d2l.ai: a 3x3 stem without pooling, four stages of two residual blocks."""

    class Residual(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, stride=stride)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
            self.conv3 = nn.Conv2d(inputs, outputs, 1, stride=stride) if stride > 1 else nn.Identity()
            self.bn1 = nn.BatchNorm2d(outputs)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU()

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            return self.relu(self.bn2(self.conv2(y)) + self.conv3(x))

    layers = [nn.Conv2d(1, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    channels = 64
    for stage, outputs in enumerate([64, 128, 256, 512]):
        for block in range(2):
            layers.append(Residual(channels, outputs, 2 if stage > 0 and block == 0 else 1))
            channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


# name: (net, image [channels, height, width], classes, default global batch)
MODELS = {
    "lenet": (lenet, (1, 28, 28), 10, 256),
    "resnet18-d2l": (resnet18_d2l, (1, 28, 28), 10, 64),
}


# ---- one rank ------------------------------------------------------------------------------------------------------


class Candidate:
    """One way to run the step: a net in one layout with one optimizer implementation, compiled or not."""

    def __init__(self, torch, args, ranks, batch, way):
        net, image, classes, _ = MODELS[args.model]
        torch.manual_seed(0)
        layout = torch.channels_last if way["channels_last"] else torch.contiguous_format
        self.torch, self.args, self.way = torch, args, way
        self.net = net(torch.nn).to(args.device, memory_format=layout)
        self.images = torch.randn(batch, *image).to(args.device, memory_format=layout)
        self.labels = torch.randint(0, classes, (batch,)).to(args.device)
        if ranks > 1:
            self.net = torch.nn.parallel.DistributedDataParallel(self.net, gradient_as_bucket_view=True,
                                                                 static_graph=True)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9, **{way["optimizer"]: True})
        self.forward = torch.compile(self.net, mode=way["compiled"]) if way["compiled"] else self.net
        self.loss = torch.nn.CrossEntropyLoss()
        self.step = self.capture() if args.mode == "graph" else self.work

    def work(self):
        self.optimizer.zero_grad(set_to_none=True)
        # Within a recorded graph autocast must not keep casts of weights from one step to the next.
        with self.torch.autocast(self.args.device, dtype=self.torch.bfloat16, enabled=self.args.precision == "bf16",
                                 cache_enabled=self.args.mode != "graph"):
            logits = self.forward(self.images)
        self.loss(logits.float(), self.labels).backward()
        self.optimizer.step()

    def capture(self):
        """The whole step as a CUDA graph, as PyTorch's notes on CUDA graphs say: warmed up on a stream of its own."""
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(5):
                self.work()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.work()
        return graph.replay

    def seconds(self, steps, barrier):
        barrier()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        barrier()
        return (time.perf_counter() - begin) / steps


def ways(args):
    """All that is tried, of which the fastest counts."""
    compiled = ["default", "reduce-overhead"] if args.mode == "compile" and args.device == "cuda" else ["default"]
    return [{"channels_last": channels_last, "optimizer": optimizer, "compiled": mode}
            for channels_last in {"auto": [True, False], "on": [True], "off": [False]}[args.channels_last]
            for optimizer in ["fused", "foreach"]
            for mode in (compiled if args.mode == "compile" else [None])]


def measure(args):
    import torch

    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    if args.device == "cuda":
        if not torch.cuda.is_available():
            sys.exit("pytorch_step.py: this PyTorch sees no GPU")
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.precision != "fp32"
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        import torch.distributed as dist

        dist.init_process_group("gloo")

        def barrier():
            dist.barrier()

        def agreed(value):
            box = torch.tensor([value], dtype=torch.float64)
            dist.broadcast(box, 0)
            return box.item()
    else:

        def barrier():
            if args.device == "cuda":
                torch.cuda.synchronize()

        def agreed(value):
            return value

    global_batch = args.batch or MODELS[args.model][3]
    batch = global_batch // ranks + (1 if rank < global_batch % ranks else 0)
    best = None
    for way in ways(args):
        candidate = Candidate(torch, args, ranks, batch, way)
        candidate.seconds(3, barrier)
        steps = int(agreed(max(1, round(args.seconds / candidate.seconds(2, barrier)))))
        trial = agreed(min(candidate.seconds(steps, barrier) for _ in range(2)))
        if best is None or trial < best[0]:
            best = (trial, candidate, steps)
    _, candidate, steps = best
    repeats = [global_batch / candidate.seconds(steps, barrier) for _ in range(args.repeats)]
    if rank == 0:
        build = torch.__config__.show()
        print(json.dumps({
            "framework": "pytorch", "version": torch.__version__, "model": args.model, "global_batch": global_batch,
            "ranks": ranks, "threads": args.threads, "device": args.device, "mode": args.mode,
            "precision": args.precision,
            "samples_per_second": round(statistics.median(repeats), 1), "repeats": [round(r, 1) for r in repeats],
            **candidate.way,
            "build": [line.strip(" -") for line in build.splitlines() if "MKL" in line or "CPU capability" in line][:3],
        }), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


# ---- the job -------------------------------------------------------------------------------------------------------


def spawn(args):
    """Starts this script once for each rank, each on one of the cores this process may use; returns the exit code."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cores = sorted(os.sched_getaffinity(0))
    children = []
    for rank in range(args.ranks):
        core = cores[rank % len(cores)]
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(args.ranks), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        command = [sys.executable, *sys.argv]
        if args.threads == 1:
            command = ["taskset", "-c", str(core), *command]
        children.append(subprocess.Popen(command, env=environment))
    failed = 0
    while children:
        for child in list(children):
            status = child.poll()
            if status is not None:
                children.remove(child)
                if status != 0 and not failed:
                    failed = status
                    for other in children:
                        other.terminate()
        time.sleep(0.05)
    return failed


def main():
    args = parse()
    if args.model not in MODELS:
        sys.exit(f"pytorch_step.py: no model '{args.model}'; there are {', '.join(MODELS)}")
    if os.environ.get("DDP_BENCH_TUNED") != "1":
        tuned = dict(TUNED, OMP_NUM_THREADS=str(args.threads), DDP_BENCH_TUNED="1")
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **tuned})
    if args.ranks > 1 and "RANK" not in os.environ:
        sys.exit(spawn(args))
    measure(args)


if __name__ == "__main__":
    main()
