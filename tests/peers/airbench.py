"""Steps of configs/cifar10-94.cfg against PyTorch in double precision: whitening, groups of parameters, frozen parameters,
Nesterov momentum, label smoothing, the learning rate and Lookahead as in airbench94.py of
github.com/KellerJordan/cifar10-airbench, whose loss is a sum over the batch. In fp32 on random images without
augmentation, one step an epoch.

  airbench.py PATH/TO/ddp_train

Each step begins at the weights, momenta and slow weights that ddp_train had before it: where two values of a window of max
pooling agree up to rounding the gradient takes another way, so that two trainings that begin alike drift apart. Exits with
0 if all agree, 1 if something differs, 77 if PyTorch is not installed."""

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
# Norms of differences relative to those of the step, of the momentum or of the statistics. Rounding errors are 5e-6, but
# a window of max pooling as above changes the step of a tensor by up to 6e-3, in PyTorch's fp32 as here. So the median over
# the steps is held to less than the worst. A wrong factor of any group, or a missing pull, changes more than a hundredth.
MEDIAN_TOLERANCE = 1e-3
WORST_TOLERANCE = 2e-2


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


# What the program had after each step: [{tensors of the model}, {tensors of the optimizer}]. `first` are options for a run of
# one step with a rate of 0, which changes nothing but the running statistics.
def states(program, folder, config, first, *options):
    run = train(program, folder, 'first', config, '--lr', '0', '--max-steps', '1', *first)
    weights = load_file(os.path.join(run, 'latest', 'model.safetensors'))
    found = [({name: value for name, value in weights.items() if 'running' not in name}, {})]
    run = train(program, folder, 'run', config, '--keep-checkpoints', '100', *options)
    for step in range(1, STEPS + 1):
        checkpoint = pathlib.Path(run) / 'checkpoints' / f'step-{step:08}'
        found.append((load_file(checkpoint / 'model.safetensors'), load_file(checkpoint / 'optimizer.safetensors')))
    return found


# The tensors of an optimizer whose names begin with `kind.`.
def tensors_of(optimizer, kind):
    return {name.removeprefix(kind + '.'): value for name, value in optimizer.items() if name.startswith(kind + '.')}


# The momenta of the sum of the loss over the batch, for PyTorch.
def momenta_of(net, optimizer):
    saved = tensors_of(optimizer, 'momentum')
    return {name: saved[name].double() * COUNT if saved else torch.zeros_like(p)
            for name, p in net.named_parameters() if p.requires_grad}


def whitening(images):
    patches = images.double().unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 12)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    return vectors @ torch.diag(1 / (values + 5e-4)) @ vectors.T


# What Lookahead keeps of the network: slow weights, and slow running statistics, of all layers one after the other.
def slow_state(net, optimizer):
    slow = {name: value.clone() for name, value in net.state_dict().items() if value.dtype == torch.double}
    if optimizer:
        slow.update({name: value.double() for name, value in tensors_of(optimizer, 'lookahead').items()})
        rest = optimizer['running_statistics'][0, 1].double()
        for name in [name for name in slow if 'running' in name]:
            slow[name], rest = rest[:len(slow[name])], rest[len(slow[name]):]
    return slow


# The network after a step from `before`, with the momenta of the mean loss.
def reference(before, images, labels, step):
    weights, optimizer_before = before
    net = Airbench94(3, 10).double()
    net.load_state_dict(weights, strict=False)
    net.whiten.weight.requires_grad_(False)
    kilostep = 1 + 1 / (1 - 0.85)
    lr = 11.5 / kilostep / COUNT  # for a sum over the batch
    lr_of_biases = 64 * lr
    decay = 0.0153 / kilostep
    biases = [p for name, p in net.named_parameters() if 'norm' in name and p.requires_grad]
    others = [p for name, p in net.named_parameters() if 'norm' not in name and p.requires_grad]
    factor = float(np.interp(step, [0, RISE, STEPS - 1], [0.2, 1, 0.2 / 2.857]))
    groups = [{'params': biases, 'lr': lr_of_biases * factor, 'weight_decay': decay / lr_of_biases},
              {'params': others, 'lr': lr * factor, 'weight_decay': decay / lr}]
    optimizer = torch.optim.SGD(groups, momentum=0.85, nesterov=True)
    buffers = momenta_of(net, optimizer_before)
    for name, p in net.named_parameters():
        if name in buffers:
            optimizer.state[p]['momentum_buffer'] = buffers[name]
    slow = slow_state(net, optimizer_before)
    net.whiten.bias.requires_grad_(step < 3)
    nn.CrossEntropyLoss(label_smoothing=0.2, reduction='sum')(net(images), labels).backward()
    optimizer.step()

    def pull(keep):
        for name, value in net.state_dict().items():
            if name in slow:
                slow[name] = slow[name].lerp(value, 1 - keep)
                value.copy_(slow[name])

    if (step + 1) % 2 == 0:
        pull(0.95**5 * ((step + 1) / STEPS)**3)
    if step + 1 == STEPS:
        pull(1)
    moved = {name: p.grad is not None for name, p in net.named_parameters()}
    return net.state_dict(), {name: value / COUNT for name, value in buffers.items() if moved[name]}


