#!/usr/bin/env python3
"""Measures the training samples per second of PyTorch, with the fastest settings found; prints one line of JSON.

    bench/pytorch_step.py --model lenet --batch 256
    bench/pytorch_step.py --model lenet --batch 256 --ranks 2        # DistributedDataParallel over gloo, a core each
    bench/pytorch_step.py --model lenet --device cuda --mode graph --precision bf16

A step is: forward, loss, backward, SGD update, on one batch that is already in device memory as float32 in the layout of
the network, so reading and converting images costs PyTorch nothing. Where there are alternatives, the fastest one is used: layout (channels_last or not), optimizer implementation (fused or foreach) and, with --mode compile,
the compiler's own mode; in that mode a line with the best result so far is printed after each alternative, because compiling a deep network takes
minutes and may be interrupted. On the CPU the allocator keeps its memory and asks for huge pages, and denormals are flushed to
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

from bench_tools import TORCHVISION

# These have an effect only if they are set before the process starts.
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
    parser.add_argument("--optimizer", choices=["auto", "fused", "foreach"], default="auto",
                        help="PyTorch's implementation of SGD")
    parser.add_argument("--channels-last", choices=["auto", "on", "off"], default="auto")
    parser.add_argument("--threads", type=int, default=1, help="per rank")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall",
                        help="processor: of this process, for one rank on a CPU")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.7, help="length of one repeat")
    args = parser.parse_args()
    if args.device == "cpu" and (args.mode == "graph" or args.precision == "tf32"):
        parser.error("--mode graph and --precision tf32 are for --device cuda")
    if args.device == "cuda" and args.ranks > 1:
        parser.error("--device cuda is for one rank")
    return args


# ---- models: the same networks as in src/model -------------------------------------------------------------------------


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


def mnist_slim(nn):
    """Batch norm without scale, "SAME" convolutions, dropout."""
    net = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2, bias=False), nn.BatchNorm2d(6, eps=1e-3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 12, 5, padding=2, bias=False), nn.BatchNorm2d(12, eps=1e-3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(588, 100, bias=False), nn.BatchNorm1d(100, eps=1e-3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(100, 10))
    for module in net:
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.weight.requires_grad_(False)
    return net


def mnist_towers(nn):
    return nn.Sequential(
        nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1176, 100), nn.ReLU(), nn.Dropout(0.5), nn.Linear(100, 10))


def caffe_lenet(nn):
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500),
        nn.ReLU(), nn.Linear(500, 10))


def cifar10_tutorial(nn):
    """TensorFlow's "SAME" pooling of these sizes, 3x3 with stride 2, is rounding up."""

    def pool():
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    def norm():
        return nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1)

    return nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), pool(), norm(), nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), norm(),
        pool(), nn.Flatten(), nn.Linear(2304, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10))


def resnet9(nn):
    def block(inputs, outputs, pool=False):
        layers = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))

    class Residual(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.branch = nn.Sequential(block(channels, channels), block(channels, channels))

        def forward(self, x):
            return self.branch(x) + x

    return nn.Sequential(
        block(3, 64), block(64, 128, True), Residual(128), block(128, 256, True), block(256, 512, True), Residual(512),
        nn.MaxPool2d(4), nn.Flatten(), nn.Linear(512, 10))


def mobilenet_v2(nn):
    """As in torchvision, which is not always installed with PyTorch."""

    def unit(inputs, outputs, kernel, stride=1, groups=1):
        return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
                nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]

    class InvertedResidual(nn.Module):
        def __init__(self, inputs, outputs, stride, expansion):
            super().__init__()
            hidden = inputs * expansion
            self.sum = stride == 1 and inputs == outputs
            self.conv = nn.Sequential(
                *(unit(inputs, hidden, 1) if expansion != 1 else []), *unit(hidden, hidden, 3, stride, hidden),
                nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x):
            return x + self.conv(x) if self.sum else self.conv(x)

    layers = unit(3, 32, 3, 2)
    channels = 32
    for expansion, outputs, repeats, stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                                (6, 160, 3, 2), (6, 320, 1, 1)]:
        for index in range(repeats):
            layers.append(InvertedResidual(channels, outputs, stride if index == 0 else 1, expansion))
            channels = outputs
    return nn.Sequential(*layers, *unit(320, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2),
                         nn.Linear(1280, 10))


def resnet50(nn):
    """As in torchvision, which is not always installed with PyTorch."""

    class Bottleneck(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            outputs = 4 * width
            self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = nn.Identity()
            if stride > 1 or inputs != outputs:
                self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                                nn.BatchNorm2d(outputs))

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            return self.relu(self.bn3(self.conv3(y)) + self.downsample(x))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            layers.append(Bottleneck(channels, width, 2 if stage > 0 and block == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 10))


