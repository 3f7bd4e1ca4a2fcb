"""Checks every attribute of every operator that the exporter can write: small networks of each are imported and exported by
`forward_onnx`; the exports, with batch norm folded or not, must pass ONNX's checker, load in ONNX Runtime and give the logits
of the original and of the program's own network there. What src/onnx/export.cpp and builder.h name and no export has is an error.

  operators.py PATH/TO/forward_onnx

Exits with 0 if all agree, 1 if something differs, 77 if onnx or ONNX Runtime is not installed."""

import itertools
import os
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError as error:
    print(f'skipped: {error}')
    sys.exit(77)

TOLERANCE = 1e-4
COUNT = 2
CLASSES = 3
ONNX = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'src', 'onnx')


class Net:
    """A network for images of 4 channels and 9x8 pixels, node by node."""

    def __init__(self, shape=(4, 9, 8)):
        self.shape, self.nodes, self.tensors, self.random = shape, [], [], np.random.default_rng(5)

    def add(self, kind, *inputs, **attributes):
        name = f'{kind.lower()}{len(self.nodes)}'
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def tensor(self, values, kind=np.float32):
        self.tensors.append(numpy_helper.from_array(np.asarray(values, kind), f't{len(self.tensors)}'))
        return self.tensors[-1].name

    def weight(self, *shape):
        return self.tensor(self.random.uniform(0.2, 1, shape) * self.random.choice([-1, 1], shape))

    def positive(self, *shape):
        return self.tensor(self.random.uniform(0.5, 1.5, shape))

    def integers(self, *values):
        return self.tensor(values, np.int64)

    def classify(self, last, flat=False):
        """Adds the logits behind `last` and returns the model; `flat`: `last` is a vector."""
        def model(nodes, extent, result):
            graph = helper.make_graph(nodes, 'net', [helper.make_tensor_value_info('image', onnx.TensorProto.FLOAT, ['n', *self.shape])],
                                      [helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, ['n', extent])], self.tensors)
            return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 21)], ir_version=10)
        vector = last if flat else self.add('Flatten', last)
        partial = onnxruntime.InferenceSession(model(self.nodes, None, vector).SerializeToString(), providers=['CPUExecutionProvider'])
        width = partial.run(None, {'image': np.zeros((1, *self.shape), np.float32)})[0].shape[1]
        logits = self.add('Gemm', vector, self.weight(CLASSES, width), self.weight(CLASSES), transB=1)
        return model(self.nodes, CLASSES, logits)


def one(kind, *makers, **attributes):
    """A network of one operator on the image; `makers` make its other inputs."""
    def build():
        net = Net()
        return net.classify(net.add(kind, 'image', *(maker(net) for maker in makers), **attributes))
    return build


def convolutions():
    for group, dilations, strides, pads, bias in itertools.product((1, 2, 4), ([1, 1], [2, 1]), ([1, 1], [1, 2]),
                                                                  ([0, 0, 0, 0], [1, 0, 2, 1]), (False, True)):
        makers = [lambda net, group=group: net.weight(8, 4 // group, 3, 2)] + ([lambda net: net.weight(8)] if bias else [])
        yield one('Conv', *makers, group=group, dilations=dilations, strides=strides, pads=pads)
    for group, dilations, strides, extra, pads in itertools.product((1, 2), ([1, 1], [1, 2]), ([1, 1], [2, 3]), ([0, 0], [1, 2]),
                                                                   ([0, 0, 0, 0], [1, 0, 0, 1])):
        if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations)) or any(e >= s for e, s in zip(extra, strides)):
            continue
        yield one('ConvTranspose', lambda net, group=group: net.weight(4, 3, 3, 2), lambda net, group=group: net.weight(3 * group),
                  group=group, dilations=dilations, strides=strides, output_padding=extra, pads=pads)


def pools():
    for kind, dilations, strides, pads in itertools.product(('MaxPool', 'AveragePool'), ([1, 1], [2, 1], [1, 3], [3, 2]), ([1, 1], [2, 3]),
                                                            ([0, 0, 0, 0], [1, 0, 1, 1])):
        for count in ((0, 1) if kind == 'AveragePool' else (None,)):
            counts = {} if count is None else {'count_include_pad': count}
            yield one(kind, kernel_shape=[3, 2], dilations=dilations, strides=strides, pads=pads, **counts)
            if dilations == [1, 1]:
                yield one(kind, kernel_shape=[2, 3], strides=strides, auto_pad='SAME_UPPER', **counts)
    yield one('GlobalMaxPool')
    yield one('GlobalAveragePool')


