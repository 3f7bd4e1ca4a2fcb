"""Steps of configs/cifar10-94.cfg against PyTorch: whitening, groups of parameters, frozen parameters, Nesterov momentum,
label smoothing, the learning rate and Lookahead as in airbench94.py of github.com/KellerJordan/cifar10-airbench, whose
loss is a sum over the batch. In fp32 on random images without augmentation, one step an epoch.

  airbench.py PATH/TO/ddp_train

Exits with 0 if all agree, 1 if something differs, 77 if PyTorch is not installed."""

import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    from safetensors.torch import load_file
except ImportError as error:
    print(f'skipped: {error}')
    sys.exit(77)
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests' / 'golden'))
from make_networks import Airbench94  # noqa: E402

COUNT = 64
STEPS = 7
RISE = 2  # the step of the highest rate
# Different orders of sums over seven steps, relative to the largest value of a tensor. A wrong factor of any group, or a
# missing pull, changes more than a hundredth.
TOLERANCE = 4e-3


def call(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f'{" ".join(command)}: {result.stderr.strip()}')


def write_cifar10(folder, pixels, labels):
    names = [f'data_batch_{i}.bin' for i in range(1, 6)] + ['test_batch.bin']
    for name, part in zip(names, np.array_split(np.arange(COUNT), 5) + [np.arange(8)]):
        with open(os.path.join(folder, name), 'wb') as file:
            for i in part:
                file.write(bytes([labels[i]]) + pixels[i].tobytes())


# The folder of a run of a configuration in fp32 without augmentation, one step an epoch.
def train(program, folder, name, config, *options):
    run = os.path.join(folder, name)
    call(program, 'train', '--config', str(ROOT / 'configs' / config), '--data-dir', folder, '--precision', 'fp32',
         '--random-flip', 'off', '--random-crop-padding', '0', '--random-crop-fill', 'black', '--global-batch', str(COUNT),
         '--epochs', str(STEPS), '--device', 'cpu', '--threads', '1', '--progress', 'none', '--log-level', 'warning',
         '--plan-cache', 'off', '--deterministic', '--output', run, *options)
    return run


def trained(program, folder, name, *options):
    run = train(program, folder, name, 'cifar10-94.cfg', '--lookahead', '2', '--one-cycle-rise', str((RISE + 1) / STEPS), *options)
    call(program, 'export', '--run', run, '--to', run + '.safetensors')
    return load_file(run + '.safetensors')


# With weights of rate 0 nothing but the running statistics changes.
def initial(program, folder):
    return {name: value for name, value in trained(program, folder, 'first', '--lr', '0', '--max-steps', '1').items()
            if 'running' not in name}


def whitening(images):
    patches = images.double().unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 12)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    return vectors @ torch.diag(1 / (values + 5e-4)) @ vectors.T


def reference(net, images, labels):
    kilostep = 1 + 1 / (1 - 0.85)
    lr = 11.5 / kilostep / COUNT  # for a sum over the batch
    decay = 0.0153 / kilostep
    net.whiten.weight.requires_grad_(False)
    biases = [p for name, p in net.named_parameters() if 'norm' in name and p.requires_grad]
    others = [p for name, p in net.named_parameters() if 'norm' not in name and p.requires_grad]
    groups = [{'params': biases, 'lr': lr * 64, 'weight_decay': decay / (lr * 64)},
              {'params': others, 'lr': lr, 'weight_decay': decay / lr}]
    optimizer = torch.optim.SGD(groups, momentum=0.85, nesterov=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: float(np.interp(step, [0, RISE, STEPS - 1], [0.2, 1, 0.2 / 2.857])))
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.2, reduction='sum')
    slow = {key: value.clone() for key, value in net.state_dict().items()}

    def pull(keep):
        for key, value in net.state_dict().items():
            if value.dtype == torch.float:
                slow[key].lerp_(value, 1 - keep)
                value.copy_(slow[key])

    for step in range(STEPS):
        net.whiten.bias.requires_grad_(step < 3)
        optimizer.zero_grad(set_to_none=True)
        loss_of(net(images), labels).backward()
        optimizer.step()
        scheduler.step()
        if (step + 1) % 2 == 0:
            pull(0.95**5 * ((step + 1) / STEPS)**3)
    pull(1)
    return net.state_dict()


# Pixels and labels, and the images as a network sees them.
def random_images(seed):
    random = np.random.default_rng(seed)
    # Smooth images with noise, so that patches have large and small components.
    coarse = random.integers(0, 200, (COUNT, 3, 8, 8)).repeat(4, 2).repeat(4, 3)
    pixels = (coarse + random.integers(0, 56, (COUNT, 3, 32, 32))).astype(np.uint8)
    labels = random.integers(0, 10, COUNT, dtype=np.uint8)
    images = torch.from_numpy(pixels).float() / 255
    return pixels, labels, (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True, correction=0)


def main():
    pixels, labels, images = random_images(3)
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, 'cifar10')
        os.mkdir(data)
        write_cifar10(data, pixels, labels)
        first = initial(sys.argv[1], folder)
        found = trained(sys.argv[1], folder, 'run')
    weight = first['whiten.weight'].double().reshape(24, 12)
    wanted = whitening(images)
    if not torch.allclose(weight[:12].T @ weight[:12], wanted, atol=1e-5 * wanted.abs().max()):
        problems.append('the whitening differs')
    if not torch.equal(weight[:12], -weight[12:]):
        problems.append('the second half of the whitening is not the negative of the first')
    net = Airbench94(3, 10)
    net.load_state_dict(first, strict=False)
    worst = 0
    for key, value in reference(net, images, torch.from_numpy(labels).long()).items():
        if key.endswith('num_batches_tracked'):
            continue
        apart = ((found[key] - value).abs().max() / value.abs().max().clamp_min(1e-3)).item()
        worst = max(worst, apart)
        if not apart <= TOLERANCE:
            problems.append(f'{key} differs by {apart:.1e}')
        if key in first and key != 'whiten.weight' and 'norm' not in key and torch.equal(found[key], first[key]):
            problems.append(f'{key} was not trained')
    print(f'{"FAILED" if problems else "ok"}: largest difference {worst:.1e} {"; ".join(problems)}')
    sys.exit(1 if problems else 0)


if __name__ == '__main__':
    main()
