#include <array>

#include "commands/commands.h"

namespace ddp {
namespace {

// Runs in one report; their lines have eight colours.
constexpr std::size_t kMostReported = 8;

// The first is the default.
constexpr std::array kCommands = {
    CommandSpec{.name = "train",
                .purpose = "train a network (the default)",
                .usage = "[train] [--config FILE] [--key value ...]",
                .example = "mpirun -np 2 ddp_train --dataset glyphs --epochs 2",
                .options =
                    "config model device dataset data-dir global-batch batch-per-rank optimizer lr schedule epochs "
                    "seed threads output resume",
                .topics = kTrainingTopics,
                .run = run_train},
    CommandSpec{.name = "eval",
                .purpose = "evaluate a checkpoint on the test set",
                .usage = "eval --run DIR [--checkpoint latest|best|PATH] [--json] [--key value ...]",
                .example = "ddp_train eval --run runs/quickstart --checkpoint best",
                .options = "run checkpoint json device data-dir test-limit precision eval-on eval-views threads",
                .topics = "device data batch distributed",
                .run = run_eval},
    CommandSpec{.name = "plan",
                .purpose = "print the execution plan: memory, layouts and estimated time per step",
                .usage = "plan [--config FILE] [--key value ...]",
                .example = "ddp_train plan --model resnet50 --dataset synthetic --global-batch 64",
                .options = "config model precision device gpu-description dataset global-batch batch-per-rank "
                           "logical-shards split-linear pipeline deterministic plan-cache threads",
                .topics = "model device data augmentation batch optimizer distributed",
                .run = run_plan},
    CommandSpec{
        .name = "bench",
        .purpose = "time training steps on one batch held in memory, without file I/O",
        .usage = "bench [--stages] [--config FILE] [--key value ...]",
        .example = "mpirun -np 2 ddp_train bench --model lenet --global-batch 256 --stages",
        .options = "on-request stages config model precision device dataset global-batch batch-per-rank threads",
        .topics = "model device data batch optimizer distributed",
        .run = run_bench},
    CommandSpec{.name = "check",
                .purpose = "test the device of every rank and the communication between ranks",
                .usage = "check [--key value ...]",
                .example = "mpirun -np 8 ddp_train check",
                .options = "device gpus oversubscribe-gpus reduction threads bind timeout",
                .topics = "device distributed",
                .run = run_check},
    CommandSpec{.name = "export",
                .purpose = "export a trained model to ONNX or safetensors",
                .usage = "export --run DIR --to FILE [--checkpoint latest|best|PATH] [--key value ...]",
                .example = "ddp_train export --run runs/quickstart --checkpoint best --to lenet.onnx",
                .options = "run checkpoint to format average export-precision fold-batch-norm",
                .run = run_export},
    CommandSpec{
        .name = "pack",
        .purpose = "write a data set, with its labels and its division, into shards of WebDataset",
        .usage = "pack --to DIR [--data-dir DIR] [--pack-size N] [--key value ...]",
        .example = "mpirun -np 2 ddp_train pack --dataset folder --data-dir photos --to shards",
        .options = "to pack-size pack-format pack-quality shard-mib dataset data-dir labels val-split max-bad-samples",
        .topics = "data",
        .run = run_pack},
    CommandSpec{.name = "replay",
                .purpose = "compute a step that was not finite once more, layer by layer",
                .usage = "replay RUN/nonfinite-STEP [--key value ...]",
                .example = "ddp_train replay RUN/nonfinite-7",
                .options = "device gpus threads bind",
                .topics = "device",
                .folders = {1, 1, "the folder that a run wrote about a step"},
                .run = run_replay},
    CommandSpec{.name = "sweep",
                .purpose = "train many settings at once, each on its own ranks, with a leaderboard",
                .usage = "sweep --sweep KEY=VALUES ... [--config FILE] [--key value ...]",
                .example = "mpirun -np 4 ddp_train sweep --config configs/quickstart.cfg --sweep lr=0.05,0.1,0.2",
                .options = "sweep sweep-list sweep-draws ranks-per-trial sweep-halving sweep-halving-epochs "
                           "sweep-max-trials config output seed",
                .topics = kTrainingTopics,
                .run = run_sweep},
    CommandSpec{.name = "compare",
                .purpose = "find the first step at which two runs differ, and in what",
                .usage = "compare RUN RUN",
                .example = "ddp_train compare runs/a runs/b",
                .folders = {2, 2, "the folders of two runs"},
                .run = run_compare},
    CommandSpec{.name = "explain",
                .purpose = "find what limits the speed of a run, and what would help",
                .usage = "explain RUN [--verify N] [--probe off]",
                .example = "ddp_train explain runs/lenet-mnist",
                .options = "verify probe",
                .folders = {1, 1, "the folder of a run"},
                .run = run_explain},
    CommandSpec{.name = "report",
                .purpose = "write one HTML file about one or several runs",
                .usage = "report RUN [RUN ...] [--to FILE]",
                .example = "ddp_train report runs/a runs/b",
                .options = "to",
                .folders = {1, kMostReported, "the folders of one or several runs"},
                .run = run_report},
    CommandSpec{.name = "scaling",
                .purpose = "train for seconds on 1, 2, 4, ... ranks of this job: what limits their speed-up",
                .usage = "scaling [--config FILE] [--key value ...] [--to FILE]",
                .example = "mpirun -np 4 ddp_train scaling --config configs/quickstart.cfg --to scaling.svg",
                .options = "scaling-seconds to config model precision device dataset global-batch reduction threads",
                .topics = kTrainingTopics,
                .run = run_scaling},
    CommandSpec{.name = "devices",
                .purpose = "list the GPUs of this machine: memory, utilization, temperature, processes",
                .usage = "devices",
                .example = "ddp_train devices",
                .run = run_devices},
};

}  // namespace

std::span<const CommandSpec> command_table() { return kCommands; }

}  // namespace ddp