def norm(kind, groups=None, epsilon=1e-2, momentum=0.75, constant=False):
    net = Net()
    def numbers(value):
        if not constant:
            return net.weight(4)
        return net.add('Constant', value=numpy_helper.from_array(np.full(4, value, np.float32)))
    x = net.add('Relu', 'image')
    if kind == 'BatchNormalization':
        x = net.add('Conv', x, net.weight(4, 4, 1, 1))
        x = net.add(kind, x, numbers(1), numbers(0), net.weight(4), net.positive(4), epsilon=epsilon, momentum=momentum)
        x = net.add(kind, net.add('Relu', x), numbers(1), numbers(0), net.weight(4), net.positive(4), epsilon=epsilon)
    elif kind == 'LayerNormalization':
        x = net.add('Transpose', x, perm=[0, 2, 3, 1])
        x = net.add(kind, x, numbers(1), numbers(0), axis=-1, epsilon=epsilon)
        x = net.add('Transpose', x, perm=[0, 3, 1, 2])
    else:
        x = net.add(kind, x, numbers(1), numbers(0), epsilon=epsilon, **({} if groups is None else {'num_groups': groups}))
    return net.classify(x)


def norms():
    for constant in (False, True):
        for kind, groups in (('BatchNormalization', None), ('InstanceNormalization', None), ('LayerNormalization', None),
                             ('GroupNormalization', 1), ('GroupNormalization', 2)):
            yield lambda kind=kind, groups=groups, constant=constant: norm(kind, groups, constant=constant)

    def of_vector():
        net = Net()
        x = net.add('Flatten', net.add('GlobalAveragePool', 'image'))
        x = net.add('LayerNormalization', x, net.weight(4), net.weight(4), axis=1, epsilon=1e-3)
        x = net.add('BatchNormalization', x, net.weight(4), net.weight(4), net.weight(4), net.positive(4))
        return net.classify(x, flat=True)
    yield of_vector


def activations():
    for kind, attributes in (('Relu', {}), ('Sigmoid', {}), ('Tanh', {}), ('Gelu', {'approximate': 'none'}), ('Gelu', {'approximate': 'tanh'}),
                             ('HardSwish', {}), ('HardSigmoid', {'alpha': 1 / 6, 'beta': 0.5}), ('LeakyRelu', {'alpha': 0.2}),
                             ('Elu', {'alpha': 0.7}), ('Mish', {}), ('Softmax', {'axis': 1})):
        def build(kind=kind, attributes=attributes):
            net = Net()
            # Values of both signs.
            return net.classify(net.add(kind, net.add('Conv', 'image', net.weight(4, 4, 1, 1)), **attributes))
        yield build
    yield one('Clip', lambda net: net.tensor(0.0), lambda net: net.tensor(6.0))
    yield one('LRN', alpha=0.3, beta=0.6, bias=1.5, size=3)

    def silu():
        net = Net()
        x = net.add('Conv', 'image', net.weight(4, 4, 1, 1))
        return net.classify(net.add('Mul', x, net.add('Sigmoid', x)))
    yield silu
    for shape in ((4, 1, 1), (1,)):
        def prelu(shape=shape):
            net = Net()
            return net.classify(net.add('PRelu', net.add('Conv', 'image', net.weight(4, 4, 1, 1)), net.positive(*shape)))
        yield prelu

    def prelu_of_vector():
        net = Net()
        x = net.add('Gemm', net.add('Flatten', 'image'), net.weight(5, 288), transB=1)
        return net.classify(net.add('PRelu', x, net.positive(5)), flat=True)
    yield prelu_of_vector


