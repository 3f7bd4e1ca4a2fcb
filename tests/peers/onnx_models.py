"""Compares import and export of ONNX with PyTorch and ONNX Runtime: each network is exported by PyTorch and imported by
`forward_onnx`, which must give PyTorch's logits and the names and shapes of the module's parameters. The exports of
`forward_onnx` must pass ONNX's checker and give the same logits in ONNX Runtime, batch norm folded or not. Weights in
external files must make no difference.

  onnx_models.py PATH/TO/forward_onnx

Exits with 0 if all agree, 1 if something differs, 77 if PyTorch is not installed. The newer of PyTorch's two exporters is
tested if its package onnxscript is installed."""

import logging
import os
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import onnx
    import onnxruntime
    import torch
except ImportError as error:
    print(f'skipped: {error}')
    sys.exit(77)
try:
    import onnxscript  # noqa: F401
    EXPORTERS = ['old', 'new']
except ImportError:
    EXPORTERS = ['old']
    print('without the newer exporter: onnxscript is not installed')

from networks import networks

# The sums are computed in different orders, PyTorch's in float32.
TOLERANCE = 1e-4
COUNT = 3


def export(module, example, path, exporter, folded):
    """Exports `module` to `path` for any number of samples; `folded`: with batch norm folded into the convolutions."""
    modes = torch.onnx.TrainingMode
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        if exporter == 'new':
            torch.onnx.export(module, (example,), path, dynamo=True, optimize=folded, verbose=False,
                              dynamic_shapes=({0: torch.export.Dim('batch')},))
        else:
            torch.onnx.export(module, (example,), path, dynamo=False, input_names=['image'], output_names=['logits'],
                              dynamic_axes={'image': {0: 'batch'}, 'logits': {0: 'batch'}},
                              training=modes.EVAL if folded else modes.PRESERVE, do_constant_folding=folded)


def in_other_files(program, path, one_file):
    """Returns whether the logits are bit-identical if tensors are in external files, whatever their size, including constants
    of nodes."""
    with tempfile.TemporaryDirectory() as folder:
        moved = os.path.join(folder, 'moved.onnx')
        onnx.save_model(onnx.load(path), moved, save_as_external_data=True, all_tensors_to_one_file=one_file,
                        location='moved.onnx.data' if one_file else None, size_threshold=0, convert_attribute=True)
        held = [tensor for tensor in onnx.load(moved, load_external_data=False).graph.initializer
                if tensor.data_location == onnx.TensorProto.EXTERNAL]
        if not held or len(os.listdir(folder)) < 2:
            return False
        result = subprocess.run([program, moved, path + '.in', str(COUNT), moved + '.out'], capture_output=True, text=True)
        if result.returncode != 0:
            print(result.stderr.strip())
            return False
        with open(moved + '.out', 'rb') as found, open(path + '.out', 'rb') as wanted:
            return found.read() == wanted.read()