def of_torchvision(name):
    """A network of torchvision, with as many classes as ddp_train's images have."""

    def make(_):
        import torchvision

        return getattr(torchvision.models, name)(num_classes=10)

    return make


# name: (net, image [channels, height, width], classes, default global batch), images and batches as in bench_tools.py
MODELS = {
    "lenet": (lenet, (1, 28, 28), 10, 256),
    "mnist-slim": (mnist_slim, (1, 28, 28), 10, 128),
    "mnist-towers": (mnist_towers, (1, 28, 28), 10, 128),
    "caffe-lenet": (caffe_lenet, (1, 28, 28), 10, 64),
    "resnet18-d2l": (resnet18_d2l, (1, 28, 28), 10, 64),
    "cifar10-tutorial": (cifar10_tutorial, (3, 24, 24), 10, 128),
    "resnet9": (resnet9, (3, 32, 32), 10, 32),
    "mobilenet-v2": (mobilenet_v2, (3, 224, 224), 10, 16),
    "resnet50": (resnet50, (3, 224, 224), 10, 16),
    **{name: (of_torchvision({"shufflenet-v2": "shufflenet_v2_x1_0"}.get(name, name.replace("-", "_"))), (3, 224, 224), 10, 16)
       for name in TORCHVISION},
}


# ---- one rank ------------------------------------------------------------------------------------------------------


class Candidate:
    """One alternative: a network in one layout with one optimizer implementation, compiled or not."""

    def __init__(self, torch, args, ranks, batch, way):
        net, image, classes, _ = MODELS[args.model]
        torch.manual_seed(0)
        layout = torch.channels_last if way["channels_last"] else torch.contiguous_format
        self.torch, self.args, self.way = torch, args, way
        self.clock = time.process_time if args.clock == "processor" else time.perf_counter
        self.net = net(torch.nn).to(args.device, memory_format=layout)
        for module in self.net.modules():
            if isinstance(module, torch.nn.ReLU):
                module.inplace = True  # nothing else reads its input in any of these networks
        self.images = torch.randn(batch, *image).to(args.device, memory_format=layout)
        self.labels = torch.randint(0, classes, (batch,)).to(args.device)
        if ranks > 1:
            self.net = torch.nn.parallel.DistributedDataParallel(self.net, gradient_as_bucket_view=True,
                                                                 static_graph=True)
        trained = [parameter for parameter in self.net.parameters() if parameter.requires_grad]
        groups = [{"params": trained}]
        if args.model == "caffe-lenet":  # its biases have twice the learning rate
            groups = [{"params": [p for p in trained if p.dim() > 1]},
                      {"params": [p for p in trained if p.dim() == 1], "lr": 0.02}]
        self.optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9, **{way["optimizer"]: True})
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
        """The whole step as a CUDA graph, as in PyTorch's notes on CUDA graphs: warmed up on a side stream."""
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
        begin = self.clock()
        for _ in range(steps):
            self.step()
        barrier()
        return (self.clock() - begin) / steps


def ways(args):
    """All alternatives; the fastest one is reported."""
    compiled = ["default", "reduce-overhead"] if args.mode == "compile" and args.device == "cuda" else ["default"]
    return [{"channels_last": channels_last, "optimizer": optimizer, "compiled": mode}
            for channels_last in {"auto": [True, False], "on": [True], "off": [False]}[args.channels_last]
            for optimizer in (["fused", "foreach"] if args.optimizer == "auto" else [args.optimizer])
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

    def tell(candidate, repeats, complete):
        if rank != 0:
            return
        build = torch.__config__.show()
        print(json.dumps({
            "framework": "pytorch", "version": torch.__version__, "model": args.model, "global_batch": global_batch,
            "ranks": ranks, "threads": args.threads, "device": args.device, "mode": args.mode,
            "precision": args.precision,
            "samples_per_second": round(statistics.median(repeats), 3), "repeats": [round(r, 3) for r in repeats],
            **candidate.way, "complete": complete,
            "build": [line.strip(" -") for line in build.splitlines() if "MKL" in line or "CPU capability" in line][:3],
        }), flush=True)

    best = None
    for way in ways(args):
        candidate = Candidate(torch, args, ranks, batch, way)
        candidate.seconds(3, barrier)
        steps = int(agreed(max(1, round(args.seconds / candidate.seconds(2, barrier)))))
        trial = agreed(min(candidate.seconds(steps, barrier) for _ in range(2)))
        if best is None or trial < best[0]:
            best = (trial, candidate, steps)
        if args.mode == "compile":
            tell(best[1], [global_batch / best[0]], complete=False)
    _, candidate, steps = best
    repeats = [global_batch / candidate.seconds(steps, barrier) for _ in range(args.repeats)]
    tell(candidate, repeats, complete=True)
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
