#!/usr/bin/env python3
"""compare names the cause of a difference: one planted difference in each option that changes a step.

usage: compare.py PROGRAM MPIRUN

Every option of the program stands below: in PLANTED with a difference and the kind and step of the verdict, in SAME, where runs must
not differ, or in ELSEWHERE with the reason why it is not tried here. An option that is in none of them fails the test.
"""
import concurrent.futures, os, re, shlex, shutil, struct, subprocess, sys, tempfile, threading

from grey_png import grey_png

program, mpirun = sys.argv[1:3]
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                  OMPI_MCA_btl_vader_single_copy_mechanism="none", OMP_NUM_THREADS="1")

COMMON = "--test-limit 32 --lr 0.05 --threads 1 --progress none --tensorboard off --max-steps 6 --epochs 3"
LENET = "--dataset glyphs --model lenet --train-limit 66 --global-batch 32 --deterministic"
NORM = "--dataset glyphs --model mnist-slim --train-limit 66 --global-batch 32 --deterministic"
FOLDER = "--dataset folder --model mnist-slim --image-channels 1 --image-size 28 --train-limit 64 --global-batch 32 --deterministic"
FLAT = FOLDER.replace(" --train-limit 64", "") + " --data-dir {flat}"
SIZES = "--dataset synthetic --model squeezenet1-1 --image-size 40 --train-limit 32 --global-batch 16 --deterministic"

