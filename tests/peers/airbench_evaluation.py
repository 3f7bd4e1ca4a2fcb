"""What ddp_train's evaluation says of a trained airbench94, against PyTorch's of the same weights: normalisation of the
images, running statistics, and the views of --eval-views. In fp32 on random images.

  airbench_evaluation.py PATH/TO/ddp_train

Exits with 0 if all agree, 1 if something differs, 77 if PyTorch is not installed."""

import json
import os
import subprocess
import sys
import tempfile

from airbench import random_images, train, write_cifar10  # exits without PyTorch
import numpy as np
import torch
from safetensors.torch import load_file
from airbench_training import evaluate, logits_of, logits_of_views
from make_networks import Airbench94

SEED = int(np.random.default_rng().integers(1 << 31))
# Rounding errors of the mean loss are 1e-6. Another view or weight of a view changes it by more than a hundredth.
TOLERANCE = 1e-4


def mean_of_mirrored(net, x, precision):
    return (logits_of(net, x, precision) + logits_of(net, x.flip(-1), precision)) / 2


def main():
    pixels, labels, images = random_images(SEED)
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        write_cifar10(folder, pixels, labels)
        run = train(sys.argv[1], folder, 'run', 'cifar10-94.cfg')
        net = Airbench94(3, 10)
        net.load_state_dict(load_file(os.path.join(run, 'latest', 'model.safetensors')), strict=False)
        tests = images[:8], torch.from_numpy(labels[:8]).long()  # those of write_cifar10()
        for views, logits in {'plain': logits_of, 'mirror': mean_of_mirrored, 'mirror-shift': logits_of_views}.items():
            command = [sys.argv[1], 'eval', '--config', os.path.join(run, 'config.cfg'), '--resume', run, '--eval-views', views]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode != 0:
                sys.exit(f'{" ".join(command)}: {result.stderr.strip()}')
            found = json.loads(result.stdout.splitlines()[-1])
            loss, accuracy = evaluate(net, *tests, logits)
            print(f'{views}: loss {found["val_loss"]:.6f}, PyTorch {loss:.6f}')
            if not abs(found['val_loss'] - loss) <= TOLERANCE * loss:
                problems.append(f'the loss of {views} views differs')
            if abs(found['val_accuracy'] - accuracy) > 1e-6:
                problems.append(f'the accuracy of {views} views is {found["val_accuracy"]}, in PyTorch {accuracy}')
    print(f'{"FAILED" if problems else "ok"}: seed {SEED} {"; ".join(problems)}')
    sys.exit(1 if problems else 0)


if __name__ == '__main__':
    main()
