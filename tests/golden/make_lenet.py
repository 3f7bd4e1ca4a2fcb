#!/usr/bin/env python3
"""Trains LeNet in PyTorch and writes the losses that ddp_train must reproduce: lenet_sgd.json beside this script.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    /tmp/torch/bin/python tests/golden/make_lenet.py

There are no binary files: images, labels and initial weights are formulae over integers, so that the C++ test generates
bit-identical ones. All integers are unsigned and 32 bits wide; sums and products wrap around modulo 2^32.

hash32(h), the finaliser of MurmurHash3 (Austin Appleby, public domain):
    h ^= h >> 16;  h *= 0x85ebca6b;  h ^= h >> 13;  h *= 0xc2b2ae35;  h ^= h >> 16

Sample i (0, 1, 2, ... over the whole run: step s of batch B, counted from 0, takes samples s*B ... s*B + B-1):
    label(i)   = hash32(i) % 10
    For pixel p = 28*y + x of the image of 1x28x28, divisions rounding down:
    pattern    = hash32(0x20000000 + 49*label(i) + 7*(y/4) + x/4) >> 24      a field of 7x7 squares for each class
    noise      = hash32(0x80000000 + 784*i + p) >> 24
    byte(i, p) = 128 + (noise >> 1) if pattern < 64, else noise >> 3         a quarter of the squares is bright
    The network's input is float32(byte) / float32(255).

Initial parameters. All parameters are stored in one flat buffer, in the order conv1.weight, conv1.bias,
conv2.weight, conv2.bias, fc1.weight, fc1.bias, fc2.weight, fc2.bias, each in PyTorch's layout (row-major: conv
[out][in][kh][kw], linear [out][in]). Element k of that buffer starts as
    float32( ((hash32(k) >> 8) * 2^-24 - 0.5) * (2 / sqrt(fan_in)) )       computed in float64, rounded once
fan_in being in*kh*kw of the layer, for its bias too: 9, 500, 800 and 128.

Network (LeNet as in d2l.ai): conv 1->20 3x3, ReLU, average pool 2, conv 20->50 5x5, ReLU, average pool 2, flatten
(28 -> 26 -> 13 -> 9 -> 4), linear 800->128, ReLU, linear 128->10. No padding; pooling with stride 2 drops the last row
and column of 9. Loss: softmax cross-entropy, averaged over the batch.

SGD as in PyTorch, on all parameters including biases: g += weight_decay*w; v = momentum*v + g (v = g at first);
w -= lr * (g + momentum*v with nesterov, else v).

Each run is done twice, in float64 and in float32, from the same float32 inputs and weights. The learning rates are low
because a ReLU input within rounding error of zero passes in one program and not in the other, which changes a gradient by
a relative 1e-3; with higher rates, 100 steps amplify that to a difference of 1e-3 in the loss of two correct programs.

The file contains
    made_by    the version of PyTorch
    checks     values of the formulae, to detect mistakes there before they show in a loss
    runs       for each recipe: the loss of each step before its update, in float64 (the reference) and in float32 (the
               accuracy of single precision), and the sum and the sum of squares of each parameter after the last step
"""

import json
import pathlib

import numpy as np
import torch
from torch import nn

RECIPES = [
    {"name": "nesterov", "batch": 64, "steps": 100, "lr": 0.0015, "momentum": 0.9, "weight_decay": 0.01,
     "nesterov": True},
    {"name": "momentum", "batch": 64, "steps": 100, "lr": 0.0015, "momentum": 0.9, "weight_decay": 0.0,
     "nesterov": False},
    {"name": "plain", "batch": 50, "steps": 100, "lr": 0.01, "momentum": 0.0, "weight_decay": 0.0, "nesterov": False},
]


def hash32(value):
    h = np.asarray(value, dtype=np.uint64).astype(np.uint32)
    h = h ^ (h >> np.uint32(16))
    h = h * np.uint32(0x85EBCA6B)
    h = h ^ (h >> np.uint32(13))
    h = h * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def dropout_keeps(keys, stream, elements, rate):
    """Which of each sample's elements dropout keeps, by the formula of make_networks.py: bool [n, elements]."""
    element = np.arange(elements, dtype=np.uint64)
    place = np.uint64(0x9E3779B97F4A7C15) * (np.uint64(stream << 32) + element + np.uint64(1))
    z = keys[:, None] + place[None, :]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) * 2.0**-24 >= np.float32(rate)


def labels(samples):
    """Labels of the samples with these indices: int64 [n]."""
    return (hash32(samples) % 10).astype(np.int64)


