#!/usr/bin/env python3
"""Updates weights with PyTorch's optimizers and writes what ddp_train's must reproduce: optimizers.json beside this script.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    /tmp/torch/bin/python tests/golden/make_optimizers.py

Everything is computed in float64 from inputs that are exact in float32. The file contains
    made_by      the version of PyTorch
    segments     offset and count of the parts of the flat buffer, each a tensor to PyTorch
    initial      the initial weights
    gradients    of each step
    lr           of each step: it varies, because some optimizers apply the learning rate inside the momentum
    optimizers   for each case: its settings by the names of UpdateSettings, factors of the segments, their rows if
                 they are matrices to Muon, and the weights
                 after some steps; with average_decay also the moving average
    schedules    for each case: the settings by the names of ScheduleConfig and the learning rate of each step

Optimizers that PyTorch lacks are implemented here after their sources: Keras' RMSprop (keras/src/optimizers/rmsprop.py of Keras
3), the form of Muon in airbench94_muon.py of github.com/KellerJordan/cifar10-airbench, LARS (You, Gitman and Ginsburg, Large Batch Training of Convolutional Networks, 2017, algorithm 1), LAMB (You et al.,
Large Batch Optimization for Deep Learning, ICLR 2020, algorithm 2, with phi the identity), SGD with the decoupled decay
of torch.optim.AdamW, and tf.compat.v1.train.exponential_decay.
"""

import json
import math
import pathlib

import torch
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

SEGMENTS = [(0, 18), (18, 6)]
COUNT = 24
STEPS = 20
SHOWN = [1, 2, 10, 20]


def squares(values):
    return math.sqrt(float((values * values).sum()))