# option: (base, difference, kind, step, ranks); base and difference are options of both runs and of the second alone.
PLANTED = {
    "model": (LENET, "--model mnist-slim", "loss", 1),
    "init": (LENET, "--init xavier", "weights", 1),
    "init-std": (LENET + " --init normal", "--init-std 0.03", "weights", 1),
    "init-from": (LENET, "--init-from {weights}", "weights", 1),
    "new-classifier": (LENET + " --init-from {weights}", "--new-classifier", "weights", 1),
    "sync-batch-norm": (NORM, "--sync-batch-norm", "loss", 1, 2),
    "precision": (LENET, "--precision bf16", "loss", 1),
    "dataset": ("--model lenet --image-size 28 --image-channels 1 --train-limit 64 --global-batch 32 --deterministic "
                "--dataset glyphs", "--dataset synthetic", "augmentation", 1),
    "data-dir": (FOLDER + " --data-dir {images}", "--data-dir {other}", "augmentation", None),
    "train-limit": (LENET, "--train-limit 64", "data order", 1),
    "test-limit": (LENET, "--test-limit 16", "evaluation", 3),
    "normalize": (LENET, "--normalize standard", "loss", 1),
    "random-resized-crop": (LENET, "--random-resized-crop", "augmentation", 1),
    "random-crop-padding": (LENET, "--random-crop-padding 2", "augmentation", 1),
    "random-crop-fill": (LENET + " --random-crop-padding 4", "--random-crop-fill reflect", "augmentation", None),
    "random-flip": (LENET, "--random-flip", "augmentation", 1),
    "rand-augment": (LENET, "--rand-augment 2,9", "augmentation", 1),
    "trivial-augment": (LENET, "--trivial-augment", "augmentation", 1),
    "color-jitter": (LENET, "--color-jitter 0.4,0.4,0", "augmentation", 1),
    "repeat-augment": (LENET, "--repeat-augment 2", "data order", 1),
    "cutout": (LENET, "--cutout 8", "augmentation", 1),
    "random-erasing": (LENET, "--random-erasing 0.9", "augmentation", 1),
    "mixup": (LENET, "--mixup 0.4", "augmentation", 1),
    "cutmix": (LENET, "--cutmix 1", "augmentation", 1),
    "mixup-per": (LENET + " --mixup 0.4", "--mixup-per batch", "augmentation", 1),
    "progressive-size": (SIZES, "--progressive-size 32 --progressive-end 1 --progressive-stages 2", "augmentation", 1),
    "progressive-begin": (SIZES + " --epochs 4 --max-steps 8 --progressive-size 32 --progressive-stages 3 --progressive-end 4",
                          "--progressive-begin 2", "augmentation", 5),
    "progressive-end": (SIZES + " --progressive-size 32 --progressive-stages 2 --progressive-end 1", "--progressive-end 2",
                        "augmentation", 3),
    "progressive-stages": (SIZES + " --progressive-size 32 --progressive-stages 2 --progressive-end 2",
                           "--progressive-stages 3", "augmentation", 3),
    "image-size": (FOLDER + " --data-dir {images}", "--image-size 32", "augmentation", 1),
    "labels": (FLAT + " --split-group 'regex:([0-9]).png'", "--labels {flat}/list.csv", "augmentation", 1),
    "val-split": (FLAT, "--val-split 0.4", "data order", 1),
    "fold": (FLAT, "--fold 2/3", "data order", 1),
    "split-group": (FLAT, "--split-group regex:([0-9])[0-9].png", "data order", 1),
    "eval-size": (SIZES, "--eval-size 48", "augmentation", 1),
    "resize": (FOLDER + " --data-dir {images} --image-size 24", "--resize squash", "augmentation", 1),
    "eval-crop": (FOLDER + " --data-dir {images} --image-size 24", "--eval-crop 0.7", "augmentation", 1),
    "interpolation": (FOLDER + " --data-dir {images} --image-size 24", "--interpolation bicubic", "augmentation", 1),
    "exif-orientation": (FOLDER + " --data-dir {images}", "--exif-orientation off", "augmentation", 1),
    "image-channels": (FOLDER + " --data-dir {images}", "--image-channels 3", "augmentation", 1),
    "global-batch": (LENET, "--global-batch 33", "data order", 1),
    "batch-per-rank": (LENET.replace("--global-batch", "--batch-per-rank"), "--batch-per-rank 33", "data order", 1),
    "batch-size": (LENET.replace("--global-batch", "--batch-size"), "--batch-size 33", "data order", 1),
    "logical-shards": (NORM, "--logical-shards 2", "loss", 1),
    "drop-last": (LENET, "--drop-last", "data order", 3),
    "optimizer": (LENET, "--optimizer adam", "update", 1),
    "lr": (LENET, "--lr 0.06", "schedule", 1),
    "momentum": (LENET, "--momentum 0.9", "update", 2),
    "nesterov": (LENET + " --momentum 0.9", "--nesterov", "update", 1),
    "beta1": (LENET + " --optimizer adam", "--beta1 0.8", "update", 2),
    "beta2": (LENET + " --optimizer adam", "--beta2 0.9", "update", None),
    "epsilon": (LENET + " --optimizer adam", "--epsilon 0.001", "update", 1),
    "rho": (LENET + " --optimizer rmsprop", "--rho 0.9", "update", 1),
    "rmsprop-form": (LENET + " --optimizer rmsprop --epsilon 0.01", "--rmsprop-form keras", "update", 1),
    "lars-trust": (LENET + " --optimizer lars", "--lars-trust 0.01", "update", 1),
    "muon-momentum": (LENET + " --optimizer muon", "--muon-momentum 0.5", "weights", None),
    "muon-steps": (LENET + " --optimizer muon", "--muon-steps 3", "weights", 2),
    "muon-scale": (LENET + " --optimizer muon", "--muon-scale rms", "weights", 2),
    "muon-normalize": (LENET + " --optimizer muon", "--muon-normalize", "weights", 2),
    "weight-decay": (LENET, "--weight-decay 0.01", "update", 1),
    "decay": (LENET + " --weight-decay 0.01 --momentum 0.9", "--decay decoupled", "update", None),
    "no-decay-on": (NORM + " --weight-decay 0.1 --optimizer lamb", "--no-decay-on norm-and-bias", "update", None),
    "lr-for": (LENET, "--lr-for conv1.*=2", "weights", 2),
    "decay-for": (LENET + " --weight-decay 0.1", "--decay-for fc2.*=0", "update", 1),
    "lr-fade-for": (LENET, "--lr-fade-for conv1.*@1", "weights", None),
    "freeze": (LENET, "--freeze conv1.*", "gradient", 1),
    "frozen-statistics": (NORM + " --freeze bn1.*", "--frozen-statistics update", "loss", 1),
    "clip-norm": (LENET, "--clip-norm 0.1", "update", 1),
    "clip-value": (LENET, "--clip-value 0.0001", "update", 1),
    "ema-decay": (LENET, "--ema-decay 0.9", "evaluation", 3),
    "ema-warmup": (LENET + " --ema-decay 0.99", "--ema-warmup", "evaluation", 3),
    "lookahead": (LENET, "--lookahead 2", "weights", 3),
    "lookahead-decay": (LENET + " --lookahead 2", "--lookahead-decay 0.8", "weights", 3),
    "lookahead-power": (LENET + " --lookahead 2", "--lookahead-power 2", "weights", 3),
    "schedule": (LENET, "--schedule cosine", "schedule", 2),
    "schedule-by": (LENET + " --schedule cosine", "--schedule-by epoch", "schedule", 2),
    "lr-step-epochs": (LENET + " --schedule step --lr-step-epochs 1", "--lr-step-epochs 2", "schedule", 4),
    "lr-decay-steps": (LENET + " --schedule step --lr-decay-steps 2", "--lr-decay-steps 3", "schedule", 3),
    "lr-milestones": (LENET + " --schedule multi-step --lr-milestones 1", "--lr-milestones 2", "schedule", 4),
    "lr-gamma": (LENET + " --schedule multi-step --lr-milestones 1", "--lr-gamma 0.5", "schedule", 4),
    "lr-staircase": (LENET + " --schedule exponential --lr-decay-steps 3", "--lr-staircase", "schedule", 2),
    "lr-min": (LENET + " --schedule cosine", "--lr-min 0.01", "schedule", 2),
    "lr-power": (LENET + " --schedule polynomial", "--lr-power 2", "schedule", 2),
    "one-cycle-anneal": (LENET + " --schedule one-cycle", "--one-cycle-anneal linear", "schedule", None),
    "one-cycle-rise": (LENET + " --schedule one-cycle", "--one-cycle-rise 0.6", "schedule", 2),
    "one-cycle-div": (LENET + " --schedule one-cycle", "--one-cycle-div 10", "schedule", 1),
    "one-cycle-final-div": (LENET + " --schedule one-cycle", "--one-cycle-final-div 10", "schedule", None),
    "one-cycle-momentum": (LENET + " --schedule one-cycle", "--one-cycle-momentum", "update", 2),
    "one-cycle-low-momentum": (LENET + " --schedule one-cycle --one-cycle-momentum", "--one-cycle-low-momentum 0.5", "update",
                               None),
    "one-cycle-high-momentum": (LENET + " --schedule one-cycle --one-cycle-momentum", "--one-cycle-high-momentum 0.99",
                                "update", None),
    "warmup-epochs": (LENET, "--warmup-epochs 1", "schedule", 1),
    "lr-scale": (LENET, "--lr-scale linear", "schedule", 1),
    "lr-base-batch": (LENET + " --lr-scale linear", "--lr-base-batch 64", "schedule", 1),
    "label-smoothing": (LENET, "--label-smoothing 0.1", "loss", 1),
    "epochs": (LENET + " --schedule cosine", "--epochs 4", "schedule", 2),
    "seed": (LENET, "--seed 2", "data order", 1),
    "loss-scale": (LENET + " --precision fp16", "--loss-scale 1", "gradient|rounding", 1),
    "reduction": (LENET.replace(" --deterministic", ""), "--reduction root", "rounding", None, 3),
    "gradient-precision": (LENET.replace(" --deterministic", ""), "--gradient-precision bf16", "gradient", 1, 2),
    "split-linear": (LENET.replace(" --deterministic", ""), "--split-linear fc1", "rounding|no difference", None, 2),
    "pipeline": (NORM.replace(" --deterministic", ""), "--pipeline 2", "loss|rounding|no difference", None, 2),
    "first-bucket-mib": (LENET.replace(" --deterministic", "") + " --bucket-mib 25", "--first-bucket-mib 0.01", "rounding|no difference",
                         None, 3),
    "bucket-mib": (LENET.replace(" --deterministic", "") + " --bucket-mib 25", "--bucket-mib 0.02", "rounding|no difference", None, 3),
}

