#!/usr/bin/env python3
"""Runs every kind of layer forward and backward in PyTorch and writes what ddp_train must reproduce: layers.json beside this script.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    /tmp/torch/bin/python tests/golden/make_layers.py

Inputs, parameters, incoming gradients, running statistics and keys of samples are formulae over integers, so that the C++ test generates
bit-identical ones; hash32() is that of make_lenet.py. Element k of array `which` of a case with the number `seed` is
    u = (hash32(65536 * (8 * seed + which) + k) >> 8) * 2^-23 - 1,    from -1 to 1, exact in float32
with which = 0: x, 1: x2, 2: weight, 3: bias, 4: dy, 5: running means, 6: running variances (1.5 + u), 7: keys (hash32 alone).
x and x2 are u * input_scale of the case, the weights u * weight_scale; labels are the keys modulo the classes.

PyTorch computes in float64 from these; layers.json contains y, the gradients of sum(y * dy), running statistics after the training step,
and y of the evaluation that follows, rounded to 9 digits. No value is so close to a kink of an activation or a tie of a maximum that
rounding in single precision matters: the seed of a case is the first for which this holds.
"""

import json
import pathlib

import numpy as np
import torch
from torch.nn import functional as F

from make_lenet import dropout_keeps, hash32, pack_arrays

KINK = 2e-3  # minimum distance of all values from a kink


def uniform(seed, which, shape):
    k = np.arange(int(np.prod(shape)), dtype=np.uint64)
    u = (hash32(65536 * (8 * seed + which) + k) >> np.uint32(8)).astype(np.float64) * 2.0**-23 - 1
    return torch.from_numpy(u).reshape(shape)


def keys(seed, batch):
    return hash32(65536 * (8 * seed + 7) + np.arange(batch, dtype=np.uint64)).astype(np.uint64)


class Kinks:
    """Activations and maxima that record how close they came to a kink."""

    def __init__(self):
        self.nearest = float("inf")

    def near(self, x, kinks):
        for kink in kinks:
            self.nearest = min(self.nearest, (x - kink).abs().min().item())

    def act(self, name, x):
        self.near(x, {"relu": [0], "relu6": [0, 6]}.get(name, []))
        return {"none": lambda v: v, "relu": F.relu, "relu6": F.relu6, "sigmoid": torch.sigmoid, "tanh": torch.tanh}[name](x)

    def max_pool(self, x, window, stride, padding):
        columns = F.unfold(F.pad(x, [padding] * 4, value=-1e9), window, stride=stride)
        two = columns.reshape(x.shape[0], x.shape[1], window * window, -1).topk(2, dim=2).values
        self.nearest = min(self.nearest, (two[:, :, 0] - two[:, :, 1]).min().item())
        return F.max_pool2d(x, window, stride=stride, padding=padding)


def conv(c, k, t):
    y = F.conv2d(t["x"], t["weight"], t.get("bias"), stride=c["stride"], padding=c["padding"], groups=c["groups"],
                 dilation=c.get("dilation", 1))
    if c["relu"]:
        y = k.act("relu", y)
    return F.avg_pool2d(y, 2) if c["average_pool"] else y


def conv_transpose(c, k, t):
    return F.conv_transpose2d(t["x"], t["weight"], t["bias"], stride=c["stride"], padding=c["padding"], groups=c["groups"],
                              output_padding=c["output_padding"], dilation=c["dilation"])


def linear(c, k, t):
    y = F.linear(t["x"].flatten(1), t["weight"], t.get("bias"))
    return (k.act("relu", y) if c["relu"] else y)[:, :, None, None]


def batch_norm(c, k, t):
    y = F.batch_norm(t["x"], t["means"], t["variances"], t["weight"], t["bias"], training=t["training"], momentum=c["momentum"],
                     eps=float(np.float32(c["epsilon"])))
    return k.act(c["activation"], y + t["x2"] if c["add"] else y)


def pool(c, k, t):
    window, stride, padding = c["window"], c["stride"], c["padding"]
    if c["maximum"]:
        return k.max_pool(t["x"], window, stride, padding)
    return F.avg_pool2d(t["x"], window, stride=stride, padding=padding, count_include_pad=c["count_padding"])


def lrn(c, k, t):
    return F.local_response_norm(t["x"], c["size"], alpha=float(np.float32(c["alpha"])), beta=c["beta"], k=c["k"])


