"""The networks that are trained on both CPU and GPU, shared by tests/gpu/reference and tests/gpu/run."""

# Learning rates are small: networks with batch normalisation amplify rounding, and with large steps the losses of two
# correct programs drift apart within 24 steps. This drift is measured: tests/gpu/reference trains each network twice on the
# CPU, with kernels that add in different orders.
STEPS = 24
COMMON = ["--max-steps", str(STEPS), "--log-interval", "1", "--progress", "none", "--checkpoint-every", "0",
          "--test-limit", "64", "--momentum", "0.9"]


def synthetic(size, samples):
    return ["--dataset", "synthetic", "--image-size", str(size), "--train-limit", str(samples)]


NETWORKS = {
    "lenet": ["--model", "lenet", "--dataset", "glyphs", "--train-limit", "1000", "--global-batch", "128", "--lr", "0.05"],
    "resnet18-d2l": ["--model", "resnet18-d2l", "--dataset", "glyphs", "--train-limit", "200", "--global-batch", "32",
                     "--lr", "0.0005"],
    "resnet9": ["--model", "resnet9", *synthetic(32, 200), "--global-batch", "32", "--lr", "0.0002"],
    "resnet50": ["--model", "resnet50", *synthetic(64, 100), "--global-batch", "16", "--lr", "0.0001"],
    "mobilenet-v2": ["--model", "mobilenet-v2", *synthetic(64, 100), "--global-batch", "16", "--lr", "0.0002"],
}

# Largest relative difference of a loss from the CPU's in fp32, in addition to DRIFTS times the largest difference between
# the two CPU runs up to that step. fp32 differs by the order of additions, tf32 has 10 bits of mantissa in products.
#
# bf16 keeps 7 bits of every weight and activation. How much of that reaches a loss depends on the network and on its first
# weights: a tenth of a percent for LeNet, several percent for ResNet-50, so one tolerance cannot serve all networks. It is
# measured: DRAWS runs on the CPU from weights whose lower 16 bits are random, noise of twice the variance of one rounding
# to bf16. A layer in bf16 rounds three or four times (weights, convolution, normalisation, sum), so its noise has at most
# twice the variance of theirs, and DRIFTS times their largest difference up to a step is 3.5 deviations or more.
TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 4e-3, "fp16": 1e-3}  # of bf16: the rounding of a logit, 2^-8
DRIFTS = 5
DRAWS = 3
# tf32 and fp16 keep three bits more than bf16.
SHARE_OF_NOISE = {"fp32": 0, "tf32": 1 / 8, "bf16": 1, "fp16": 1 / 8}


def tolerances(precision, losses, again, noisy=()):
    """Of each step, for a network whose losses on the CPU are `losses`, with other kernels `again`, and from weights with
    the noise of bf16 those of each run in `noisy`."""
    share = SHARE_OF_NOISE[precision]
    drift, result = 0.0, []
    for step, loss in enumerate(losses):
        noise = [share * abs(other[step] - loss) / abs(loss) for other in noisy]
        drift = max([drift, abs(again[step] - loss) / abs(loss), *noise])
        result.append(max(TOLERANCE[precision], DRIFTS * drift))
    return result


# A training that must give the same bytes on every processor.
EXACT = ["--model", "lenet", "--dataset", "glyphs", "--train-limit", "1000", "--test-limit", "64", "--global-batch", "64",
         "--max-steps", "20", "--deterministic", "--logical-shards", "2", "--progress", "none", "--device", "cpu"]
EXACT_ENVIRONMENT = {"DDP_INSTRUCTION_SET": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
