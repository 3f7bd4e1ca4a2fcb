"""Small ONNX models, encoded field by field with the numbers of onnx.proto (github.com/onnx/onnx), without its package."""

import struct

FLOAT, INT64 = 1, 7


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    text = b""
    while value >= 0x80:
        text += bytes([value & 0x7F | 0x80])
        value >>= 7
    return text + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, content) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def tensor(name, shape, values=None, kind=FLOAT, external=None):
    count = 1
    for extent in shape:
        count *= extent
    text = b"".join(number(1, extent) for extent in shape) + number(2, kind) + block(8, name)
    if external is not None:
        entries = b"".join(block(13, block(1, key) + block(2, value)) for key, value in external.items())
        return text + entries + number(14, 1)
    values = [0.5] * count if values is None else values
    return text + block(9, struct.pack(f"<{len(values)}{'f' if kind == FLOAT else 'q'}", *values))


def integers(name, values, shape=None):
    return tensor(name, [len(values)] if shape is None else shape, values, INT64)


def attribute(name, value):
    text = block(1, name)
    if isinstance(value, float):
        return text + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, int):
        return text + number(3, value) + number(20, 2)
    if isinstance(value, str):
        return text + block(4, value) + number(20, 3)
    if isinstance(value, bytes):
        return text + block(5, value) + number(20, 4)
    return text + b"".join(number(8, each) for each in value) + number(20, 7)


def node(kind, inputs, outputs, name="", **attributes):
    text = b"".join(block(1, each) for each in inputs) + b"".join(block(2, each) for each in outputs)
    text += block(3, name or outputs[0] + "_node") + block(4, kind)
    return text + b"".join(block(5, attribute(key, value)) for key, value in attributes.items())


def value(name, extents):
    """An extent given as a string is dynamic."""
    dims = b"".join(block(1, block(2, each) if isinstance(each, str) else number(1, each)) for each in extents)
    return block(1, name) + block(2, block(1, number(1, FLOAT) + block(2, dims)))


def model(nodes, initializers=(), image=("N", 1, 4, 4), output="y", opset=13, inputs=None):
    graph = b"".join(block(1, each) for each in nodes) + block(2, "g")
    graph += b"".join(block(5, each) for each in initializers)
    graph += b"".join(block(11, each) for each in inputs or [value("x", image)])
    graph += block(12, value(output, ("N", 2)))
    return number(1, 8) + block(7, graph) + block(8, number(2, opset))


