"""Steps of configs/cifar10-94-muon.cfg against PyTorch in double precision: groups of parameters and their rates, Muon with
normalised filters for the convolutions, SGD for the others, and the settings of airbench94_muon.py of
github.com/KellerJordan/cifar10-airbench, whose loss is a sum over the batch. In fp32 on random images without
augmentation, one step an epoch.

  airbench_muon.py PATH/TO/ddp_train

Each step begins at the weights and momenta that ddp_train had before it: a step of Muon turns every filter by a large
angle, whatever the size of the gradient, so that two trainings that begin alike differ by percents after seven steps. Exits with 0 if all agree, 1 if something differs, 77 if PyTorch is not installed."""

import os
import pathlib
import sys
import tempfile

from airbench import COUNT, STEPS, random_images, train, write_cifar10  # exits without PyTorch
import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from make_networks import Airbench94

CONFIG = 'cifar10-94-muon.cfg'
# Norms of differences relative to those of the step, of the momentum or of the statistics. Rounding errors are 5e-6, but
# where two values of a window of max pooling agree up to rounding, the gradient takes another way: one such window changes the
# step of a tensor by up to 4e-3, in PyTorch's fp32 as here. So the median over the steps is held to less than the worst.
MEDIAN_TOLERANCE = 1e-3
WORST_TOLERANCE = 2e-2


class Network(Airbench94):
    def forward(self, x):
        return super().forward(x) * 9 / 256


# What the program had after each step: [{tensors of the model}, {momenta}].
def states(program, folder):
    first = train(program, folder, 'first', CONFIG, '--lr', '0', '--muon-normalize', 'off', '--max-steps', '1')
    run = train(program, folder, 'run', CONFIG, '--keep-checkpoints', '100')
    weights = load_file(os.path.join(first, 'latest', 'model.safetensors'))
    found = [({name: value for name, value in weights.items() if 'running' not in name}, {})]
    for step in range(1, STEPS + 1):
        folder = pathlib.Path(run) / 'checkpoints' / f'step-{step:08}'
        momenta = {name.removeprefix('momentum.'): value
                   for name, value in load_file(folder / 'optimizer.safetensors').items() if name.startswith('momentum.')}
        found.append((load_file(folder / 'model.safetensors'), momenta))
    return found


def orthogonal(matrix):
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonal(matrix.T).T
    x = matrix / (matrix.norm() + 1e-7)
    for _ in range(3):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


# A step of Muon; `momentum` is changed.
def move_filters(weight, momentum, lr):
    momentum.mul_(0.6).add_(weight.grad)
    direction = orthogonal((weight.grad + 0.6 * momentum).flatten(1)).view_as(weight)
    weight.data = weight.data * (len(weight)**0.5 / weight.data.norm()) - lr * direction


# The network after a step from `before`, with the momenta of the mean loss.
def reference(before, images, labels, step):
    weights, momenta = before
    net = Network(3, 10).double()
    net.load_state_dict(weights, strict=False)
    net.whiten.weight.requires_grad_(False)
    biases = [p for name, p in net.named_parameters() if 'norm' in name and p.requires_grad]
    filters = [p for p in net.parameters() if p.dim() == 4 and p.requires_grad]
    bias_lr, head_lr = 0.053 * 2000 / COUNT, 0.67 * 2000 / COUNT  # for a sum over the batch
    decay = 2e-6 * 2000
    fades = max(0, 1 - step / 3)
    rest = 1 - step / STEPS
    groups = [{'params': [net.whiten.bias], 'lr': bias_lr * fades, 'weight_decay': decay / bias_lr},
              {'params': biases, 'lr': bias_lr * rest, 'weight_decay': decay / bias_lr},
              {'params': [net.head.weight], 'lr': head_lr * rest, 'weight_decay': decay / head_lr}]
    optimizer = torch.optim.SGD(groups, momentum=0.85, nesterov=True)
    buffers = {name: momenta[name].double() * COUNT if momenta else torch.zeros_like(p)
               for name, p in net.named_parameters() if p.requires_grad}
    names = {p: name for name, p in net.named_parameters()}
    for group in groups:
        for p in group['params']:
            optimizer.state[p]['momentum_buffer'] = buffers[names[p]]
    net.whiten.bias.requires_grad_(fades > 0)
    nn.CrossEntropyLoss(label_smoothing=0.2, reduction='sum')(net(images), labels).backward()
    optimizer.step()
    for p in filters:
        move_filters(p, buffers[names[p]], 0.24 * rest)
    return net.state_dict(), {name: value / COUNT for name, value in buffers.items()}


# {tensor: its difference}, and what else is wrong.
def compare(found, expected, before, step):
    problems = []
    apart = {}

    def note(name, a, b, scale):
        apart[name] = ((a - b).norm() / scale.norm()).item()

    for name, value in expected[0].items():
        if name.endswith(('num_batches_tracked', 'norm1.weight', 'norm2.weight')):
            continue
        if 'running' in name:
            note(name, found[0][name], value, value)
            continue
        fixed = name == 'whiten.weight' or name == 'whiten.bias' and step >= 3
        if fixed != torch.equal(found[0][name], before[0][name]):
            problems.append(f'step {step + 1}: {name} was {"" if fixed else "not "}trained')
        if not fixed:
            note(name, found[0][name], value, value - before[0][name])
            note('momentum of ' + name, found[1][name], expected[1][name], expected[1][name])
    return apart, problems


def judge(found, images, labels):
    problems = []
    differences = {}
    for step in range(STEPS):
        expected = reference(found[step], images.double(), labels, step)
        apart, wrong = compare(found[step + 1], expected, found[step], step)
        problems += wrong
        for name, value in apart.items():
            differences.setdefault(name, []).append(value)
    medians = {name: float(np.median(values)) for name, values in differences.items()}
    for name, values in differences.items():
        if not (medians[name] <= MEDIAN_TOLERANCE and max(values) <= WORST_TOLERANCE):
            problems.append(f'{name} differs by {medians[name]:.1e}, at most {max(values):.1e}')
    return max(medians.values()), max(map(max, differences.values())), problems


def main():
    torch.manual_seed(0)
    pixels, labels, images = random_images(3)
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, 'cifar10')
        os.mkdir(data)
        write_cifar10(data, pixels, labels)
        found = states(sys.argv[1], folder)
    median, worst, problems = judge(found, images, torch.from_numpy(labels).long())
    print(f'{"FAILED" if problems else "ok"}: differences {median:.1e}, at most {worst:.1e} {"; ".join(problems)}')
    sys.exit(1 if problems else 0)


if __name__ == '__main__':
    main()
