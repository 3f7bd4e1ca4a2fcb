"""Imports torchvision's convolutional networks and compares the gradient of their first training step with PyTorch's: ours must be about
as near to PyTorch's in float64 as PyTorch's own in float32 is. If a value is near a kink of an activation, rounding decides on which
side, and the gradient of that batch differs by up to percents, in PyTorch as here; so our median over some batches is compared with
PyTorch's worst. Both exporters are tried if the package
onnxscript is installed.

  architectures.py PATH/TO/forward_onnx [NAME ...]

Exits with 0 if all agree, 1 if something differs, 77 if PyTorch or torchvision is not installed."""

import copy
import logging
import os
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import torch
    import torchvision
except ImportError as error:
    print(f'skipped: {error}')
    sys.exit(77)

# Sizes at which all of a network is used, as small as possible.
SIZES = {'inception_v3': 75}
# Adaptive pooling to a size that does not divide the image's, which only the newer exporter knows.
ADAPTIVE = ['alexnet']
NAMES = ['alexnet', 'convnext_tiny', 'densenet121', 'efficientnet_b0', 'efficientnet_v2_s', 'googlenet', 'inception_v3', 'mnasnet1_0', 'mobilenet_v2',
         'mobilenet_v3_large', 'mobilenet_v3_small', 'regnet_x_400mf', 'regnet_y_400mf', 'resnet18', 'resnext50_32x4d',
         'shufflenet_v2_x1_0', 'squeezenet1_1', 'vgg11', 'vgg11_bn', 'wide_resnet50_2']
COUNT = 4
BATCHES = 5
# Times PyTorch's own largest error in float32; sums in another order are as good.
FACTOR = 3
# What float32 cannot avoid, whatever PyTorch's luck.
LEAST = 1e-5


def make(name):
    """The module for 10 classes, without random numbers in training: dropout and stochastic depth are tested elsewhere."""
    extra = {'aux_logits': False, 'init_weights': False} if name in ('googlenet', 'inception_v3') else {}
    module = getattr(torchvision.models, name)(weights=None, num_classes=10, **extra)
    for part in module.modules():
        for rate in ('p', 'drop_rate', 'dropout'):
            if isinstance(getattr(part, rate, None), float):
                setattr(part, rate, 0.0)
    # Adaptive pooling to 7x7 would make most of the network one layer here; that of AlexNet stays, to 6x6.
    if name.startswith('vgg'):
        module.avgpool = torch.nn.Identity()
        module.classifier[0] = torch.nn.Linear(512 * 4, 4096)
    return module.train()


def gradients(module, images, dtype):
    module = copy.deepcopy(module).to(dtype).train()
    labels = torch.arange(COUNT) % 10
    torch.nn.functional.cross_entropy(module(images.to(dtype)), labels).backward()
    return {name: p.grad.double().numpy() for name, p in module.named_parameters()}


def export(module, example, path, exporter):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        if exporter == 'new':
            torch.onnx.export(module, (example,), path, dynamo=True, optimize=False, verbose=False,
                              dynamic_shapes=({0: torch.export.Dim('batch')},))
        else:
            torch.onnx.export(module, (example,), path, dynamo=False, do_constant_folding=False,
                              training=torch.onnx.TrainingMode.TRAINING, input_names=['input'], output_names=['logits'],
                              dynamic_axes={'input': {0: 'batch'}, 'logits': {0: 'batch'}})


def distance(found, wanted):
    norm = sum(float((wanted[name]**2).sum()) for name in wanted)
    return (sum(float(((found[name] - wanted[name])**2).sum()) for name in wanted) / norm)**0.5


def own_gradient(program, path, pixels):
    """By name, from the lines and the file that the program writes."""
    pixels.numpy().tofile(path + '.in')
    result = subprocess.run([program, '--gradient', path, path + '.in', str(COUNT), path + '.out'], capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip())
    flat = np.fromfile(path + '.out', np.float32).astype(np.float64)
    found, begin = {}, 0
    for line in result.stdout.splitlines():
        key, shape = line.split()
        extents = [int(extent) for extent in shape.split('x')]
        count = int(np.prod(extents))
        found[key] = flat[begin:begin + count].reshape(extents)
        begin += count
    return found


def check(program, folder, name, exporters):
    torch.manual_seed(0)
    module = make(name)
    size = SIZES.get(name, 64)
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randint(0, 256, (COUNT, 3, size, size), generator=generator).to(torch.uint8) for _ in range(BATCHES)]
    wanted = [gradients(module, pixels.float() / 255, torch.float64) for pixels in batches]
    own = [distance(gradients(module, pixels.float() / 255, torch.float32), right) for pixels, right in zip(batches, wanted)]
    all_good = True
    for exporter in exporters:
        if exporter == 'old' and name in ADAPTIVE:
            continue
        path = os.path.join(folder, 'net.onnx')
        export(copy.deepcopy(module), batches[0].float() / 255, path, exporter)
        what = f'{name}, {exporter} exporter'
        try:
            found = [own_gradient(program, path, pixels) for pixels in batches]
        except RuntimeError as error:
            print(f'FAILED {what}: {error}', flush=True)
            all_good = False
            continue
        if set(found[0]) != set(wanted[0]):
            print(f'FAILED {what}: parameters differ: {sorted(set(found[0]) ^ set(wanted[0]))[:6]}', flush=True)
            all_good = False
            continue
        errors = [distance(ours, right) for ours, right in zip(found, wanted)]
        good = np.median(errors) <= max(FACTOR * max(own), LEAST)
        all_good &= good
        print(f'{"ok" if good else "FAILED"} {what}: gradients differ from float64 by {min(errors):.0e} to {max(errors):.0e}, those of '
              f'PyTorch in float32 by {min(own):.0e} to {max(own):.0e}', flush=True)
    return all_good


def main():
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    try:
        import onnxscript  # noqa: F401
        exporters = ['old', 'new']
    except ImportError:
        exporters = ['old']
        print('without the newer exporter: onnxscript is not installed')
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[2:] or NAMES:
            good &= check(sys.argv[1], folder, name, exporters)
    sys.exit(0 if good else 1)


main()
