"""airbench94 in PyTorch on CIFAR-10's binary files: the training of airbench94.py of
github.com/KellerJordan/cifar10-airbench, which configs/cifar10-94.cfg repeats. Where both end at the same accuracy on the
same files, the files set it and not the program (docs/accuracy.md).

  airbench_training.py FOLDER                     # with data_batch_1.bin to data_batch_5.bin and test_batch.bin
  airbench_training.py FOLDER --seed 2 --precision fp32

On the CPU. Prints the loss and accuracy on the test set after each epoch, as ddp_train's --eval-views plain, and those of
the last weights as its --eval-views mirror-shift. Exits with 77 if PyTorch is not installed. Not a test by itself:
airbench_evaluation.py uses the evaluation."""

import argparse
import math
import os
import pathlib
import sys
import time

# Read by PyTorch when it is loaded: tensors in huge pages, since most of a step's system time are page faults.
os.environ.setdefault('THP_MEM_ALLOC_ENABLE', '1')
try:
    import numpy as np
    import torch
except ImportError as error:
    print(f'skipped: {error}')
    sys.exit(77)
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'golden'))
from make_networks import Airbench94  # noqa: E402

BATCH = 1024
MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1)
DEVIATION = torch.tensor([0.2470, 0.2435, 0.2616]).view(1, 3, 1, 1)
CLASSES = 10
PADDING = 2


# Pixels between 0 and 1, and labels.
def read_cifar10(folder, names):
    records = np.concatenate([np.fromfile(os.path.join(folder, name), np.uint8).reshape(-1, 3073) for name in names])
    return torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32)).float() / 255, torch.from_numpy(records[:, 0]).long()


# Principal components of the 2x2 patches, the largest first, each divided by its deviation, and their negatives.
def whitening(images):
    patches = images.double().unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 12)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    half = (vectors / torch.sqrt(values + 5e-4)).T.flip(0).reshape(12, 3, 2, 2)
    return torch.cat([half, -half])


class Fp32Conv2d(nn.Conv2d):
    def forward(self, x):
        with torch.autocast('cpu', enabled=False):
            return super().forward(x)


# The published runs are in fp16. bf16 rounds the pixels and the whitening's large weights more than that, which `mixed`
# avoids: its first convolution is in fp32.
def make_net(images, precision):
    net = Airbench94(3, CLASSES)
    if precision == 'mixed':
        net.whiten = Fp32Conv2d(3, 24, 2)
    with torch.no_grad():
        for group in (net.group1, net.group2, net.group3):
            for conv in (group.conv1, group.conv2):
                nn.init.dirac_(conv.weight[:conv.weight.shape[1]])
        net.whiten.weight.copy_(whitening(images[:5000]))
        net.whiten.bias.zero_()
    net.whiten.weight.requires_grad_(False)
    return net.to(memory_format=torch.channels_last)


def logits_of(net, x, precision='fp32'):
    with torch.autocast('cpu', torch.bfloat16, enabled=precision != 'fp32'):
        return net(x.contiguous(memory_format=torch.channels_last)).float()


# Half of the image and its mirror image, half of those shifted by one pixel along the diagonal, both ways.
def logits_of_views(net, x, precision='fp32'):
    padded = F.pad(x, (1,) * 4, 'reflect')
    pairs = [sum(logits_of(net, view, precision) for view in (y, y.flip(-1))) / 2
             for y in (x, padded[..., :-2, :-2], padded[..., 2:, 2:])]
    return pairs[0] / 2 + (pairs[1] + pairs[2]) / 4


# The mean loss, without label smoothing, and the accuracy.
def evaluate(net, images, labels, logits, precision='fp32'):
    net.eval()
    with torch.no_grad():
        found = torch.cat([logits(net, x, precision) for x in images.split(1000)])
    net.train()
    return F.cross_entropy(found, labels).item(), (found.argmax(1) == labels).float().mean().item()


# The images of an epoch: each shifted by up to PADDING pixels, and in every second epoch the mirror image of the others'.
def augmented(padded, epoch):
    shifts = torch.randint(0, 2 * PADDING + 1, (len(padded), 2))
    images = torch.empty(len(padded), 3, 32, 32)
    for y in range(2 * PADDING + 1):
        for x in range(2 * PADDING + 1):
            chosen = ((shifts[:, 0] == y) & (shifts[:, 1] == x)).nonzero()[:, 0]
            images[chosen] = padded[chosen, :, y:y + 32, x:x + 32]
    return images.flip(-1) if epoch % 2 == 1 else images