def check(program, folder, name, module, shape, exporter, folded):
    path = os.path.join(folder, f'{name}-{exporter}{"-folded" if folded else ""}.onnx')
    pixels = torch.randint(0, 256, (COUNT, *shape), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    images = pixels.float() / 255
    export(module, images, path, exporter, folded)
    with torch.no_grad():
        # The imported network omits a final softmax; logarithms equal logits up to a constant.
        expected = module(images).numpy()
    pixels.numpy().tofile(path + '.in')
    copies = [path + '.copy', path + '.folded']
    result = subprocess.run([program, path, path + '.in', str(COUNT), path + '.out', *copies], capture_output=True,
                            text=True)
    operators = ' '.join(sorted({node.op_type for node in onnx.load(path, load_external_data=False).graph.node}))
    what = f'{name}, {exporter} exporter{", folded" if folded else ""}'
    if result.returncode != 0:
        print(f'FAILED {what}: {result.stderr.strip()}\n  operators: {operators}')
        return False
    problems = []
    worst = 0
    results = [('logits', np.fromfile(path + '.out', np.float32).reshape(expected.shape))]
    for copy in copies:
        onnx.checker.check_model(copy, full_check=True)
        if copy == copies[1] and 'BatchNormalization' in {n.op_type for n in onnx.load(copy).graph.node} and name != 'odd':
            problems.append('batch norm is not folded')
        session = onnxruntime.InferenceSession(copy, providers=['CPUExecutionProvider'])
        results.append((os.path.basename(copy), session.run(['logits'], {'input': images.numpy()})[0]))
    for which, logits in results:
        wanted = expected
        if name == 'reshaping':
            logits = logits - logits.mean(1, keepdims=True)
            wanted = expected - expected.mean(1, keepdims=True)
        error = np.abs(logits - wanted).max() / np.abs(wanted).max()
        worst = max(worst, error)
        if not error < TOLERANCE:
            problems.append(f'{which} differ by {error:.1e}')
    for one_file in (True, False):
        if not in_other_files(program, path, one_file):
            problems.append(f'weights in {"one other file" if one_file else "a file each"} make a difference')
    if exporter == 'new' and not os.path.exists(path + '.data'):
        problems.append('the exporter wrote no file of weights')
    found = dict(line.split() for line in result.stdout.splitlines() if len(line.split()) == 2)
    if not folded:
        wanted = {key: 'x'.join(map(str, value.shape)) for key, value in module.state_dict().items()
                  if not key.endswith('num_batches_tracked')}
        if found != wanted:
            problems.append(f'parameters differ: {sorted(set(found.items()) ^ set(wanted.items()))}')
    print(f'{"FAILED" if problems else "ok"} {what}: largest difference {worst:.1e}; {operators} {"; ".join(problems)}')
    return not problems


def transposed(program, folder):
    """Transposed convolutions whose padding follows from the size of the output, which PyTorch does not export, against ONNX
    Runtime."""
    from onnx import helper, numpy_helper
    good = True
    random = np.random.default_rng(3)
    cases = [{'auto_pad': 'SAME_UPPER', 'strides': [2, 2]}, {'auto_pad': 'SAME_LOWER', 'strides': [2, 3]},
             {'output_shape': [11, 10], 'strides': [2, 2]}, {'output_shape': [10, 11], 'strides': [2, 2], 'auto_pad': 'SAME_UPPER'},
             {'output_shape': [12, 14], 'strides': [2, 3], 'dilations': [2, 1]},
             {'output_shape': [10, 9], 'strides': [2, 2], 'output_padding': [1, 0]},
             {'output_shape': [12, 12], 'strides': [2, 2]}]
    for case in cases:
        weight = random.standard_normal((3, 2, 3, 3)).astype(np.float32)
        bias = random.standard_normal(2).astype(np.float32)
        node = helper.make_node('ConvTranspose', ['image', 'up.weight', 'up.bias'], ['up'], **case)
        height, width = case.get('output_shape', [5 * stride for stride in case['strides']])
        mixing = random.standard_normal((2 * height * width, 7)).astype(np.float32)
        graph = helper.make_graph(
            [node, helper.make_node('Flatten', ['up'], ['flat']), helper.make_node('Gemm', ['flat', 'fc.weight'], ['logits'])], 'up',
            [helper.make_tensor_value_info('image', onnx.TensorProto.FLOAT, ['n', 3, 5, 5])],
            [helper.make_tensor_value_info('logits', onnx.TensorProto.FLOAT, ['n', None])],
            [numpy_helper.from_array(weight, 'up.weight'), numpy_helper.from_array(bias, 'up.bias'),
             numpy_helper.from_array(mixing, 'fc.weight')])
        path = os.path.join(folder, 'up.onnx')
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 13)], ir_version=8), path)
        pixels = random.integers(0, 256, (COUNT, 3, 5, 5), dtype=np.uint8)
        pixels.tofile(path + '.in')
        result = subprocess.run([program, path, path + '.in', str(COUNT), path + '.out'], capture_output=True, text=True)
        session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
        wanted = session.run(['logits'], {'image': pixels.astype(np.float32) / 255})[0]
        if result.returncode != 0:
            print(f'FAILED transposed {case}: {result.stderr.strip()}')
            good = False
            continue
        found = np.fromfile(path + '.out', np.float32)
        agrees = found.size == wanted.size and np.abs(found.reshape(wanted.shape) - wanted).max() < TOLERANCE * np.abs(wanted).max()
        print(f'{"ok" if agrees else "FAILED"} transposed convolution with {case}')
        good &= agrees
    return good


def main():
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        good &= transposed(sys.argv[1], folder)
        for name, module, shape in networks():
            for exporter in [known for known in EXPORTERS if known in getattr(module, 'exporters', EXPORTERS)]:
                for folded in (False, True) if getattr(module, 'folded', True) else (False,):
                    good &= check(sys.argv[1], folder, name, module, shape, exporter, folded)
    sys.exit(0 if good else 1)


main()