# {tensor: its difference}, and what else is wrong. `fixed(name, step)`: whether a step leaves a parameter as it is.
def compare(found, expected, before, step, fixed):
    problems = []
    apart = {}
    momenta = tensors_of(found[1], 'momentum')

    def note(name, a, b, scale):
        apart[name] = ((a - b).norm() / scale.norm()).item()

    for name, value in expected[0].items():
        if name.endswith(('num_batches_tracked', 'norm1.weight', 'norm2.weight')):
            continue
        if 'running' in name:
            note(name, found[0][name], value, value)
            continue
        stays = fixed(name, step)
        if stays != torch.equal(found[0][name], before[0][name]):
            problems.append(f'step {step + 1}: {name} was {"" if stays else "not "}trained')
        if not stays:
            note(name, found[0][name], value, value - before[0][name])
            if name in expected[1]:
                note('momentum of ' + name, momenta[name], expected[1][name], expected[1][name])
    return apart, problems


# Compares all steps, prints the result and ends with it.
def judge(found, step_of, images, labels, fixed, problems):
    differences = {}
    for step in range(STEPS):
        expected = step_of(found[step], images.double(), labels, step)
        apart, wrong = compare(found[step + 1], expected, found[step], step, fixed)
        problems += wrong
        for name, value in apart.items():
            differences.setdefault(name, []).append(value)
    medians = {name: float(np.median(values)) for name, values in differences.items()}
    worst = {name: max(values) for name, values in differences.items()}
    for name in differences:
        if not (medians[name] <= MEDIAN_TOLERANCE and worst[name] <= WORST_TOLERANCE):
            problems.append(f'{name} differs by {medians[name]:.1e}, at most {worst[name]:.1e}')
    verdict = 'FAILED' if problems else 'ok'
    print(f'{verdict}: differences {max(medians.values()):.1e}, at most {max(worst.values()):.1e} {"; ".join(problems)}')
    sys.exit(1 if problems else 0)


# Pixels and labels, and the images as a network sees them.
def random_images(seed):
    random = np.random.default_rng(seed)
    # Smooth images with noise, so that patches have large and small components.
    coarse = random.integers(0, 200, (COUNT, 3, 8, 8)).repeat(4, 2).repeat(4, 3)
    pixels = (coarse + random.integers(0, 56, (COUNT, 3, 32, 32))).astype(np.uint8)
    labels = random.integers(0, 10, COUNT, dtype=np.uint8)
    images = torch.from_numpy(pixels).float() / 255
    return pixels, labels, (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True, correction=0)


# Images on which to train, and what states() says of it.
def run_on_random_images(*arguments):
    pixels, labels, images = random_images(3)
    with tempfile.TemporaryDirectory() as folder:
        write_cifar10(folder, pixels, labels)
        return images, torch.from_numpy(labels).long(), states(sys.argv[1], folder, *arguments)


def main():
    images, labels, found = run_on_random_images('cifar10-94.cfg', [], '--lookahead', '2', '--one-cycle-rise',
                                                 str((RISE + 1) / STEPS))
    problems = []
    weight = found[0][0]['whiten.weight'].double().reshape(24, 12)
    wanted = whitening(images)
    if not torch.allclose(weight[:12].T @ weight[:12], wanted, atol=1e-5 * wanted.abs().max()):
        problems.append('the whitening differs')
    if not torch.equal(weight[:12], -weight[12:]):
        problems.append('the second half of the whitening is not the negative of the first')

    # The bias is frozen before the fourth step, after which Lookahead still moves it. The last pull returns to the sixth step.
    def fixed(name, step):
        return name == 'whiten.weight' or name == 'whiten.bias' and step > 3 or step + 1 == STEPS

    judge(found, reference, images, labels, fixed, problems)


if __name__ == '__main__':
    main()
