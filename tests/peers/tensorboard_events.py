"""TensorBoard's own reader reads the event files of a run, and finds the values of metrics.jsonl.

  tensorboard_events.py PATH/TO/ddp_train

Exits with 0 if all agree, 1 if something differs, 77 if TensorBoard is not installed."""

import json
import math
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f'skipped: {error}')
    sys.exit(77)

# Tag of TensorBoard and key in metrics.jsonl.
TAGS = {
    'training/loss': 'loss',
    'training/learning_rate': 'lr',
    'training/gradient_norm': 'grad_norm',
    'speed/images_per_second': 'images_per_second',
    'test/loss': 'val_loss',
    'test/accuracy': 'val_accuracy',
    'test/top5_accuracy': 'val_top5_accuracy',
}
# Event files hold fp32 numbers.
TOLERANCE = 1e-6


def read(folder):
    # 0: all points, not a sample of them.
    reader = EventAccumulator(folder, size_guidance={'scalars': 0})
    reader.Reload()
    return {tag: [(point.step, point.value) for point in reader.Scalars(tag)] for tag in reader.Tags()['scalars']}


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], '--dataset', 'glyphs', '--train-limit', '1000', '--test-limit', '200', '--global-batch',
                        '128', '--epochs', '3', '--log-interval', '3', '--schedule', 'cosine', '--progress', 'none',
                        '--device', 'cpu', '--output', folder + '/run'], check=True, stdout=subprocess.DEVNULL)
        with open(folder + '/run/metrics.jsonl', encoding='utf-8') as file:
            records = [json.loads(line) for line in file]
        seen = read(folder + '/run')
    for tag, key in TAGS.items():
        logged = [(r['step'], r[key]) for r in records if key in r]
        points = seen.get(tag, [])
        same = len(logged) == len(points) and logged and all(
            a == b and math.isclose(x, y, rel_tol=TOLERANCE) for (a, x), (b, y) in zip(logged, points))
        print(f'{tag}: {len(points)} points, {"equal" if same else "DIFFERENT"}')
        if not same:
            failures.append((tag, logged, points))
    shares = zip(*(seen[tag] for tag in seen if tag.startswith('phases/')))
    for points in shares:
        total = sum(value for _, value in points)
        if not math.isclose(total, 1, abs_tol=1e-5):
            failures.append(('phases', points, total))
    for failure in failures:
        print('FAILED:', *failure)
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