def onnx_seeds():
    dense = tensor("fc.weight", [2, 16])
    last = node("Gemm", ["f", "fc.weight"], ["y"], transB=1)
    flat = node("Flatten", ["x"], ["f"])
    norm = [tensor(f"bn.{each}", [2]) for each in ("scale", "bias", "mean", "var")]
    conv = node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3])
    convolution = [
        conv,
        node("BatchNormalization", ["c", "bn.scale", "bn.bias", "bn.mean", "bn.var"], ["b"], epsilon=1e-5),
        node("Relu", ["b"], ["r"]),
        node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[1, 1], auto_pad="SAME_UPPER"),
        node("Add", ["m", "r"], ["a"]),
        node("LRN", ["a"], ["l"], size=3),
        node("Dropout", ["l", "rate"], ["d"]),
        node("GlobalAveragePool", ["d"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "fc.weight", "fc.bias"], ["s"], alpha=0.5, beta=2.0),
        node("Softmax", ["s"], ["y"], axis=1),
    ]
    weights = [tensor("conv.weight", [2, 1, 3, 3]), tensor("conv.bias", [2]), tensor("rate", [], [0.25])]
    weights += [tensor("fc.weight", [2, 2]), tensor("fc.bias", [1])]
    shapes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["count"]),
        node("Unsqueeze", ["count"], ["first"], axes=[0]),
        node("Slice", ["list", "zero1", "one1"], ["rest"]),
        node("Concat", ["first", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["f"]),
        node("ConstantOfShape", ["pair"], ["ones"], value=tensor("", [1], [0.5])),
        node("Expand", ["ones", "pair"], ["wide"]),
        node("Mul", ["fc.weight", "half"], ["w0"]),
        node("Transpose", ["w0"], ["w"], perm=[1, 0]),
        node("MatMul", ["f", "w"], ["h"]),
        node("Add", ["h", "bias"], ["y"]),
    ]
    constants = [integers("zero", [0], []), integers("zero1", [0]), integers("one1", [1]), integers("list", [-1, 3])]
    constants += [integers("pair", [2, 16]), tensor("half", [1, 1]), tensor("bias", [2]), dense]
    keras = [
        node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        node("Pad", ["t", "pads"], ["q"]),
        node("AveragePool", ["q"], ["p"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, count_include_pad=1),
        node("Clip", ["p", "low", "high"], ["k"]),
        node("ReduceMean", ["k"], ["e"], axes=[2, 3], keepdims=1),
        node("Squeeze", ["e"], ["f"], axes=[2, 3]),
        node("MatMul", ["f", "fc.weight"], ["y"]),
    ]
    limits = [integers("pads", [0, 0, 1, 1, 0, 0, 1, 1]), tensor("low", [], [0.0]), tensor("high", [], [6.0])]
    # Each of these once caused an internal error or exhausted memory.
    shape_alone = [
        node("Flatten", ["x"], ["f"]),
        node("Gemm", ["f", "fc.weight"], ["h"], transB=1),
        node("Tanh", ["h"], ["t"]),
        node("Relu", ["x"], ["r"]),
        node("Shape", ["r"], ["s"]),
        node("Slice", ["s", "zero1", "one1"], ["n"]),
        node("Concat", ["n", "two"], ["target"], axis=0),
        node("Reshape", ["t", "target"], ["y"]),
    ]
    grown = [
        node("ConstantOfShape", ["tall"], ["a"]),
        node("ConstantOfShape", ["wide"], ["b"]),
        node("Add", ["a", "b"], ["w"]),
        node("Flatten", ["x"], ["f"]),
        node("MatMul", ["f", "w"], ["y"]),
    ]
    outside = tensor("fc.weight", [2, 4], external={"location": "weights.bin", "offset": "8", "length": "32"})
    return {
        "linear": model([flat, last], [dense]),
        "convolution": model(convolution, weights + norm),
        "shapes": model(shapes, constants),
        "channels-last": model(keras, limits + [tensor("fc.weight", [3, 2])], ("N", 4, 4, 3), opset=11),
        "weights-beside": model([flat, last], [outside], (1, 1, 2, 2)),
        "weights-elsewhere": model(
            [flat, last], [tensor("fc.weight", [2, 4], external={"location": "../x"})], (1, 1, 2, 2)
        ),
        "weights-in-strange-file": model(
            [flat, last], [tensor("fc.weight", [2, 4], external={"location": "a\nb\x1b[2J"})], (1, 1, 2, 2)
        ),
        "second-output": model([flat, node("Gemm", ["f", "fc.weight"], ["h", "y"], transB=1)], [dense]),
        "shape-alone": model(
            shape_alone, [dense, integers("zero1", [0]), integers("one1", [1]), integers("two", [2])], opset=10
        ),
        "grown": model(grown, [integers("tall", [1 << 15, 1]), integers("wide", [1, 1 << 15])]),
        "cyclic": model([node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"]), node("Add", ["a", "x"], ["y"])]),
        "unknown-operator": model([node("Einsum", ["x"], ["f"], equation="nchw->n"), last], [dense]),
        "dynamic-shape": model([flat, last], [dense], ("N", 1, "H", "W")),
        "wrong-shape": model([flat, last], [tensor("fc.weight", [2**40, 2**30], [])]),
        "no-output": model([flat, last], [dense], output="z"),
        "two-inputs": model([flat, last], [dense], inputs=[value("x", (1, 1, 4, 4)), value("z", (1, 1))]),
        "truncated": model([flat, last], [dense])[:-30],
    }
