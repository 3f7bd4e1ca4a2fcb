"""Parts of modules besides layers: constants in forward(), buffers, free parameters, batch norm without parameters, zero
biases, a channels-last flatten. Each module is exported with the calls of docs/onnx.md, trained by the program for three
steps on one batch, and exported as safetensors, which must load strictly and agree with PyTorch's weights after the same
steps. With learning rate 0 the weights must be exactly the initial ones.

  recipes.py PATH/TO/ddp_train

Exits with 0 if all agree, 1 if something differs, 77 if PyTorch is not installed."""

import copy
import os
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import onnx  # noqa: F401
    import torch
    from safetensors.torch import load_file
except ImportError as error:
    print(f'skipped: {error}')
    sys.exit(77)
try:
    import onnxscript  # noqa: F401
    EXPORTERS = ['old', 'new']
except ImportError:
    EXPORTERS = ['old']
    print('without the newer exporter: onnxscript is not installed')
from torch import nn
from torch.nn import functional as F

COUNT = 32
STEPS = 3
RATE = 0.05
# Different orders of sums, over three steps.
TOLERANCE = 2e-4


class Recipe(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4, affine=False)
        self.conv3 = nn.Conv2d(4, 6, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(6)
        self.conv4 = nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.bn4 = nn.BatchNorm2d(6)
        self.g = nn.Parameter(torch.linspace(0.5, 1.5, 6).view(6, 1, 1))
        self.b = nn.Parameter(torch.linspace(-0.2, 0.2, 6).view(1, 6, 1, 1))
        self.register_buffer('mean', torch.tensor([0.4]).view(1, 1, 1))
        self.fc = nn.Linear(6 * 13 * 13, 10)
        nn.init.zeros_(self.conv.bias)
        nn.init.zeros_(self.conv2.bias)

    def forward(self, x):
        x = self.conv((x - self.mean) / 0.25)
        x = F.max_pool2d(F.relu(self.bn(self.conv2(x))), 2)
        x = F.relu(self.bn3(self.conv3(x)) + 0.1)
        x = F.relu(self.bn4(self.conv4(x))) * self.g + self.b
        return self.fc(x.permute(0, 2, 3, 1).flatten(1)) * 0.125


class Plain(nn.Module):
    """The end of ResNet-9: logits times a constant, and a linear layer without bias."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 5, 2)
        self.fc = nn.Linear(8, 10, bias=False)

    def forward(self, x):
        return 0.125 * self.fc(F.max_pool2d(F.relu(self.conv(x)), 12).flatten(1))


def export(module, path, exporter):
    example = torch.rand(2, 1, 28, 28)
    module.train()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        if exporter == 'new':
            torch.onnx.export(copy.deepcopy(module), (example,), path, dynamo=True, optimize=False, verbose=False,
                              dynamic_shapes=({0: torch.export.Dim('batch')},))
        else:
            # The exporter runs the module in training mode, which changes its running statistics.
            torch.onnx.export(module, (example,), path, dynamo=False, do_constant_folding=False,
                              training=torch.onnx.TrainingMode.TRAINING, input_names=['input'], output_names=['logits'],
                              dynamic_axes={'input': {0: 'batch'}, 'logits': {0: 'batch'}})


def write_idx(folder, pixels, labels):
    for split in ('train', 't10k'):
        with open(os.path.join(folder, f'{split}-images-idx3-ubyte'), 'wb') as file:
            file.write(bytes([0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, 28, 0, 0, 0, 28]) + pixels.tobytes())
        with open(os.path.join(folder, f'{split}-labels-idx1-ubyte'), 'wb') as file:
            file.write(bytes([0, 0, 8, 1, 0, 0, 0, COUNT]) + labels.tobytes())


def call(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    return '' if result.returncode == 0 else f'{" ".join(command[:2])}: {result.stderr.strip()}'


def check(program, folder, pixels, labels, module, exporter):
    name = type(module).__name__.lower() + '-' + exporter
    path = os.path.join(folder, name + '.onnx')
    export(module, path, exporter)
    problems = []
    for rate in (0, RATE):
        run = os.path.join(folder, f'{name}-{rate}')
        problem = call(program, 'train', '--model', path, '--dataset', 'mnist', '--data-dir', folder, '--global-batch', str(COUNT),
                       '--epochs', str(STEPS), '--normalize', 'none', '--lr', str(rate), '--momentum', '0.9', '--weight-decay',
                       '0.001', '--schedule', 'constant', '--device', 'cpu', '--threads', '1', '--progress', 'none',
                       '--log-level', 'warning', '--plan-cache', 'off', '--deterministic', '--output', run)
        problem = problem or call(program, 'export', '--run', run, '--to', run + '.safetensors')
        problem = problem or call(program, 'export', '--run', run, '--to', run + '.onnx')
        if problem:
            problems.append(problem)
            break
        wanted = copy.deepcopy(module).train()
        optimizer = torch.optim.SGD(wanted.parameters(), rate, momentum=0.9, weight_decay=0.001)
        images = torch.from_numpy(pixels).float().div(255).unsqueeze(1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            F.cross_entropy(wanted(images), torch.from_numpy(labels).long()).backward()
            optimizer.step()
        found = copy.deepcopy(module)
        try:
            found.load_state_dict(load_file(run + '.safetensors'), strict=True)
        except RuntimeError as error:
            problems.append(str(error))
            break
        for key, value in wanted.state_dict().items():
            if key.endswith('num_batches_tracked'):
                continue
            apart = (found.state_dict()[key].float() - value.float()).abs().max().item()
            exact = rate == 0 and key in dict(module.named_parameters())
            if not apart <= (0 if exact else TOLERANCE * max(1, value.abs().max().item())):
                problems.append(f'{key} differs by {apart:.1e} with rate {rate}')
    print(f'{"FAILED" if problems else "ok"} {name} {"; ".join(problems)}')
    return not problems


def main():
    torch.manual_seed(0)
    random = np.random.default_rng(3)
    pixels = random.integers(0, 256, (COUNT, 28, 28), dtype=np.uint8)
    labels = random.integers(0, 10, COUNT, dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        write_idx(folder, pixels, labels)
        good = [check(sys.argv[1], folder, pixels, labels, kind(), exporter)
                for kind in (Recipe, Plain) for exporter in EXPORTERS]
    sys.exit(0 if all(good) else 1)


main()