def shapes():
    yield one('Pad', lambda net: net.integers(0, 0, 1, 2, 0, 0, 2, 1), mode='reflect')
    yield one('Pad', lambda net: net.integers(0, 0, 1, 2, 0, 0, 2, 1), mode='edge')
    yield one('Mul', lambda net: net.weight(4, 1, 1))
    yield one('Add', lambda net: net.weight(1, 4, 1, 1))

    def joined():
        net = Net()
        x = net.add('Conv', 'image', net.weight(8, 4, 1, 1))
        gate = net.add('Sigmoid', net.add('Conv', net.add('GlobalAveragePool', x), net.weight(8, 8, 1, 1)))
        y = net.add('Concat', net.add('Mul', x, gate), net.add('Slice', x, net.integers(1), net.integers(5), net.integers(1)), axis=1)
        y = net.add('Reshape', y, net.integers(0, 3, 4, 9, 8))
        y = net.add('Reshape', net.add('Transpose', y, perm=[0, 2, 1, 3, 4]), net.integers(0, 12, 9, 8))
        z = net.add('Conv', x, net.weight(12, 8, 1, 1))
        y = net.add('Mul', net.add('Add', y, z), net.add('Constant', value_float=0.25))
        return net.classify(net.add('Transpose', y, perm=[0, 2, 3, 1]))
    yield joined

    def vectors():
        net = Net()
        x = net.add('Flatten', net.add('GlobalAveragePool', 'image'))
        y = net.add('MatMul', x, net.weight(4, 6))
        x = net.add('Concat', net.add('Mul', y, net.add('Tanh', net.add('MatMul', x, net.weight(4, 6)))), x, axis=1)
        x = net.add('Unsqueeze', net.add('Add', x, net.weight(10)), net.integers(2, 3))
        return net.classify(net.add('Conv', x, net.weight(5, 10, 1, 1)))
    yield vectors

    def adaptive():
        def averages(size, results):
            matrix = np.zeros((results, size), np.float32)
            for i in range(results):
                first, last = i * size // results, -(-(i + 1) * size // results)
                matrix[i, first:last] = 1 / (last - first)
            return matrix
        net = Net()
        x = net.add('MatMul', net.tensor(averages(9, 5)), net.add('Relu', 'image'))
        return net.classify(net.add('MatMul', x, net.tensor(averages(8, 3).T)))
    yield adaptive

    def per_position():
        net = Net()
        x = net.add('MatMul', net.add('Transpose', 'image', perm=[0, 2, 3, 1]), net.weight(4, 6))
        return net.classify(net.add('Transpose', net.add('Add', x, net.weight(6)), perm=[0, 3, 1, 2]))
    yield per_position


def logits_in_runtime(path, images):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def check(program, folder, number, build, seen):
    model = build()
    path = os.path.join(folder, f'{number}.onnx')
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    what = ' '.join(node.op_type + str({a.name: helper.get_attribute_value(a) for a in node.attribute if a.name != 'value'})
                    for node in model.graph.node[:-2])
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    pixels = np.random.default_rng(number).integers(0, 256, (COUNT, *shape), dtype=np.uint8)
    pixels.tofile(path + '.in')
    images = pixels.astype(np.float32) / 255
    copies = [path + '.copy.onnx', path + '.folded.onnx']
    result = subprocess.run([program, path, path + '.in', str(COUNT), path + '.out', *copies], capture_output=True, text=True)
    if result.returncode == 2 and 'zeros that count and zeros that do not' in result.stderr:
        return True  # the import's known limit
    if result.returncode != 0:
        print(f'FAILED {what}: {result.stderr.strip()}')
        return False
    wanted = logits_in_runtime(path, images)
    results = {'its own': np.fromfile(path + '.out', np.float32).reshape(wanted.shape)}
    try:
        for copy in copies:
            onnx.checker.check_model(copy, full_check=True)
            for node in onnx.load(copy).graph.node:
                seen |= {node.op_type, *((node.op_type, a.name) for a in node.attribute)}
            results[os.path.basename(copy)] = logits_in_runtime(copy, images)
    except Exception as error:
        print(f'FAILED {what}: {str(error).strip().splitlines()[-1]}')
        return False
    good = True
    for which, logits in results.items():
        error = np.abs(logits - wanted).max() / np.abs(wanted).max()
        if not error < TOLERANCE:
            print(f'FAILED {what}: {which} logits differ by {error:.1e}')
            good = False
    return good


def main():
    seen, good, count = set(), True, 0
    with tempfile.TemporaryDirectory() as folder:
        for build in itertools.chain(convolutions(), pools(), norms(), activations(), shapes()):
            good &= check(sys.argv[1], folder, count, build, seen)
            count += 1
    source = ''
    for name in ('export.cpp', os.path.join('file', 'builder.h')):
        with open(os.path.join(ONNX, name)) as file:
            source += file.read()
    operators = set(re.findall(r'"([A-Z][A-Za-z]+)"', source)) - {'FLOAT'}
    attributes = set(re.findall(r'\{"([a-z_]+[A-Z]?)", (?!")', source)) | set(re.findall(r'attributes\["(\w+)"\]', source))
    written = {entry[1] for entry in seen if isinstance(entry, tuple)}
    missing = sorted(operators - seen) + sorted(attributes - written)
    if missing:
        print(f'FAILED: no network here has {", ".join(missing)}, which the exporter writes')
    print(f'{count} networks, {len(operators)} operators with {len(attributes)} attributes')
    sys.exit(0 if good and not missing else 1)


main()
