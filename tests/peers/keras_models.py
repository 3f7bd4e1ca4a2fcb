"""Compares import and training of ONNX files from Keras with Keras itself: each network is exported by Keras and imported
by `forward_onnx`, which must give the logits of Keras. Then ddp_train continues training from the file with full-batch steps,
and its losses must be those of Keras' own training.

  keras_models.py PATH/TO/ddp_train PATH/TO/forward_onnx

Exits with 0 if all agree, 1 if something differs, 77 if Keras or tf2onnx is not installed
(pip install tensorflow-cpu tf2onnx)."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ['KERAS_BACKEND'] = 'tensorflow'
try:
    import keras
    import numpy as np
    import onnx
    import tf2onnx  # noqa: F401
except ImportError as error:
    print(f'skipped: {error}')
    sys.exit(77)
from keras import layers

# The sums are computed in different orders, in float32.
TOLERANCE = 1e-4
# Rounding errors grow from step to step.
LOSS_TOLERANCE = 1e-3
COUNT = 64
STEPS = 20
RATE = 0.1


def classic(image):
    """A network as in most tutorials; ends with a softmax."""
    x = layers.Conv2D(12, 3, activation='relu', name='first')(image)
    x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(16, 3, padding='same', name='second')(x)
    x = layers.ReLU()(x)
    x = layers.DepthwiseConv2D(3, padding='same', activation='relu', name='third')(x)
    x = layers.MaxPooling2D(3, strides=2, padding='same')(x)
    x = layers.Flatten()(x)
    x = layers.Dense(32, activation='relu', name='hidden')(x)
    return layers.Dense(10, activation='softmax', name='classes')(x)


def mobile(image):
    """Depthwise and separable convolutions, strides with Keras' uneven padding, ReLU6, a sum."""
    x = layers.Conv2D(8, 3, strides=2, padding='same', use_bias=False, name='stem')(image)
    x = layers.BatchNormalization(name='stem_bn')(x)
    x = layers.ReLU(max_value=6)(x)
    x = layers.DepthwiseConv2D(3, padding='same', use_bias=False, name='depthwise_a')(x)
    x = layers.BatchNormalization(name='depthwise_bn')(x)
    x = layers.ReLU(max_value=6)(x)
    y = layers.SeparableConv2D(8, 3, padding='same', name='separable')(x)
    x = layers.Add()([x, y])
    x = layers.ZeroPadding2D(((0, 1), (0, 1)))(x)
    x = layers.DepthwiseConv2D(3, strides=2, name='depthwise_b')(x)
    x = layers.Activation('tanh')(x)
    x = layers.AveragePooling2D(2)(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.2)(x)
    return layers.Dense(10, name='classes')(x)


def normalised(image):
    """Batch norm in all positions: after a bias, after activations, and on vectors."""
    x = layers.Conv2D(8, 5, strides=2, name='first')(image)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-3, name='first_bn')(x)
    x = layers.DepthwiseConv2D(3, padding='same', activation='sigmoid', name='second')(x)
    x = layers.BatchNormalization(momentum=0.9, name='second_bn')(x)
    x = layers.Conv2D(12, 3, strides=2, padding='same', activation='relu', name='third')(x)
    x = layers.MaxPooling2D()(x)
    x = layers.Flatten()(x)
    x = layers.BatchNormalization(name='third_bn')(x)
    x = layers.Dense(24, name='fourth')(x)
    x = layers.BatchNormalization(center=False, name='fourth_bn')(x)
    x = layers.ReLU()(x)
    x = layers.BatchNormalization(scale=False, name='fifth_bn')(x)
    x = layers.Dropout(0.5)(x)
    return layers.Dense(10, name='classes')(x)


# Network, and whether it trains as in Keras: the exporter drops dropout and reduces batch norm to a scale and a shift.
NETWORKS = [(classic, True), (mobile, False), (normalised, False)]


def build(network):
    keras.utils.set_random_seed(3)
    image = keras.Input((28, 28, 1), name='image')
    model = keras.Model(image, network(image), name=network.__name__)
    generator = np.random.default_rng(4)
    for layer in model.layers:
        # Realistic values, neither 0 nor 1.
        if isinstance(layer, layers.BatchNormalization):
            draw = {'gamma': (0.5, 1.5), 'beta': (-0.3, 0.3), 'moving_mean': (-0.5, 0.5), 'moving_variance': (0.5, 2)}
            layer.set_weights([generator.uniform(*draw[weight.name], weight.shape) for weight in layer.weights])
        elif layer.weights and getattr(layer, 'use_bias', False):
            values = layer.get_weights()
            values[-1] = generator.normal(0, 0.2, values[-1].shape)
            layer.set_weights(values)
    return model


