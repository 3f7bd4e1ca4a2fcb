"""The networks that the CPU and a GPU train alike, and what tests/gpu/reference and tests/gpu/run share about them."""

# Learning rates are small: networks with batch normalisation amplify rounding, and with large steps the losses of two
# correct programs drift apart within 24 steps. How far they do is measured: tests/gpu/reference trains each network twice on
# the CPU, with kernels that add in different orders.
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

# Largest relative difference of a loss from the CPU's in fp32, beside DRIFTS times how far the two CPU runs are apart up to
# that step. fp32 differs by the order of additions, tf32 has 10 bits of mantissa in products, bf16 has 7 in all activations.
TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}
DRIFTS = 5


def tolerances(precision, losses, again):
    """Of each step, for a network whose losses on the CPU are `losses` and, with other kernels, `again`."""
    drift, result = 0.0, []
    for a, b in zip(losses, again):
        drift = max(drift, abs(a - b) / abs(b))
        result.append(max(TOLERANCE[precision], DRIFTS * drift))
    return result


# What a bundle's own test and a GPU machine's CPU must reproduce to the byte, whatever the processor.
EXACT = ["--model", "lenet", "--dataset", "glyphs", "--train-limit", "1000", "--test-limit", "64", "--global-batch", "64",
         "--max-steps", "20", "--deterministic", "--logical-shards", "2", "--progress", "none", "--device", "cpu"]
EXACT_ENVIRONMENT = {"DDP_INSTRUCTION_SET": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
