"""Steps of configs/cifar10-94-muon.cfg against PyTorch in double precision: groups of parameters and their rates, Muon with
normalised filters for the convolutions, SGD for the others, and the settings of airbench94_muon.py of
github.com/KellerJordan/cifar10-airbench, whose loss is a sum over the batch. In fp32 on random images without
augmentation, one step an epoch.

  airbench_muon.py PATH/TO/ddp_train

Each step begins at the weights and momenta that ddp_train had before it, as in airbench.py; besides, a step of Muon turns
every filter by a large angle, whatever the size of the gradient. Exits with 0 if all agree, 1 if something differs, 77 if
PyTorch is not installed."""

from airbench import COUNT, STEPS, judge, momenta_of, run_on_random_images  # exits without PyTorch
import torch
from torch import nn
from make_networks import Airbench94


class Network(Airbench94):
    def forward(self, x):
        return super().forward(x) * 9 / 256


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
    weights, optimizer_before = before
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
    buffers = momenta_of(net, optimizer_before)
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


def main():
    torch.manual_seed(0)
    images, labels, found = run_on_random_images('cifar10-94-muon.cfg', ['--muon-normalize', 'off'])
    judge(found, reference, images, labels,
          lambda name, step: name == 'whiten.weight' or name == 'whiten.bias' and step >= 3, [])


if __name__ == '__main__':
    main()
