#!/usr/bin/env python3
"""Trains deeper networks in PyTorch and writes the losses that ddp_train must reproduce: networks.json beside this script.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch torchvision numpy
    /tmp/torch/bin/python tests/golden/make_networks.py

As in make_lenet.py, images, labels, first weights and dropout masks are formulae over integers, so that the C++ test generates bit-identical
ones; hash32() and label() are those of make_lenet.py.

Sample i, channel c, row y, column x of an image [C, H, W]:
    pattern = hash32(0x20000000 + 4096*label(i) + 256*c + 16*(y/4) + x/4) >> 24
    noise   = hash32(0x80000000 + 4096*i + (c*H + y)*W + x) >> 24
    byte    = 128 + (noise >> 1) where pattern < 64, else noise >> 3;      the network's input is float32(byte) / 255

Parameter tensor `name`, element k, with s = the 32-bit FNV-1a hash of its name and
u = (hash32(s + k) >> 8) * 2^-24 - 0.5, computed in float64 and rounded once:
    more than one dimension    u * 2 * sqrt(6 / fan_in),    fan_in being the elements of one output
    batch norm's weight        1 + 0.2 * u                  (mnist-slim and airbench94 have none: 1)
    the others                 0.1 * u

Dropout keeps element e of sample i, counted from 0 over the whole run, if the upper 24 bits of SplitMix64's finaliser of
    key + 0x9E3779B97F4A7C15 * (stream * 2^32 + e + 1),    key = hash32(i) + 2^32 * hash32(i + 1)
are at least rate * 2^24; `stream` is the number of the layer in ddp_train's graph. Means of the logits' losses, SGD with momentum 0.9 as in
PyTorch. Learning rates are low for the reason given in make_lenet.py.

Each run is done in float64 (the reference), in float32 (the accuracy of single precision), and once more without updates, which shows
how much the losses change by learning.
"""

import json
import pathlib

import numpy as np
import torch
from torch import nn

from make_lenet import dropout_keeps, hash32, labels, pack_arrays


class Dropout(nn.Module):
    """Dropout with the masks of the formula above."""

    def __init__(self, rate, stream):
        super().__init__()
        self.rate, self.stream, self.samples = rate, stream, None

    def forward(self, x):
        if not self.training:
            return x
        i = np.asarray(self.samples, dtype=np.uint64)
        key = hash32(i).astype(np.uint64) + (hash32(i + np.uint64(1)).astype(np.uint64) << np.uint64(32))
        keep = dropout_keeps(key, self.stream, x[0].numel(), self.rate)
        return x * torch.from_numpy(keep).reshape(x.shape) / (1 - self.rate)


class Residual(nn.Module):
    """The residual block of d2l.ai."""

    def __init__(self, inputs, outputs, strides=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, stride=strides)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.conv3 = nn.Conv2d(inputs, outputs, 1, stride=strides) if strides != 1 else None
        self.bn1 = nn.BatchNorm2d(outputs)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + (x if self.conv3 is None else self.conv3(x)))


def resnet18_d2l(channels, classes):
    net = nn.Sequential(nn.Conv2d(channels, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())
    inputs = 64
    for stage, outputs in enumerate([64, 128, 256, 512]):
        net.add_module(f"resnet_block{stage + 1}", nn.Sequential(
            Residual(inputs, outputs, 1 if stage == 0 else 2), Residual(outputs, outputs)))
        inputs = outputs
    net.add_module("global_avg_pool", nn.AdaptiveAvgPool2d((1, 1)))
    net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(512, classes)))
    return net