def data(folder):
    """Images whose classes are easy to tell apart, as files in MNIST's format."""
    generator = np.random.default_rng(5)
    labels = np.arange(COUNT) % 10
    centres = generator.uniform(0, 200, (10, 28, 28))
    images = (centres[labels] + generator.uniform(0, 55, (COUNT, 28, 28))).astype(np.uint8)
    os.makedirs(os.path.join(folder, 'mnist'))
    for split in ('train', 't10k'):
        prefix = os.path.join(folder, 'mnist', split)
        with open(prefix + '-images-idx3-ubyte', 'wb') as file:
            file.write(struct.pack('>IIII', 0x803, COUNT, 28, 28) + images.tobytes())
        with open(prefix + '-labels-idx1-ubyte', 'wb') as file:
            file.write(struct.pack('>II', 0x801, COUNT) + labels.astype(np.uint8).tobytes())
    return images, labels


def without_mean(logits):
    """The imported network omits a final softmax; logarithms equal logits up to a constant."""
    return logits - logits.mean(1, keepdims=True)


def check(program, forward, folder, images, labels, network, same_training):
    model = build(network)
    x = images[..., None].astype(np.float32) / 255
    expected = np.asarray(model(x, training=False))
    path = os.path.join(folder, network.__name__ + '.onnx')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        model.export(path, format='onnx', verbose=False)
    softmax = network is classic
    if softmax:
        expected = np.log(expected)
    operators = ' '.join(sorted({node.op_type for node in onnx.load(path).graph.node}))
    images.tofile(path + '.in')
    problems = []

    def call(*command):
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            problems.append(result.stderr.strip())
        return result.returncode == 0

    worst = found_losses = None
    if call(forward, path, path + '.in', str(COUNT), path + '.out'):
        logits = np.fromfile(path + '.out', np.float32).reshape(expected.shape)
        worst = np.abs(without_mean(logits) - without_mean(expected)).max() / np.abs(without_mean(expected)).max()
        if not worst < TOLERANCE:
            problems.append(f'logits differ by {worst:.1e}')
        run = os.path.join(folder, network.__name__)
        if call(program, '--model', path, '--dataset', 'mnist', '--data-dir', folder, '--global-batch', str(COUNT),
                '--epochs', str(STEPS), '--normalize', 'none', '--optimizer', 'sgd', '--lr', str(RATE), '--momentum', '0.9',
                '--schedule', 'constant', '--log-interval', '1', '--device', 'cpu', '--threads', '1', '--progress', 'none',
                '--log-level', 'error', '--output', run):
            with open(os.path.join(run, 'metrics.jsonl'), encoding='utf-8') as file:
                found_losses = [line['loss'] for line in map(json.loads, file) if 'loss' in line]
    if found_losses is not None:
        if len(found_losses) != STEPS or not found_losses[-1] < found_losses[0]:
            problems.append(f'losses {found_losses}')
        if same_training:
            model.compile(keras.optimizers.SGD(RATE, momentum=0.9),
                          keras.losses.SparseCategoricalCrossentropy(from_logits=not softmax))
            # Keras returns the mean over all batches so far, so the metrics are reset for each step.
            wanted = []
            for _ in range(STEPS):
                model.reset_metrics()
                wanted.append(float(model.train_on_batch(x, labels)))
            differences = np.abs(np.array(found_losses) / np.array(wanted) - 1)
            if not differences.max() < LOSS_TOLERANCE:
                problems.append(f'losses {found_losses}, in Keras {wanted}')
            print(f'losses from {wanted[0]:.4f} to {wanted[-1]:.4f} differ by up to {differences.max():.1e}')
    print(f'{"FAILED" if problems else "ok"} {network.__name__}: largest difference {np.nan if worst is None else worst:.1e}; '
          f'{operators} {"; ".join(problems)}')
    return not problems


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ['XDG_CACHE_HOME'] = os.path.join(folder, 'cache')
        images, labels = data(folder)
        good = [check(sys.argv[1], sys.argv[2], folder, images, labels, *each) for each in NETWORKS]
    sys.exit(0 if all(good) else 1)


main()