# Options that change nothing of a step, all in one run.
SAME = ("--workers 0 --prefetch 1 --overlap off --steps-in-flight 2 --bind none --hang-timeout 50 --timeout 300 --checkpoint-every 2 "
        "--keep-checkpoints 1 --on-checkpoint-failure stop --log-interval 1 --eval-every 0 --eval-on all --plan-cache off --trace "
        "--tensorboard on --log-placement --on-nonfinite skip --nonfinite-limit 3 --log-level warning --max-steps 5")

ELSEWHERE = {
    "shards, which are another --dataset": "val-dir image-key label-key",
    "a GPU": "device gpus oversubscribe-gpus gpu-memory-fraction gpu-memory-limit gpu-description cuda-graph",
    "kernels are chosen by time, so that nothing may differ": "deterministic threads",
    "it moves work between ranks by their speed": "balance",
    "steps that are not finite or overflow": "loss-scale-interval",
    "files that cannot be read, or are read in another way with the same pixels": "max-bad-samples image-cache",
    "it is needed here": "recording progress summary output",
    "it selects a checkpoint": "resume",
    "it changes evaluations only, and none of these images": "eval-views fast-decode",
    "the command line only": "config json dump-config help version run checkpoint format to average export-precision "
    "pack-size pack-format pack-quality shard-mib fold-batch-norm on-request stages sweep sweep-list sweep-draws ranks-per-trial sweep-halving sweep-halving-epochs "
    "sweep-max-trials verify probe scaling-seconds",
}

