"""Compares `ddp_train export` with PyTorch and ONNX Runtime: some models are trained for two steps and exported. Their
safetensors files must load strictly into the modules of the same name, and the modules, the ONNX files in ONNX Runtime (batch
norm folded or not) and the program's own network must give the same logits.

  exports.py PATH/TO/ddp_train PATH/TO/forward_onnx

Exits with 0 if all agree, 1 if something differs, 77 if PyTorch is not installed."""

import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    import torch
    import torchvision
    from safetensors import safe_open
    from safetensors.torch import load_file
except ImportError as error:
    print(f'skipped: {error}')
    sys.exit(77)
from torch import nn

TOLERANCE = 1e-4
COUNT = 4
# Too deep for images of 28x28; these are trained on colour images of 32x32.
COLOUR = ('convnext-tiny',)


class LeNet(nn.Module):
    """As in "Dive into Deep Learning", chapter "Training on Multiple GPUs"."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = nn.functional.avg_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.avg_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(torch.flatten(x, 1))))


def resnet18():
    module = torchvision.models.resnet18(num_classes=10)
    module.conv1 = nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    return module


def mobilenet_v2():
    module = torchvision.models.mobilenet_v2(num_classes=10)
    module.features[0][0] = nn.Conv2d(1, 32, 3, 2, 1, bias=False)
    return module


def mobilenet_v3_small():
    module = torchvision.models.mobilenet_v3_small(num_classes=10)
    module.features[0][0] = nn.Conv2d(1, 16, 3, 2, 1, bias=False)
    return module


def convnext_tiny():
    return torchvision.models.convnext_tiny(num_classes=10)


def efficientnet_b0():
    module = torchvision.models.efficientnet_b0(num_classes=10)
    module.features[0][0] = nn.Conv2d(1, 32, 3, 2, 1, bias=False)
    return module


def shufflenet_v2():
    module = torchvision.models.shufflenet_v2_x1_0(num_classes=10)
    module.conv1[0] = nn.Conv2d(1, 24, 3, 2, 1, bias=False)
    return module


def squeezenet():
    module = torchvision.models.squeezenet1_1(num_classes=10)
    module.features[0] = nn.Conv2d(1, 64, 3, 2)
    return module


def call(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f'FAILED {" ".join(command)}: {result.stderr.strip()}')


def check(program, forward, folder, name, module):
    run = os.path.join(folder, name)
    channels, size = (3, 32) if name in COLOUR else (1, 28)
    data = ('--dataset', 'synthetic', '--image-size', '32') if name in COLOUR else ()
    call(program, '--model', name, *data, '--train-limit', '32', '--test-limit', '8', '--global-batch', '16', '--epochs', '1',
         '--deterministic', '--normalize', 'standard', '--lr', '0.01', '--output', run, '--progress', 'none', '--log-level', 'error')
    weights, plain, folded = run + '.safetensors', run + '.onnx', run + '-folded.onnx'
    call(program, 'export', '--run', run, '--format', 'safetensors', '--to', weights)
    call(program, 'export', '--run', run, '--to', plain)
    call(program, 'export', '--run', run, '--fold-batch-norm', '--to', folded)
    module.load_state_dict(load_file(weights), strict=True)
    halves = {}
    for precision, dtype in (('fp16', torch.float16), ('bf16', torch.bfloat16)):
        rounded = run + '-' + precision + '.safetensors'
        call(program, 'export', '--run', run, '--export-precision', precision, '--to', rounded)
        expected = {key: value.to(dtype) if value.is_floating_point() else value for key, value in load_file(weights).items()}
        found = load_file(rounded)
        if found.keys() != expected.keys() or any(not torch.equal(found[key], value) for key, value in expected.items()):
            sys.exit(f'{rounded}: not the tensors of {weights} in {precision}')
        # The ONNX file computes with the same rounded tensors in float32.
        half = run + '-' + precision + '.onnx'
        call(program, 'export', '--run', run, '--export-precision', precision, '--to', half)
        halves[half] = {key: value.float() for key, value in expected.items()}
        call(program, 'export', '--run', run, '--fold-batch-norm', '--export-precision', precision, '--to', run + '-folded-half.onnx')
        onnx.checker.check_model(onnx.load(run + '-folded-half.onnx'), full_check=True)
    with safe_open(weights, 'pt') as file:
        metadata = file.metadata()
    pixels = torch.randint(0, 256, (COUNT, channels, size, size), generator=torch.Generator().manual_seed(2)).to(torch.uint8)
    # The input of forward_onnx, which does not apply mean and std.
    images = pixels.float() / 255
    with torch.no_grad():
        expected = module.eval()(images).numpy()
    pixels.numpy().tofile(run + '.in')
    call(forward, plain, run + '.in', str(COUNT), run + '.out')
    results = {'network': np.fromfile(run + '.out', np.float32).reshape(expected.shape)}
    problems = []
    for path in (plain, folded):
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        properties = {entry.key: entry.value for entry in model.metadata_props}
        for key in ('mean', 'std'):
            if properties[key] != metadata[key] or len(json.loads(metadata[key])) != channels:
                problems.append(f'{key} of {os.path.basename(path)} is {properties[key]}')
        if path == folded and 'BatchNormalization' in {node.op_type for node in model.graph.node}:
            problems.append('batch norm is not folded')
        session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
        results[os.path.basename(path)] = session.run(['logits'], {'input': images.numpy()})[0]
    for path, tensors in halves.items():
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        stored = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16} & {tensor.data_type for tensor in model.graph.initializer}
        module.load_state_dict(tensors, strict=True)
        with torch.no_grad():
            wanted = module.eval()(images).numpy()
        session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
        error = np.abs(session.run(['logits'], {'input': images.numpy()})[0] - wanted).max() / np.abs(wanted).max()
        if len(stored) != 1 or not error < TOLERANCE:
            problems.append(f'{os.path.basename(path)} has the types {stored} and differs by {error:.1e}')
    errors = {which: np.abs(found - expected).max() / np.abs(expected).max() for which, found in results.items()}
    problems += [f'{which} differs by {error:.1e}' for which, error in errors.items() if not error < TOLERANCE]
    print(f'{"FAILED" if problems else "ok"} {name}: largest difference {max(errors.values()):.1e} {"; ".join(problems)}')
    return not problems


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ['XDG_CACHE_HOME'] = folder
        modules = {'lenet': LeNet(), 'resnet18': resnet18(), 'mobilenet-v2': mobilenet_v2(),
                   'mobilenet-v3-small': mobilenet_v3_small(), 'efficientnet-b0': efficientnet_b0(), 'convnext-tiny': convnext_tiny(), 'shufflenet-v2': shufflenet_v2(), 'squeezenet1-1': squeezenet()}
        good = [check(sys.argv[1], sys.argv[2], folder, name, module) for name, module in modules.items()]
    sys.exit(0 if all(good) else 1)


main()