def dropout(c, k, t):
    """PyTorch's dropout arithmetic with the masks of ddp_train, as in make_networks.py."""
    if not t["training"]:
        return t["x"] * 1
    batch, channels = t["x"].shape[:2]
    mask = {"element": list(t["x"].shape), "channel": [batch, channels, 1, 1], "sample": [batch, 1, 1, 1]}[c["unit"]]
    keep = dropout_keeps(t["keys"], c["stream"], int(np.prod(mask[1:])), c["rate"])
    return t["x"] * torch.from_numpy(keep).reshape(mask) / (1 - c["rate"])


POINTWISE = {
    "silu": lambda x, alpha: F.silu(x),
    "hardswish": lambda x, alpha: F.hardswish(x),
    "hardsigmoid": lambda x, alpha: F.hardsigmoid(x),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "mish": lambda x, alpha: F.mish(x),
}


def pointwise(c, k, t):
    k.near(t["x"], {"hardswish": [-3, 3], "hardsigmoid": [-3, 3], "leaky_relu": [0], "elu": [0]}.get(c["function"], []))
    return POINTWISE[c["function"]](t["x"], float(np.float32(c["alpha"])))


def channel_select(c, k, t):
    x = t["x"][:, c["first"]:c["first"] + c["count"]]
    shape = x.shape
    return x.reshape(shape[0], c["groups"], c["count"] // c["groups"], *shape[2:]).transpose(1, 2).reshape(shape)


def prelu(c, k, t):
    k.near(t["x"], [0])
    return F.prelu(t["x"], t["weight"])


def sample_norm(c, k, t):
    if c["over"] == "groups":
        return F.group_norm(t["x"], c["groups"], t["weight"], t["bias"], c["epsilon"])
    last = F.layer_norm(t["x"].permute(0, 2, 3, 1), c["shape"][:1], t["weight"], t["bias"], c["epsilon"])
    return last.permute(0, 3, 1, 2)


LAYERS = {
    "conv": conv,
    "linear": linear,
    "activation": lambda c, k, t: k.act(c["activation"], t["x"]),
    "gelu": lambda c, k, t: F.gelu(t["x"], approximate=c["approximate"]),
    "pointwise": pointwise,
    "softmax": lambda c, k, t: F.softmax(t["x"], dim=1),
    "product": lambda c, k, t: t["x"] * t["x2"],
    "concat": lambda c, k, t: torch.cat((t["x"], t["x2"]), dim=1),
    "channel_select": channel_select,
    "pool": pool,
    "adaptive_pool": lambda c, k, t: F.adaptive_avg_pool2d(t["x"], c["size"]),
    "conv_transpose": conv_transpose,
    "pad": lambda c, k, t: F.pad(t["x"], c["pads"], mode=c["mode"]),
    "batch_norm": batch_norm,
    "add": lambda c, k, t: k.act(c["activation"], t["x"] + t["x2"]),
    "sample_norm": sample_norm,
    "prelu": prelu,
    "lrn": lrn,
    "dropout": dropout,
}


def conv_case(shape, channels, kernel, stride=1, padding=0, groups=1, bias=True, relu=False, average_pool=False):
    return {"op": "conv", "batch": 2, "shape": shape, "channels": channels, "kernel": kernel, "stride": stride, "padding": padding,
            "groups": groups, "bias": bias, "relu": relu, "average_pool": average_pool}


def pool_case(shape, maximum, window, stride, padding=0, count_padding=True):
    return {"op": "pool", "batch": 2, "shape": shape, "maximum": maximum, "window": window, "stride": stride, "padding": padding,
            "count_padding": count_padding}


def norm_case(shape, activation="none", add=False, momentum=0.1, epsilon=1e-5, batch=3, **scales):
    return {"op": "batch_norm", "batch": batch, "shape": shape, "activation": activation, "add": add, "momentum": momentum,
            "epsilon": epsilon, **scales}


def cases():
    yield conv_case([3, 6, 7], 5, 3, padding=1)
    yield conv_case([2, 9, 8], 4, 5, stride=2, padding=2, bias=False)
    yield conv_case([4, 5, 6], 6, 3, padding=1, groups=2)
    yield conv_case([6, 7, 7], 6, 3, stride=2, padding=1, groups=6, bias=False)
    yield conv_case([7, 4, 4], 5, 1)
    yield conv_case([2, 8, 6], 4, 3, padding=1, relu=True, average_pool=True)
    yield {"op": "linear", "batch": 5, "shape": [24, 1, 1], "outputs": 7, "bias": True, "relu": False}
    yield {"op": "linear", "batch": 4, "shape": [19, 1, 1], "outputs": 6, "bias": True, "relu": True}
    for activation in ["relu", "relu6", "sigmoid", "tanh"]:
        yield {"op": "activation", "batch": 2, "shape": [3, 4, 4], "activation": activation, "input_scale": 8}
    yield pool_case([3, 6, 7], True, 2, 2)
    yield pool_case([3, 7, 7], True, 3, 2, padding=1)
    yield pool_case([3, 6, 7], False, 2, 2)
    yield pool_case([3, 7, 7], False, 3, 2, padding=1)
    yield pool_case([3, 7, 7], False, 3, 2, padding=1, count_padding=False)
    yield pool_case([5, 6, 6], False, 6, 6)
    yield norm_case([4, 3, 4])
    yield norm_case([6, 1, 1], momentum=0.3, epsilon=1e-3, batch=7)
    yield norm_case([4, 3, 4], "relu")
    yield norm_case([4, 3, 4], "relu6", weight_scale=8)
    yield norm_case([4, 3, 4], "relu", add=True)
    yield {"op": "add", "batch": 2, "shape": [3, 4, 5], "activation": "none"}
    yield {"op": "add", "batch": 2, "shape": [3, 4, 5], "activation": "relu"}
    yield {"op": "lrn", "batch": 2, "shape": [7, 3, 4], "size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1}
    yield {"op": "lrn", "batch": 2, "shape": [9, 3, 3], "size": 4, "alpha": 2, "beta": 0.5, "k": 2, "input_scale": 2}
    for unit in ["element", "channel", "sample"]:
        yield {"op": "dropout", "batch": 3, "shape": [3, 4, 4], "rate": 0.3, "stream": 2, "unit": unit}
    for shared in [False, True]:
        yield {"op": "prelu", "batch": 3, "shape": [5, 3, 4], "shared": shared}
    for over, shape, groups in [("channels", [6, 3, 4], 1), ("channels", [17, 1, 1], 1), ("groups", [6, 3, 4], 2), ("groups", [4, 3, 3], 4)]:
        yield {"op": "sample_norm", "batch": 3, "shape": shape, "over": over, "groups": groups, "epsilon": 1e-6}
    for approximate in ["none", "tanh"]:
        yield {"op": "gelu", "batch": 2, "shape": [3, 4, 4], "approximate": approximate, "input_scale": 4}
    for function, alpha in [("silu", 0), ("hardswish", 0), ("hardsigmoid", 0), ("leaky_relu", 0.01), ("elu", 0.7), ("mish", 0)]:
        yield {"op": "pointwise", "batch": 2, "shape": [3, 4, 4], "function": function, "alpha": alpha, "input_scale": 8}
    yield {"op": "product", "batch": 3, "shape": [5, 3, 4], "per_channel": False}
    yield {"op": "product", "batch": 3, "shape": [5, 3, 4], "per_channel": True}
    yield {"op": "concat", "batch": 3, "shape": [2, 3, 4], "second_channels": 5}
    yield {"op": "channel_select", "batch": 3, "shape": [9, 2, 3], "first": 2, "count": 6, "groups": 1}
    yield {"op": "channel_select", "batch": 3, "shape": [12, 2, 3], "first": 0, "count": 12, "groups": 3}
    for kernel, stride, padding, groups, dilation in [(3, [2, 1], 2, 1, [2, 3]), (2, [1, 3], 1, 6, [3, 1]), (3, [1, 1], 2, 2, [2, 2])]:
        yield conv_case([6, 8, 9], 6, kernel, stride, padding, groups) | {"dilation": dilation}
    for kernel, stride, padding, output_padding, groups, dilation in [(3, [2, 2], 1, [1, 1], 1, [1, 1]), (2, [3, 1], 0, [2, 0], 2, [1, 2])]:
        yield {"op": "conv_transpose", "batch": 2, "shape": [4, 5, 4], "channels": 6, "kernel": kernel, "stride": stride,
               "padding": padding, "output_padding": output_padding, "groups": groups, "dilation": dilation}
    for size in [[3, 4], [7, 2], [9, 11]]:
        yield {"op": "adaptive_pool", "batch": 2, "shape": [3, 7, 5], "size": size}
    for mode in ["reflect", "replicate"]:
        yield {"op": "pad", "batch": 2, "shape": [3, 5, 4], "pads": [1, 3, 2, 0], "mode": mode}
    for shape in [[5, 3, 4], [37, 1, 1]]:
        yield {"op": "softmax", "batch": 3, "shape": shape, "input_scale": 8}


def parameter_shapes(c):
    channels = c["shape"][0]
    if c["op"] == "conv":
        weight = [c["channels"], channels // c["groups"], c["kernel"], c["kernel"]]
        return {"weight": weight} | ({"bias": [c["channels"]]} if c["bias"] else {})
    if c["op"] == "conv_transpose":
        return {"weight": [channels, c["channels"] // c["groups"], c["kernel"], c["kernel"]], "bias": [c["channels"]]}
    if c["op"] == "linear":
        return {"weight": [c["outputs"], channels], "bias": [c["outputs"]]}
    if c["op"] == "prelu":
        return {"weight": [1 if c["shared"] else channels]}
    return {"weight": [channels], "bias": [channels]} if c["op"] in ["batch_norm", "sample_norm"] else {}


def numbers(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().flatten().tolist()]


def run(c, seed):
    """The results of a case, and the distance to the nearest kink."""
    shape = [c["batch"], *c["shape"]]
    t = {"x": uniform(seed, 0, shape) * c.get("input_scale", 1), "training": True, "keys": keys(seed, c["batch"])}
    second = {"product": [c["batch"], c["shape"][0], 1, 1] if c.get("per_channel") else shape, "add": shape,
              "concat": [c["batch"], c.get("second_channels"), *c["shape"][1:]]}.get(c["op"], shape if c.get("add") else None)
    if second:
        t["x2"] = uniform(seed, 1, second) * c.get("input_scale", 1)
    for which, (name, size) in enumerate(parameter_shapes(c).items()):
        t[name] = uniform(seed, 2 + which, size) * (c.get("weight_scale", 1) if name == "weight" else 1)
    leaves = {name: t[name].requires_grad_() for name in ["x", "x2", "weight", "bias"] if name in t}
    if c["op"] == "batch_norm":
        t["means"], t["variances"] = uniform(seed, 5, shape[1:2]), 1.5 + uniform(seed, 6, shape[1:2])
    kinks = Kinks()
    y = LAYERS[c["op"]](c, kinks, t)
    (y * uniform(seed, 4, list(y.shape))).sum().backward()
    result = {"y": numbers(y)} | {f"d{name}": numbers(leaf.grad) for name, leaf in leaves.items()}
    if c["op"] == "batch_norm":
        result["statistics"] = numbers(t["means"]) + numbers(t["variances"])
    if c["op"] in ["batch_norm", "dropout"]:
        t["training"] = False
        result["y_in_evaluation"] = numbers(LAYERS[c["op"]](c, Kinks(), t))
    return result, kinks.nearest


def run_loss(smoothing, seed, batch=6, classes=10):
    """Softmax cross-entropy: the sum of the losses, and the gradient of the mean."""
    logits = (uniform(seed, 0, [batch, classes]) * 6).requires_grad_()
    labels = torch.from_numpy((keys(seed, batch) % classes).astype(np.int64))
    loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    (loss / batch).backward()
    return {"seed": seed, "batch": batch, "classes": classes, "smoothing": smoothing, "input_scale": 6, "loss_sum": loss.item(),
            "correct": int((logits.argmax(1) == labels).sum()), "dlogits": numbers(logits.grad)}


def main():
    torch.set_num_threads(1)
    layers = []
    seed = 1
    for c in cases():
        result, nearest = run(c, seed)
        while nearest < KINK:
            seed += 1
            result, nearest = run(c, seed)
        layers.append({**c, "seed": seed, **result})
        seed += 1
    losses = [run_loss(smoothing, seed + i) for i, smoothing in enumerate([0.0, 0.1])]
    made_by = f"PyTorch {torch.__version__}, tests/golden/make_layers.py"
    path = pathlib.Path(__file__).with_name("layers.json")
    path.write_text(pack_arrays(json.dumps({"made_by": made_by, "layers": layers, "losses": losses}, indent=1)) + "\n", encoding="utf-8")
    print(f"wrote {path.name}: {len(layers)} layers, {len(losses)} losses, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