class MnistSlim(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2, bias=False)
        self.bn1 = nn.BatchNorm2d(6, eps=1e-3)
        self.conv2 = nn.Conv2d(6, 12, 5, padding=2, bias=False)
        self.bn2 = nn.BatchNorm2d(12, eps=1e-3)
        self.fc1 = nn.Linear(12 * (size // 4) ** 2, 100, bias=False)
        self.bn3 = nn.BatchNorm1d(100, eps=1e-3)
        self.dropout = Dropout(0.5, 13)
        self.fc2 = nn.Linear(100, 10)
        for norm in (self.bn1, self.bn2, self.bn3):
            norm.weight.requires_grad_(False)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = torch.max_pool2d(torch.relu(self.bn2(self.conv2(x))), 2)
        x = torch.relu(self.bn3(self.fc1(x.flatten(1))))
        return self.fc2(self.dropout(x))


def mobilenet_v2(channels, classes):
    # The only use of torchvision: tests/peers/ import the other networks without it.
    import torchvision
    assert channels == 3
    net = torchvision.models.mobilenet_v2(num_classes=classes)
    net.classifier[0] = Dropout(0.2, MOBILENET_DROPOUT)
    return net


class Airbench94(nn.Module):
    """The network of github.com/KellerJordan/cifar10-airbench, airbench94.py."""

    def __init__(self, channels, classes):
        super().__init__()
        self.whiten = nn.Conv2d(channels, 8 * channels, 2)
        inputs = 8 * channels
        for number, outputs in enumerate([64, 256, 256], 1):
            group = nn.Module()
            group.conv1 = nn.Conv2d(inputs, outputs, 3, padding="same", bias=False)
            group.norm1 = nn.BatchNorm2d(outputs, eps=1e-12, momentum=0.4)
            group.conv2 = nn.Conv2d(outputs, outputs, 3, padding="same", bias=False)
            group.norm2 = nn.BatchNorm2d(outputs, eps=1e-12, momentum=0.4)
            group.norm1.weight.requires_grad_(False)
            group.norm2.weight.requires_grad_(False)
            self.add_module(f"group{number}", group)
            inputs = outputs
        self.head = nn.Linear(inputs, classes, bias=False)

    def forward(self, x):
        gelu = nn.functional.gelu
        x = gelu(self.whiten(x))
        for group in (self.group1, self.group2, self.group3):
            x = gelu(group.norm1(torch.max_pool2d(group.conv1(x), 2)))
            x = gelu(group.norm2(group.conv2(x)))
        return self.head(torch.max_pool2d(x, 3).flatten(1)) / 9


# The number of the layer in ddp_train's graph.
MOBILENET_DROPOUT = 152

RUNS = [
    {"model": "resnet18-d2l", "image": [1, 16, 16], "batch": 6, "steps": 50, "lr": 1e-05},
    {"model": "mobilenet-v2", "image": [3, 48, 48], "batch": 16, "steps": 50, "lr": 1.5e-06},
    {"model": "mnist-slim", "image": [1, 28, 28], "batch": 20, "steps": 50, "lr": 0.004},
    {"model": "airbench94", "image": [3, 32, 32], "batch": 8, "steps": 50, "lr": 0.001},
]


def fnv1a(name):
    h = 0x811C9DC5
    for byte in name.encode():
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return h


def make_network(run):
    channels, _, size = run["image"]
    if run["model"] == "resnet18-d2l":
        return resnet18_d2l(channels, 10)
    if run["model"] == "mobilenet-v2":
        return mobilenet_v2(channels, 10)
    if run["model"] == "airbench94":
        return Airbench94(channels, 10)
    return MnistSlim(size)


def initialise(net):
    for name, parameter in net.named_parameters():
        k = np.arange(parameter.numel(), dtype=np.uint64)
        u = (hash32(k + np.uint64(fnv1a(name))) >> 8).astype(np.float64) * 2.0**-24 - 0.5
        if parameter.dim() > 1:
            values = u * (2 * np.sqrt(6 / np.float64(parameter[0].numel())))
        elif name.endswith("weight"):
            values = 1 + 0.2 * u if parameter.requires_grad else np.ones_like(u)
        else:
            values = 0.1 * u
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values.astype(np.float32)).reshape(parameter.shape))


def images(samples, shape):
    channels, height, width = shape
    i = np.asarray(samples, dtype=np.uint64)[:, None, None, None]
    c, y, x = np.meshgrid(np.arange(channels, dtype=np.uint64), np.arange(height, dtype=np.uint64),
                          np.arange(width, dtype=np.uint64), indexing="ij")
    label = labels(i).astype(np.uint64)
    pattern = hash32(0x20000000 + 4096 * label + 256 * c + 16 * (y // 4) + x // 4) >> 24
    noise = hash32(0x80000000 + 4096 * i + (c * np.uint64(height) + y) * np.uint64(width) + x) >> 24
    return np.where(pattern < 64, 128 + (noise >> 1), noise >> 3).astype(np.float32) / np.float32(255)


def train(run, dtype):
    net = make_network(run).to(dtype)
    initialise(net)
    net.train()
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=run["lr"], momentum=0.9)
    losses = []
    for step in range(run["steps"]):
        samples = np.arange(step * run["batch"], (step + 1) * run["batch"])
        for module in net.modules():
            if isinstance(module, Dropout):
                module.samples = samples
        x = torch.from_numpy(images(samples, run["image"])).to(dtype)
        loss = nn.functional.cross_entropy(net(x), torch.from_numpy(labels(samples)))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, net


def final_statistics(net):
    sums = {}
    for name, buffer in net.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            sums[name] = float(f"{buffer.sum().item():.9g}")
    return dict(list(sums.items())[:4])


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    runs = []
    for run in RUNS:
        reference, net = train(run, torch.float64)
        single, _ = train(run, torch.float32)
        worst = max(abs(a - b) / b for a, b in zip(single, reference))
        still, _ = train({**run, "lr": 0}, torch.float32)
        moved = max(abs(a - b) / b for a, b in zip(still, reference))
        print(f"{run['model']}: loss {reference[0]:.4f} -> {reference[-1]:.4f}, lowest {min(reference):.4f}; "
              f"float32 within {worst:.1e} of float64, without updates {moved:.1e} away")
        runs.append({**run, "momentum": 0.9, "loss_float64": [float(f"{x:.9g}") for x in reference],
                     "float32_within": float(f"{worst:.2g}"), "moved_by_updates": float(f"{moved:.2g}"), "sums_of_running_statistics": final_statistics(net)})
    result = {"made_by": f"PyTorch {torch.__version__}, tests/golden/make_networks.py", "runs": runs}
    path = pathlib.Path(__file__).with_name("networks.json")
    path.write_text(pack_arrays(json.dumps(result, indent=1)) + "\n", encoding="utf-8")
    print(f"wrote {path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