# SGD, its schedule and Lookahead.
class Optimizer:
    def __init__(self, net, steps):
        self.net, self.steps, self.done = net, steps, 0
        # For the sum of the loss over a batch.
        scale = BATCH * (1 + 1 / (1 - 0.85))
        lr, decay = 11.5 / scale, 0.0153 * BATCH / scale
        biases = [p for name, p in net.named_parameters() if 'norm' in name and p.requires_grad]
        others = [p for name, p in net.named_parameters() if 'norm' not in name and p.requires_grad]
        self.sgd = torch.optim.SGD([{'params': biases, 'lr': 64 * lr, 'weight_decay': decay / (64 * lr)},
                                    {'params': others, 'lr': lr, 'weight_decay': decay / lr}], momentum=0.85, nesterov=True)
        turns = [0, int(0.23 * steps), steps]
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.sgd, lambda i: float(np.interp(i, turns, [0.2, 1, 0.07])))
        self.slow = {name: value.clone() for name, value in net.state_dict().items()}

    def pull(self, keep):
        for name, value in self.net.state_dict().items():
            if value.is_floating_point():
                value.copy_(self.slow[name].lerp_(value, 1 - keep))

    def step(self, loss):
        self.sgd.zero_grad()
        loss.backward()
        self.sgd.step()
        self.schedule.step()
        self.done += 1
        if self.done % 5 == 0:
            self.pull(0.95**5 * (self.done / self.steps)**3)
        if self.done == self.steps:
            self.pull(1)


def train(net, images, labels, epochs, precision, report):
    steps_per_epoch = len(images) // BATCH
    optimizer = Optimizer(net, math.ceil(steps_per_epoch * epochs))
    mirrored = (torch.rand(len(images)) < 0.5).view(-1, 1, 1, 1)
    padded = F.pad(torch.where(mirrored, images.flip(-1), images), (PADDING,) * 4, 'reflect')
    for epoch in range(math.ceil(epochs)):
        net.whiten.bias.requires_grad_(epoch < 3)
        shown = augmented(padded, epoch)
        losses = []
        for chosen in torch.randperm(len(images)).split(BATCH)[:min(steps_per_epoch, optimizer.steps - optimizer.done)]:
            loss = F.cross_entropy(logits_of(net, shown[chosen], precision), labels[chosen], label_smoothing=0.2,
                                   reduction='sum')
            optimizer.step(loss)
            losses.append(loss.item() / BATCH)
        report(epoch + 1, optimizer.done, sum(losses) / len(losses))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('folder', help='with the files of CIFAR-10')
    parser.add_argument('--epochs', type=float, default=9.9)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--precision', choices=['fp32', 'bf16', 'mixed'], default='bf16',
                        help='mixed: bf16 but for the first convolution')
    args = parser.parse_args()
    print(f'PyTorch {torch.__version__}, {torch.get_num_threads()} threads, {args.precision}, seed {args.seed}, '
          f'{args.epochs:g} epochs', flush=True)
    torch.manual_seed(args.seed)
    (images, labels), test = [read_cifar10(args.folder, names) for names in
                              ([f'data_batch_{i}.bin' for i in range(1, 6)], ['test_batch.bin'])]
    images, test = (images - MEAN) / DEVIATION, ((test[0] - MEAN) / DEVIATION, test[1])
    net = make_net(images, args.precision).train()
    start = time.monotonic()

    def report(epoch, step, train_loss):
        loss, accuracy = evaluate(net, *test, logits_of, args.precision)
        print(f'epoch {epoch:2}  step {step:3}  train loss {train_loss:.4f}  val loss {loss:.4f}  val accuracy {accuracy:.4f}'
              f'  {time.monotonic() - start:5.0f} s', flush=True)

    train(net, images, labels, args.epochs, args.precision, report)
    loss, accuracy = evaluate(net, *test, logits_of_views, args.precision)
    print(f'mirror-shift  val loss {loss:.4f}  val accuracy {accuracy:.4f}')


if __name__ == '__main__':
    main()