failures = []


def fail(text):
    failures.append(text)
    print("FAILED:", text, flush=True)


def image_folder(root, odd):
    for split, count in (("train", 32), ("val", 8)):
        for label in ("a", "b"):
            os.makedirs(f"{root}/{split}/{label}")
            for i in range(count):
                # Every fourth lies upside down.
                exif = struct.pack("<2sHIHHHIII", b"II", 42, 8, 1, 0x112, 3, 1, 3, 0) if i % 4 == 1 else b""
                with open(f"{root}/{split}/{label}/{i:02}.png", "wb") as file:
                    file.write(grey_png(i + (100 if label == "b" else 0) + (odd if split == "train" and i == 3 else 0), exif))


def execute(words, ranks=1):
    start = [mpirun, "-q", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks > 1 else []
    done = subprocess.run(start + [program] + words, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


class Runs:
    """Runs by their options, each trained once."""

    def __init__(self, root, places):
        self.root, self.places, self.lock, self.known = root, places, threading.Lock(), {}

    def of(self, options, ranks):
        options = options.format(**self.places)
        with self.lock:
            event, folder, first = self.known.setdefault((options, ranks), (threading.Event(), f"{self.root}/{len(self.known)}", []))
            mine = not first
            first.append(True)
        if mine:
            # A run of a given seed in its own folder; the option that is planted stands last and so holds.
            code, _, errors = execute(shlex.split(COMMON + " " + options) + ["--output", folder], ranks)
            if code != 0:
                fail(f"code {code} from {options}: {errors.strip()[-300:]}")
            event.set()
        event.wait()
        return folder


def check(runs, key, base, change, kinds, step=None, ranks=1):
    a, b = runs.of(base, ranks), runs.of(base + " " + change, ranks)
    code, text, errors = execute(["compare", a, b])
    said = text.splitlines()[0] if text else errors.strip()
    where = f"--{key} ({change})"
    if not re.search(r"(^|: )(" + kinds + r")( |:)", said.split(";")[0]):
        return fail(f"{where} is not called {kinds}: {said}")
    if said.startswith("no difference"):
        return None
    if f"--{key} " not in said.split("; because of ")[-1] or "; because of " not in said:
        # The rounding of a sum reads "..., because of".
        if f", because of --{key} " not in said and f"because of --{key} " not in said:
            return fail(f"{where} is not named: {said}")
    if step is not None and not re.search(rf"(at|after) step {step}:", said):
        return fail(f"{where} is not found at step {step}: {said}")
    return None


def check_complete():
    _, text, _ = execute(["--help", "markdown"])
    keys = set(re.findall(r"^\| `(?:-\w, )?--([a-z0-9-]+)", text, re.M))
    same = {word[2:] for word in SAME.split() if word.startswith("--")}
    elsewhere = {word for words in ELSEWHERE.values() for word in words.split()}
    known = set(PLANTED) | same | elsewhere
    if len(keys) < 100:
        fail(f"only {len(keys)} options are listed")
    for key in sorted(keys - known):
        fail(f"--{key} has no planted difference: add it to this script")
    for key in sorted(known - keys):
        fail(f"--{key} is not an option any more")


def main():
    check_complete()
    with tempfile.TemporaryDirectory() as root:
        os.environ["XDG_CACHE_HOME"] = root + "/cache"
        os.environ["OMPI_MCA_orte_tmpdir_base"] = root
        places = {"images": root + "/images", "other": root + "/other", "weights": root + "/weights", "flat": root + "/flat"}
        image_folder(places["images"], 0)
        image_folder(places["other"], 50)
        shutil.copytree(places["images"] + "/train", places["flat"])
        with open(places["flat"] + "/list.csv", "w") as file:
            file.write("path,label\n" + "".join(f"{label}/{i:02}.png,{label}\n" for i in range(31, -1, -1) for label in "ba"))
        code, _, errors = execute(shlex.split(COMMON + " " + LENET + " --seed 9 --max-steps 2") + ["--output", places["weights"]])
        if code != 0:
            fail(errors)
        runs = Runs(root, places)
        jobs = [(key,) + planted for key, planted in PLANTED.items()]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda job: check(runs, *job), jobs))
        a, b = runs.of(LENET, 1), runs.of(LENET + " " + SAME, 1)
        _, text, errors = execute(["compare", a, b])
        if not text.startswith("no difference in the 5 steps"):
            fail(f"options that change no step: {text or errors}")
    print(f"{len(failures)} checks failed" if failures else "all checks passed")
    return 1 if failures else 0


sys.exit(main())