class Keras(torch.optim.Optimizer):
    def __init__(self, params, lr, rho, epsilon, momentum):
        super().__init__(params, {"lr": lr, "rho": rho, "epsilon": epsilon, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                velocity = state.setdefault("velocity", torch.zeros_like(p))
                momentum = state.setdefault("momentum", torch.zeros_like(p))
                velocity.copy_(group["rho"] * velocity + (1 - group["rho"]) * p.grad * p.grad)
                increment = group["lr"] * p.grad / torch.sqrt(velocity + group["epsilon"])
                momentum.copy_(group["momentum"] * momentum + increment)
                p -= momentum


class Lars(torch.optim.Optimizer):
    def __init__(self, params, lr, trust, momentum, weight_decay):
        super().__init__(params, {"lr": lr, "trust": trust, "momentum": momentum, "weight_decay": weight_decay,
                                  "adapt": True})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                decay = group["weight_decay"]
                ratio = group["trust"] * squares(p) / (squares(p.grad) + decay * squares(p)) if group["adapt"] else 1
                velocity.copy_(group["momentum"] * velocity + group["lr"] * ratio * (p.grad + decay * p))
                p -= velocity


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr, beta1, beta2, epsilon, weight_decay):
        super().__init__(params, {"lr": lr, "beta1": beta1, "beta2": beta2, "epsilon": epsilon,
                                  "weight_decay": weight_decay, "adapt": True})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                m = state.setdefault("m", torch.zeros_like(p))
                v = state.setdefault("v", torch.zeros_like(p))
                t = state["t"] = state.get("t", 0) + 1
                m.copy_(group["beta1"] * m + (1 - group["beta1"]) * p.grad)
                v.copy_(group["beta2"] * v + (1 - group["beta2"]) * p.grad * p.grad)
                r = m / (1 - group["beta1"] ** t) / (torch.sqrt(v / (1 - group["beta2"] ** t)) + group["epsilon"])
                r = r + group["weight_decay"] * p
                p -= group["lr"] * (squares(p) / squares(r) if group["adapt"] else 1) * r


class DecoupledSgd(torch.optim.SGD):
    def __init__(self, params, lr, momentum, decay):
        super().__init__(params, lr, momentum=momentum)
        self.decay = decay

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p *= 1 - group["lr"] * self.decay
        super().step()


# The iteration of torch.optim.Muon without its rounding to bf16.
def orthogonal(grad, coefficients, steps, eps):
    a, b, c = coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if grad.size(0) > grad.size(1) else x


torch.optim._muon._zeropower_via_newtonschulz = orthogonal


class AirbenchMuon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum, steps):
        super().__init__(params, {"lr": lr, "momentum": momentum, "steps": steps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("buffer", torch.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(p.grad)
                step = p.grad + group["momentum"] * buffer
                p *= len(p) ** 0.5 / p.norm()
                p -= group["lr"] * orthogonal(step, (3.4445, -4.7750, 2.0315), group["steps"], 1e-7)


# Segments with rows are matrices for the optimizer that `make` returns; the others are trained by SGD.
class Matrices(torch.optim.Optimizer):
    def __init__(self, params, rows, make, **sgd):
        super().__init__(params, {"lr": 1})
        self.pairs = [(p, torch.nn.Parameter(p.data.view(n, -1))) for p, n in zip(params, rows) if n]
        self.inner = [make([view for _, view in self.pairs])]
        others = [p for p, n in zip(params, rows) if not n]
        if others:
            self.inner.append(torch.optim.SGD(others, 1, **sgd))

    @torch.no_grad()
    def step(self):
        for p, view in self.pairs:
            view.grad = p.grad.view(view.shape)
        for optimizer in self.inner:
            for group in optimizer.param_groups:
                group["lr"] = self.param_groups[0]["lr"]
            optimizer.step()


# The settings of a case, and their equivalents in PyTorch.
def cases():
    o = torch.optim
    adam = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
    yield {"rule": "sgd"}, lambda p: o.SGD(p, 1)
    yield {"rule": "sgd", "momentum": 0.9, "weight_decay": 0.01}, lambda p: o.SGD(p, 1, 0.9, weight_decay=0.01)
    yield ({"rule": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
           lambda p: o.SGD(p, 1, 0.9, weight_decay=0.01, nesterov=True))
    yield ({"rule": "sgd", "momentum": 0.9, "decoupled": True, "weight_decay": 0.1},
           lambda p: DecoupledSgd(p, 1, 0.9, 0.1))
    yield {"rule": "sgd", "momentum": 0.9, "clip_norm": 2.0}, lambda p: o.SGD(p, 1, 0.9)
    yield {"rule": "sgd", "momentum": 0.9, "clip_value": 0.5}, lambda p: o.SGD(p, 1, 0.9)
    yield ({"rule": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "cycles": True},
           lambda p: o.SGD(p, 1, 0.9, weight_decay=0.01, nesterov=True))
    yield {"rule": "sgd", "momentum": 0.5, "average_decay": 0.9}, lambda p: o.SGD(p, 1, 0.5)
    yield {"rule": "sgd", "average_decay": 0.6, "average_warmup": True}, lambda p: o.SGD(p, 1)
    yield {"rule": "adam", **adam}, lambda p: o.Adam(p, 1)
    yield ({"rule": "adam", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 0.05},
           lambda p: o.Adam(p, 1, (0.8, 0.95), 1e-3, 0.05))
    yield ({"rule": "adam", **adam, "weight_decay": 0.05, "decoupled": True, "average_decay": 0.99},
           lambda p: o.AdamW(p, 1, weight_decay=0.05))
    yield ({"rule": "adam", **adam, "weight_decay": 0.05, "decoupled": True, "clip_norm": 1.0, "lr_scales": [1, 2],
            "decay_scales": [1, 0]},
           lambda p: o.AdamW([{"params": p[:1]}, {"params": p[1:], "factor": 2, "weight_decay": 0}], 1,
                             weight_decay=0.05))
    yield {"rule": "adam", **adam, "weight_decay": 0.05, "cycles": True}, lambda p: o.Adam(p, 1, weight_decay=0.05)
    yield {"rule": "adam", **adam, "clip_value": 0.1}, lambda p: o.Adam(p, 1)
    yield {"rule": "rmsprop", "rho": 0.99, "epsilon": 1e-8}, lambda p: o.RMSprop(p, 1)
    yield ({"rule": "rmsprop", "rho": 0.9, "epsilon": 1e-2, "momentum": 0.9, "cycles": True},
           lambda p: o.RMSprop(p, 1, 0.9, 1e-2, 0, 0.9))
    yield ({"rule": "rmsprop", "rho": 0.9, "epsilon": 1e-2, "momentum": 0.9, "weight_decay": 0.01},
           lambda p: o.RMSprop(p, 1, 0.9, 1e-2, 0.01, 0.9))
    yield ({"rule": "rmsprop", "keras": True, "rho": 0.9, "epsilon": 1e-2}, lambda p: Keras(p, 1, 0.9, 1e-2, 0.0))
    yield ({"rule": "rmsprop", "keras": True, "rho": 0.9, "epsilon": 1e-7, "momentum": 0.9},
           lambda p: Keras(p, 1, 0.9, 1e-7, 0.9))
    yield {"rule": "lars", "trust": 0.1}, lambda p: Lars(p, 1, 0.1, 0, 0)
    yield ({"rule": "lars", "trust": 0.02, "momentum": 0.9, "weight_decay": 0.01, "decay_scales": [1, 0],
            "adapts": [True, False]},
           lambda p: Lars([{"params": p[:1]}, {"params": p[1:], "weight_decay": 0, "adapt": False}], 1, 0.02, 0.9,
                          0.01))
    yield ({"rule": "lamb", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6}, lambda p: Lamb(p, 1, 0.9, 0.999, 1e-6, 0))
    yield ({"rule": "lamb", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6, "weight_decay": 0.1, "clip_norm": 1.5,
            "lr_scales": [1, 0.5]},
           lambda p: Lamb([{"params": p[:1]}, {"params": p[1:], "factor": 0.5}], 1, 0.8, 0.95, 1e-6, 0.1))
    yield ({"rule": "lamb", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6, "clip_value": 0.3, "cycles": True},
           lambda p: Lamb(p, 1, 0.9, 0.999, 1e-6, 0))


    for rows in ([3, 0], [6, 2], [9, 6], [18, 0]):
        yield ({"rule": "muon", "momentum": 0.9, "nesterov": True, "rows": rows},
               lambda p, rows=rows: Matrices(p, rows, lambda q: o.Muon(q, 1, weight_decay=0), momentum=0.9,
                                             nesterov=True))
    yield ({"rule": "muon", "momentum": 0.8, "weight_decay": 0.1, "decoupled": True, "decay_scales": [1, 0],
            "muon_scale": "rms", "muon_momentum": 0.8, "rows": [3, 0], "clip_norm": 2.0, "average_decay": 0.9},
           lambda p: Matrices(p, [3, 0], lambda q: o.Muon(q, 1, 0.1, 0.8, adjust_lr_fn="match_rms_adamw"),
                              momentum=0.8))
    yield ({"rule": "muon", "momentum": 0.85, "nesterov": True, "muon_scale": "none", "muon_momentum": 0.6,
            "muon_steps": 3, "muon_normalizes": True, "rows": [3, 0]},
           lambda p: Matrices(p, [3, 0], lambda q: AirbenchMuon(q, 1, 0.6, 3), momentum=0.85, nesterov=True))


# Momentum and beta1 of the cases that have "cycles".
def set_momentum(group, momentum):
    if "betas" in group:
        group["betas"] = (momentum, group["betas"][1])
    else:
        group["beta1" if "beta1" in group else "momentum"] = momentum


def run(settings, make, initial, gradients, rates, momenta):
    model = torch.nn.ParameterList([torch.nn.Parameter(initial[b:b + n].clone()) for b, n in SEGMENTS])
    optimizer = make(list(model))
    decay = settings.get("average_decay", 0)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    average.update_parameters(model)  # the first call copies
    warm = initial.clone()
    result = {"settings": settings, "weights": {}, "average": {}}
    for step in range(STEPS):
        for p, (b, n) in zip(model, SEGMENTS):
            p.grad = gradients[step][b:b + n].clone()
        if "clip_norm" in settings:
            torch.nn.utils.clip_grad_norm_(list(model), settings["clip_norm"])
        if "clip_value" in settings:
            torch.nn.utils.clip_grad_value_(list(model), settings["clip_value"])
        for group in optimizer.param_groups:
            group["lr"] = rates[step] * group.get("factor", 1)
            if settings.get("cycles"):
                set_momentum(group, momenta[step])
        optimizer.step()
        flat = torch.cat([p.detach() for p in model])
        average.update_parameters(model)
        keep = min(decay, (1 + step) / (10 + step))
        warm = keep * warm + (1 - keep) * flat
        if step + 1 in SHOWN:
            result["weights"][step + 1] = flat.tolist()
            if decay:
                mean = torch.cat([p.detach() for p in average.module])
                result["average"][step + 1] = (warm if settings.get("average_warmup") else mean).tolist()
    return result


# The learning rates and momenta that a scheduler gives in `steps` steps, called after each or after each epoch.
def rates_of(make, steps, epoch, lr):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr)
    scheduler = make(optimizer)
    rates, momenta = [], []
    for step in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        if (step + 1) % epoch == 0 and step + 1 < steps:
            scheduler.step()
    return rates, momenta


def schedules():
    s = lr_scheduler
    steps, epoch, lr = 48, 4, 0.4
    whole = {"lr": lr, "steps_per_epoch": epoch, "total_steps": steps}

    def warm(o):
        return s.SequentialLR(o, [s.LinearLR(o, 1 / 6, total_iters=5), s.CosineAnnealingLR(o, steps - 6, 0.01)], [6])

    for settings, unit, make in [
        ({"kind": "constant"}, 1, lambda o: s.ConstantLR(o, 1)),
        ({"kind": "step", "gamma": 0.5, "interval_steps": 12}, epoch, lambda o: s.StepLR(o, 3, 0.5)),
        ({"kind": "step", "gamma": 0.5, "interval_steps": 5}, 1, lambda o: s.StepLR(o, 5, 0.5)),
        ({"kind": "multi-step", "gamma": 0.1, "milestones": [2, 5, 9], "by_epoch": True}, epoch,
         lambda o: s.MultiStepLR(o, [2, 5, 9])),
        ({"kind": "multi-step", "gamma": 0.3, "milestones": [7, 30]}, 1, lambda o: s.MultiStepLR(o, [7, 30], 0.3)),
        ({"kind": "cosine", "lr_min": 0.02}, 1, lambda o: s.CosineAnnealingLR(o, steps, 0.02)),
        ({"kind": "cosine", "by_epoch": True}, epoch, lambda o: s.CosineAnnealingLR(o, steps // epoch)),
        ({"kind": "cosine", "lr_min": 0.01, "warmup_steps": 6}, 1, warm),
        ({"kind": "one-cycle"}, 1, lambda o: s.OneCycleLR(o, lr, total_steps=steps, cycle_momentum=False)),
        ({"kind": "one-cycle", "rise": 0.45, "div": 10, "final_div": 100, "by_epoch": True}, epoch,
         lambda o: s.OneCycleLR(o, lr, total_steps=steps // epoch, pct_start=0.45, div_factor=10,
                                final_div_factor=100, cycle_momentum=False)),
        ({"kind": "one-cycle", "anneal": "linear", "rise": 0.25, "div": 5, "final_div": 2.5}, 1,
         lambda o: s.OneCycleLR(o, lr, total_steps=steps, pct_start=0.25, anneal_strategy="linear", div_factor=5,
                                final_div_factor=2.5, cycle_momentum=False)),
        ({"kind": "one-cycle", "high_momentum": 0.95, "low_momentum": 0.85}, 1,
         lambda o: s.OneCycleLR(o, lr, total_steps=steps)),
        ({"kind": "one-cycle", "rise": 0.4, "high_momentum": 0.9, "low_momentum": 0.7, "by_epoch": True}, epoch,
         lambda o: s.OneCycleLR(o, lr, total_steps=steps // epoch, pct_start=0.4, base_momentum=0.7, max_momentum=0.9)),
        ({"kind": "polynomial"}, 1, lambda o: s.PolynomialLR(o, steps)),
        ({"kind": "polynomial", "power": 2, "by_epoch": True}, epoch, lambda o: s.PolynomialLR(o, steps // epoch, 2)),
        ({"kind": "exponential", "gamma": 0.9, "interval_steps": epoch, "by_epoch": True}, epoch,
         lambda o: s.ExponentialLR(o, 0.9)),
        ({"kind": "exponential", "gamma": 0.8, "interval_steps": 10}, 1,
         lambda o: s.LambdaLR(o, lambda t: 0.8 ** (t / 10))),
        ({"kind": "exponential", "gamma": 0.8, "interval_steps": 10, "staircase": True}, 1,
         lambda o: s.LambdaLR(o, lambda t: 0.8 ** (t // 10))),
    ]:
        rates, momenta = rates_of(make, steps, unit, lr)
        yield {"settings": {**whole, **settings}, "lr": rates, "momentum": momenta}


def main():
    torch.manual_seed(20)
    torch.set_default_dtype(torch.float64)
    initial = torch.randn(COUNT).float().double()
    gradients = torch.randn(STEPS, COUNT).float().double()
    rates = [0.05 * (1 - step / 40) for step in range(STEPS)]
    momenta = [0.95 - 0.1 * step / STEPS for step in range(STEPS)]
    result = {
        "made_by": "PyTorch " + torch.__version__,
        "segments": SEGMENTS,
        "initial": initial.tolist(),
        "gradients": gradients.tolist(),
        "lr": rates,
        "momentum": momenta,
        "optimizers": [run(settings, make, initial, gradients, rates, momenta) for settings, make in cases()],
        "schedules": list(schedules()),
    }
    path = pathlib.Path(__file__).with_name("optimizers.json")
    path.write_text(json.dumps(result, indent=None, separators=(",", ":")).replace('{"settings"', '\n{"settings"') + "\n")


if __name__ == "__main__":
    main()
