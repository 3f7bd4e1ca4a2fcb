"""Stage `options`: what a run may ask for, trained on the GPU and on this machine's CPU with the same losses."""

import collections

import networks
import training
from stage import Failed

STEPS = 12
COMMON = ["--max-steps", str(STEPS), "--log-interval", "1", "--progress", "none", "--checkpoint-every", "0",
          "--test-limit", "64"]
PLAIN = ["--model", "lenet", "--dataset", "glyphs", "--train-limit", "600", "--global-batch", "128", "--lr", "0.05"]
LENET = [*PLAIN, "--momentum", "0.9"]
RESNET = ["--model", "resnet9", *networks.synthetic(32, 200), "--global-batch", "32", "--lr", "0.0002", "--momentum", "0.9"]

# Name, arguments, largest relative difference of a loss. Losses of a few steps with small rates differ by the order of
# additions alone; networks with batch normalisation amplify it.
OPTIONS = [
    ("adamw", [*PLAIN, "--optimizer", "adamw", "--lr", "0.001", "--weight-decay", "0.01"], 1e-3),
    ("lamb, accumulated", [*PLAIN, "--optimizer", "lamb", "--lr", "0.005", "--logical-shards", "4"], 1e-3),
    ("muon", [*PLAIN, "--optimizer", "muon", "--lr", "0.01", "--momentum", "0.9", "--muon-normalize", "on"], 1e-3),
    ("mixup and cutmix", [*LENET, "--mixup", "0.4", "--cutmix", "1"], 1e-3),
    ("augmentation on the GPU", [*RESNET, "--random-crop-padding", "4", "--random-crop-fill", "reflect", "--random-flip",
                                 "alternate", "--cutout", "8"], 1e-2),
    ("augmentation on the CPU", [*RESNET, "--trivial-augment", "on", "--random-erasing", "0.5"], 1e-2),
    ("frozen and fading parameters", [*LENET, "--freeze", "conv1.*", "--lr-fade-for", "fc1.bias@1", "--lr-for",
                                      "*.bias=2"], 1e-3),
    ("lookahead and average", [*LENET, "--lookahead", "3", "--ema-decay", "0.9", "--ema-warmup", "on", "--clip-norm",
                               "1"], 1e-3),
    ("progressive size", [*RESNET, "--progressive-size", "16", "--progressive-end", "2", "--progressive-stages", "3"], 1e-2),
    ("evaluation of views", [*RESNET, "--eval-views", "mirror-shift"], 1e-2),
    ("one step in flight", [*RESNET, "--steps-in-flight", "1"], 1e-2),
]
# Networks with operators that no other check trains; the first steps only, since their losses drift apart.
NETWORKS = ["alexnet", "squeezenet1-1", "densenet121", "shufflenet-v2", "efficientnet-b0", "mobilenet-v3-small",
            "convnext-tiny", "airbench94"]


def trained(check, device, arguments):
    folder = check.folder(device)
    check.expect(check.ddp([*COMMON, *arguments, "--device", device, "--output", str(folder)], 120))
    return training.losses(folder), [line["val_loss"] for line in training.metrics(folder) if "val_loss" in line]


def same_as_cpu(arguments, tolerance):
    def run(check):
        (expected, evaluated), (losses, validated) = trained(check, "cpu", arguments), trained(check, "cuda", arguments)
        worst, step, exceeds = training.largest_difference(losses + validated, expected + evaluated,
                                                           [tolerance] * len(expected + evaluated))
        said = f"largest relative difference of a loss from the CPU {worst:.1e}, at step {step}"
        if exceeds:
            raise Failed(f"{said}; tolerance {tolerance:.0e}")
        return said

    return run


def network_of(name):
    size = {"alexnet": "224", "airbench94": "32"}.get(name, "64")
    return [*networks.synthetic(int(size), 64), "--model", name, "--global-batch", "16", "--lr", "0.0001", "--max-steps", "3"]


def sweep(check):
    """Trials of two ranks that share the GPU, one of which diverges."""
    folder = check.folder("sweep")
    ended = check.ddp(["sweep", *LENET, *COMMON, "--device", "cuda", "--oversubscribe-gpus", "--gpu-memory-fraction", "0.4",
                       "--sweep", "lr=0.01,0.05,0.1,1000000", "--output", str(folder)], 120, ranks=2)
    if not (folder / "leaderboard.csv").exists():
        check.expect(ended)
    lines = (folder / "leaderboard.csv").read_text(encoding="utf-8").splitlines()
    states = collections.Counter(line.split(",")[2] for line in lines[1:])
    said = ", ".join(f"{count} {state}" for state, count in states.items())
    if len(lines) != 5 or states["finished"] != 3:
        raise Failed(f"{said}, in place of 3 finished and one that diverged: {'; '.join(lines[1:])}")
    return said


def scaling(check):
    ended = check.expect(check.ddp(["scaling", *LENET, "--device", "cuda", "--oversubscribe-gpus", "--scaling-seconds", "1",
                                    "--output", str(check.folder("scaling"))], 120, ranks=2))
    return ended.stdout.strip().splitlines()[-1]


def explain(check):
    folder = check.folder("run")
    check.expect(check.ddp([*LENET, "--device", "cuda", "--epochs", "40", "--progress", "none", "--output", str(folder)], 120))
    return check.expect(check.ours([check.machine.program, "explain", str(folder)], 60)).stdout.strip().splitlines()[0]


def run(stage):
    stage.check_together([(f"losses with {name}", same_as_cpu(arguments, tolerance))
                          for name, arguments, tolerance in OPTIONS] +
                         [(f"losses of {name}", same_as_cpu(network_of(name), 1e-2)) for name in NETWORKS], at_once=6)
    stage.check("sweep: trials share the GPU", sweep)
    stage.check("scaling: two ranks on one GPU", scaling)
    stage.check("explain", explain)