def pixels(samples):
    """Bytes of the images with these indices: uint32 [n, 28, 28], 0...255."""
    samples = np.asarray(samples, dtype=np.uint64)[:, None, None]
    y, x = np.meshgrid(np.arange(28, dtype=np.uint64), np.arange(28, dtype=np.uint64), indexing="ij")
    pattern = hash32(0x20000000 + 49 * labels(samples).astype(np.uint64) + 7 * (y // 4) + x // 4) >> 24
    noise = hash32(0x80000000 + 784 * samples + 28 * y + x) >> 24
    return np.where(pattern < 64, 128 + (noise >> 1), noise >> 3)


def lenet():
    net = nn.Sequential()
    for name, layer in [
        ("conv1", nn.Conv2d(1, 20, 3)), ("relu1", nn.ReLU()), ("pool1", nn.AvgPool2d(2)),
        ("conv2", nn.Conv2d(20, 50, 5)), ("relu2", nn.ReLU()), ("pool2", nn.AvgPool2d(2)),
        ("flatten", nn.Flatten()),
        ("fc1", nn.Linear(800, 128)), ("relu3", nn.ReLU()), ("fc2", nn.Linear(128, 10)),
    ]:
        net.add_module(name, layer)
    return net


def initialise(net):
    """Overwrites the parameters by the formula above."""
    offset = 0
    fan_in = 0
    for name, parameter in net.named_parameters():
        if name.endswith("weight"):
            fan_in = parameter[0].numel()
        index = np.arange(offset, offset + parameter.numel(), dtype=np.uint64)
        unit = (hash32(index) >> 8).astype(np.float64) * 2.0**-24 - 0.5
        values = (unit * (2 / np.sqrt(np.float64(fan_in)))).astype(np.float32)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values).reshape(parameter.shape))
        offset += parameter.numel()


def train(recipe, dtype):
    """Losses of all steps and the trained network."""
    net = lenet().to(dtype)
    initialise(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=recipe["lr"], momentum=recipe["momentum"],
                                weight_decay=recipe["weight_decay"], nesterov=recipe["nesterov"])
    losses = []
    for step in range(recipe["steps"]):
        samples = np.arange(step * recipe["batch"], (step + 1) * recipe["batch"])
        images = pixels(samples).astype(np.float32) / np.float32(255)
        batch = torch.from_numpy(images).to(dtype).unsqueeze(1)
        loss = nn.functional.cross_entropy(net(batch), torch.from_numpy(labels(samples)))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, net


def run(recipe):
    reference, net = train(recipe, torch.float64)
    single, _ = train(recipe, torch.float32)
    worst = max(abs(a - b) / b for a, b in zip(single, reference))
    print(f"{recipe['name']}: loss {reference[0]:.4f} -> {reference[-1]:.4f}, lowest {min(reference):.4f}; "
          f"float32 within {worst:.1e} of float64")
    final = {name: {"sum": float(f"{p.sum().item():.12g}"), "sum_of_squares": float(f"{p.square().sum().item():.12g}")}
             for name, p in net.named_parameters()}
    return {"recipe": recipe, "loss_float64": [float(f"{x:.10g}") for x in reference],
            "loss_float32": [float(f"{x:.8g}") for x in single], "final_parameters_float64": final}


def checks():
    net = lenet().double()
    initialise(net)
    flat = torch.cat([p.detach().flatten() for p in net.parameters()])
    first = pixels(np.arange(64))
    return {
        "hash32_of_0_1_2_4294967295": [int(h) for h in hash32([0, 1, 2, 4294967295])],
        "labels_of_samples_0_to_15": labels(np.arange(16)).tolist(),
        "bytes_of_sample_0_row_0": first[0, 0].tolist(),
        "sum_of_bytes_of_samples_0_to_63": int(first.sum()),
        "parameters": flat.numel(),
        "initial_parameters_0_to_3": flat[:4].tolist(),
        "sum_of_initial_parameters": flat.sum().item(),
        "sum_of_squares_of_initial_parameters": flat.square().sum().item(),
    }


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    result = {"made_by": f"PyTorch {torch.__version__}, tests/golden/make_lenet.py", "checks": checks(),
              "runs": [run(recipe) for recipe in RECIPES]}
    text = json.dumps(result, indent=1)
    # With one number per line, the file would have thousands of lines.
    path = pathlib.Path(__file__).with_name("lenet_sgd.json")
    path.write_text(pack_arrays(text) + "\n", encoding="utf-8")
    print(f"wrote {path.name}: {path.stat().st_size} bytes")


def pack_arrays(text, width=116):
    """Refills the lines of number arrays in indented JSON up to `width` columns."""
    out = []
    for line in text.split("\n"):
        stripped = line.strip()
        is_number = stripped[:1] in "-0123456789" and stripped.rstrip(",")[-1:].isdigit()
        if is_number and out and out[-1].strip()[:1] in "-0123456789" and len(out[-1]) + len(stripped) < width:
            out[-1] += " " + stripped
        else:
            out.append(line)
    return "\n".join(out)


if __name__ == "__main__":
    main()
