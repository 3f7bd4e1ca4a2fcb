#include "options/table.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/text.h"
#include "options/data_table.h"
#include "options/topic_table.h"
#include "options/values.h"

namespace ddp {
namespace {

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMuonSteps = 20;
constexpr std::int64_t kMaxStages = 1024;
// Batches and shards stay below 2^31, so that products with the number of ranks cannot overflow.
constexpr std::int64_t kMaxBatch = std::numeric_limits<std::int32_t>::max();
constexpr RealRange kLearningRates{0, 1e6};

constexpr std::array kTopics = {
    OptionTopic{"run", "general options"},
    OptionTopic{"model", "network architecture, weight initialization and numeric precision"},
    OptionTopic{"device", "CPU or GPUs, GPU selection and GPU memory limits"},
    OptionTopic{"data", "data sets, loading and augmentation"},
    OptionTopic{"batch", "batch size and its distribution over ranks"},
    OptionTopic{"optimizer", "optimizer, learning rate schedule and length of training"},
    OptionTopic{"distributed", "gradient reduction, threads, CPU binding and timeouts"},
    OptionTopic{"output", "run folder, checkpoints, evaluation and progress output"},
    OptionTopic{"export", "options of the export command"},
    OptionTopic{"bench", "options of the bench command"},
    OptionTopic{"sweep", "options of the sweep command"},
    OptionTopic{"explain", "options of the explain command"},
    OptionTopic{"scaling", "options of the scaling command"},
};

constexpr std::array kCommands = {
    CommandSpec{"train", "train a network (the default)"},
    CommandSpec{"eval", "evaluate a checkpoint on the test set"},
    CommandSpec{"plan", "print the execution plan: memory, layouts and estimated time per step"},
    CommandSpec{"bench", "time training steps on one batch held in memory, without file I/O"},
    CommandSpec{"check", "test the device of every rank and the communication between ranks"},
    CommandSpec{"export", "export a trained model to ONNX or safetensors"},
    CommandSpec{"replay", "compute a step that was not finite once more, layer by layer: replay RUN/nonfinite-STEP"},
    CommandSpec{"sweep", "train many settings at once, each on its own ranks, with a leaderboard"},
    CommandSpec{"compare", "find the first step at which two runs differ, and in what: compare RUN RUN"},
    CommandSpec{"explain", "find what limits the speed of a run, and what would help: explain RUN"},
    CommandSpec{"report", "write one HTML file about one or several runs: report RUN [RUN...] [--to FILE]"},
    CommandSpec{"scaling", "train for seconds on 1, 2, 4, ... ranks of this job: what limits their speed-up"},
    CommandSpec{"devices", "list the GPUs of this machine: memory, utilization, temperature, processes"},
};

// Switches of Options itself; command line only.
void add_switch(std::vector<OptionSpec>& table, std::string_view key, bool Options::*member, std::string_view help) {
  OptionSpec& spec = table.emplace_back();
  spec.topic = "run";
  spec.key = key;
  spec.help = help;
  spec.allowed = "on or off";
  spec.bare = "on";
  spec.command_line_only = true;
  spec.set = [member](Options& options, std::string_view value) { options.*member = read_switch(value); };
  spec.get = [](const Options&) { return std::nullopt; };
}

void add_help(std::vector<OptionSpec>& table) {
  OptionSpec& spec = table.emplace_back();
  spec.topic = "run";
  spec.key = "help";
  spec.letter = 'h';
  spec.value_name = "[TOPIC]";
  spec.help = "show the options of a topic, or all options";
  std::vector<std::string> words;
  for (const OptionTopic& topic : kTopics) words.emplace_back(topic.name);
  words.emplace_back("all");
  words.emplace_back("markdown");
  spec.allowed = "one of " + join(words);
  spec.bare = "common";
  spec.command_line_only = true;
  spec.set = [words](Options& options, std::string_view value) {
    options.help = true;
    options.help_topic = value == "common" ? "" : value;
    if (!options.help_topic.empty() && std::find(words.begin(), words.end(), value) == words.end())
      throw BadValue("unknown topic");
  };
  spec.get = [](const Options&) { return std::nullopt; };
}

void add_run(std::vector<OptionSpec>& table) {
  TopicTable run(table, "run", &Options::run);
  OptionSpec& config = run.text("config", &RunOptions::config, "FILE", "a file",
                                "read options from FILE; options on the command line take precedence");
  config.command_line_only = true;
  config.common = true;
  add_switch(table, "dump-config", &Options::dump_config, "print all options as a configuration file and exit");
  add_switch(table, "json", &Options::json, "eval: print one line of JSON in place of tables");
  add_help(table);
  add_switch(table, "version", &Options::version, "print the versions of the program and its libraries and exit");
  run.choice("log-level", &RunOptions::log_level, "minimum severity of messages");
}

void add_model(std::vector<OptionSpec>& table) {
  TopicTable model(table, "model", &Options::model);
  model
      .text("model", &ModelOptions::model, "NAME|FILE.onnx", "a model name or an ONNX file",
            "the network; an ONNX file also provides the initial weights")
      .common = true;
  model.choice(
      "init", &ModelOptions::init,
      "weight initialization; default: as published with the model; pytorch: U(-k, k) with k = 1/sqrt(fan-in)");
  model.real("init-std", &ModelOptions::init_std, {0, 1000}, "standard deviation of --init normal");
  model.text("init-from", &ModelOptions::init_from, "PATH", "a .safetensors file, a checkpoint or a run folder",
             "start from the weights in a file, a checkpoint or a run folder");
  model.on_off("new-classifier", &ModelOptions::new_classifier,
               "--init-from, or --model FILE.onnx: reinitialize the last layer, to train on other classes");
  model.on_off("sync-batch-norm", &ModelOptions::sync_batch_norm,
               "batch normalization: statistics over the global batch instead of each logical shard; CPU only");
  model.choice("precision", &ModelOptions::precision, "numeric format of activations and matrix products");
}

void add_device(std::vector<OptionSpec>& table) {
  TopicTable device(table, "device", &Options::device);
  using D = DeviceOptions;
  device.choice("device", &D::device, "auto: GPUs if every rank has one, else the CPU").common = true;
  device.ordinals("gpus", &D::gpus, "visible GPUs to assign to the ranks of each host, in this order").unset = "all";
  device.on_off("oversubscribe-gpus", &D::oversubscribe_gpus,
                "allow ranks to share a GPU; gradients are then reduced by MPI through host memory");
  device.real("gpu-memory-fraction", &D::gpu_memory_fraction, {0, 1, false, true},
              "fraction of GPU memory that a rank may use");
  device.bytes("gpu-memory-limit", &D::gpu_memory_limit, "GPU memory that a rank may use; 0: no limit");
  device.text("gpu-description", &D::gpu_description, "FILE", "a file such as configs/gpus/h100.json",
              "plan: plan for the GPU that FILE describes, on a machine without it");
  device.on_off("log-placement", &D::log_placement, "print the host and GPU of each rank");
  device.choice("cuda-graph", &D::cuda_graph, "replay training steps as CUDA graphs; auto: if possible");
  device.integer(
      "steps-in-flight", &D::steps_in_flight, 0, 16,
      "steps that are enqueued before the result of the first is read; results do not depend on it; 0: 4 on a "
      "GPU, else 1");
}

void add_batch(std::vector<OptionSpec>& table) {
  TopicTable batch(table, "batch", &Options::batch);
  OptionSpec& global =
      batch.integer("global-batch", &BatchOptions::global_batch, 1, kMaxBatch, "samples per step over all ranks");
  global.unset = std::to_string(kDefaultGlobalBatch);
  global.common = true;
  OptionSpec& per_rank = batch.integer("batch-per-rank", &BatchOptions::batch_per_rank, 1, kMaxBatch,
                                       "samples per step on each rank, as an alternative to --global-batch");
  per_rank.unset = "--global-batch / ranks";
  per_rank.common = true;
  OptionSpec& size =
      batch.integer("batch-size", &BatchOptions::batch_size, 1, kMaxBatch, "samples per step; only with a single rank");
  size.letter = 'b';
  size.unset = "--global-batch";
  batch.integer("logical-shards", &BatchOptions::logical_shards, 0, 1 << 20,
                "parts of the global batch that are processed one at a time; more shards than ranks is gradient "
                "accumulation; 0: one per rank");
  batch.on_off("balance", &BatchOptions::balance,
               "move logical shards from slow ranks to fast ones, by their measured speed; requires more shards than "
               "ranks, and changes no bit with --deterministic");
  batch.on_off("drop-last", &BatchOptions::drop_last, "drop the last, incomplete batch of each epoch");
}

void add_update_rules(std::vector<OptionSpec>& table) {
  TopicTable optimizer(table, "optimizer", &Options::optimizer);
  using O = OptimizerOptions;
  optimizer.choice("optimizer", &O::optimizer, "optimization algorithm").common = true;
  optimizer.real("lr", &O::lr, kLearningRates, "learning rate").common = true;
  optimizer.real("momentum", &O::momentum, {0, 1, true},
                 "sgd, rmsprop, lars, and what muon updates like sgd: momentum");
  optimizer.on_off("nesterov", &O::nesterov, "sgd, and what muon updates like sgd: Nesterov momentum");
  optimizer.real("beta1", &O::beta1, {0, 1, true}, "adam, adamw, lamb: decay rate of the first-moment estimate");
  optimizer.real("beta2", &O::beta2, {0, 1, true}, "adam, adamw, lamb: decay rate of the second-moment estimate");
  optimizer.real("rho", &O::rho, {0, 1, true}, "rmsprop: decay rate of the average of squared gradients");
  optimizer.real("epsilon", &O::epsilon, {0, 1}, "adam, adamw, lamb, rmsprop: constant added to the denominator");
  optimizer.choice(
      "rmsprop-form", &O::rmsprop_form,
      "pytorch: epsilon outside the square root; keras: epsilon inside it, momentum applied to updates scaled by --lr");
  optimizer.real("lars-trust", &O::lars_trust, {0, 1000, false, true}, "lars: trust coefficient");
  optimizer.real("muon-momentum", &O::muon_momentum, {0, 1, true}, "muon: Nesterov momentum of matrices");
  optimizer.integer("muon-steps", &O::muon_steps, 1, kMuonSteps, "muon: steps of the Newton-Schulz iteration");
  optimizer.choice(
      "muon-scale", &O::muon_scale,
      "muon: factor of the learning rate for a matrix of R rows and C columns; shape: sqrt(max(1, R / C)); "
      "rms: 0.2 sqrt(max(R, C)), for learning rates of adamw");
  optimizer.on_off("muon-normalize", &O::muon_normalize,
                   "muon: before each step, scale each matrix of R rows to the norm sqrt(R)");
  optimizer.real("weight-decay", &O::weight_decay, {0, 1000}, "weight decay");
  optimizer.choice(
      "decay", &O::decay,
      "l2: added to the gradient; decoupled: subtracted from the weights; auto: decoupled for adamw, else l2");
  optimizer.choice(
      "no-decay-on", &O::no_decay_on,
      "norm-and-bias: exempt one-dimensional tensors from weight decay and from the layer-wise rates of lars and lamb");
  optimizer.pattern_factors(
      "lr-for", &O::lr_for,
      "multiply the learning rate of the parameters whose names match PATTERN (with * and ?) by X");
  optimizer.pattern_factors("decay-for", &O::decay_for,
                            "multiply the weight decay of the parameters whose names match PATTERN by X");
  optimizer.pattern_fades("lr-fade-for", &O::lr_fade_for,
                          "train the parameters whose names match PATTERN in the first N epochs only, with a learning "
                          "rate that falls linearly to 0, in place of --schedule");
  optimizer.pattern_freezes("freeze", &O::freeze,
                            "do not train the parameters whose names match PATTERN; with @N train them in the first N "
                            "epochs only");
  optimizer
      .choice("frozen-statistics", &O::frozen_statistics,
              "batch normalization all of whose parameters --freeze freezes from the start; keep: it uses its running "
              "statistics, which do not change; update: it uses those of the batch and updates them")
      .unset = "keep";
  optimizer.real("clip-norm", &O::clip_norm, {0, 1e9}, "clip the gradient to this global L2 norm; 0: off");
  optimizer.real("clip-value", &O::clip_value, {0, 1e9}, "clip each component of the gradient to [-X, X]; 0: off");
  optimizer.real("ema-decay", &O::ema_decay, {0, 1, true},
                 "decay rate of an exponential moving average of the weights, which is used for evaluation; 0: off");
  optimizer.on_off("ema-warmup", &O::ema_warmup,
                   "limit the decay rate of the average to (1 + n) / (10 + n) after n updates");
  optimizer.integer("lookahead", &O::lookahead, 0, kUnbounded,
                    "every N steps, interpolate the weights with a slow copy, which they become at the end; 0: off");
  optimizer.real("lookahead-decay", &O::lookahead_decay, {0, 1, true},
                 "--lookahead: fraction of the slow weights that is kept; the rest are the trained ones");
  optimizer.real(
      "lookahead-power", &O::lookahead_power, {0, 100},
      "--lookahead: --lookahead-decay is reached at the end only, and multiplied by (step / steps)^X before");
}

void add_schedules(std::vector<OptionSpec>& table) {
  TopicTable optimizer(table, "optimizer", &Options::optimizer);
  using O = OptimizerOptions;
  optimizer.choice("schedule", &O::schedule, "learning rate schedule").common = true;
  optimizer.choice("schedule-by", &O::schedule_by,
                   "whether the learning rate changes per step or per epoch, and the unit of --lr-milestones; auto: "
                   "epoch for multi-step, else step");
  optimizer.integer("lr-step-epochs", &O::lr_step_epochs, 0, kUnbounded,
                    "--schedule step, exponential: epochs between decays");
  optimizer.integer("lr-decay-steps", &O::lr_decay_steps, 0, kUnbounded,
                    "--schedule step, exponential: steps between decays, as an alternative to --lr-step-epochs");
  optimizer.milestones("lr-milestones", &O::lr_milestones,
                       "--schedule multi-step: epochs at which the learning rate decays");
  optimizer.real("lr-gamma", &O::lr_gamma, {0, 1},
                 "--schedule step, multi-step, exponential: factor applied at each decay");
  optimizer.on_off("lr-staircase", &O::lr_staircase, "--schedule exponential: decay in discrete steps");
  optimizer.real("lr-min", &O::lr_min, kLearningRates, "--schedule cosine, polynomial: final learning rate");
  optimizer.real("lr-power", &O::lr_power, {0, 100}, "--schedule polynomial: exponent");
  optimizer.choice("one-cycle-anneal", &O::one_cycle_anneal,
                   "--schedule one-cycle: change the learning rate along cosines or straight lines");
  optimizer.real("one-cycle-rise", &O::one_cycle_rise, {0, 1, true, true},
                 "--schedule one-cycle: fraction of training during which the learning rate increases");
  optimizer.real("one-cycle-div", &O::one_cycle_div, {1, 1e9},
                 "--schedule one-cycle: peak --lr divided by the initial rate");
  optimizer.real("one-cycle-final-div", &O::one_cycle_final_div, {1, 1e12},
                 "--schedule one-cycle: initial rate divided by the final rate");
  optimizer.on_off("one-cycle-momentum", &O::one_cycle_momentum,
                   "--schedule one-cycle: cycle momentum (or beta1) inversely to the learning rate");
  optimizer.real("one-cycle-low-momentum", &O::one_cycle_low_momentum, {0, 1, true},
                 "--one-cycle-momentum: value at the peak learning rate");
  optimizer.real("one-cycle-high-momentum", &O::one_cycle_high_momentum, {0, 1, true},
                 "--one-cycle-momentum: initial and final value");
  optimizer.real("warmup-epochs", &O::warmup_epochs, {0, 1e6}, "epochs of linear warmup of the learning rate");
  optimizer.choice("lr-scale", &O::lr_scale,
                   "scale --lr by the global batch divided by --lr-base-batch, or by its square root");
  optimizer.integer("lr-base-batch", &O::lr_base_batch, 1, kMaxBatch,
                    "--lr-scale: global batch for which --lr was chosen");
}

// The loss, and what is not a matter of a single update.
void add_training(std::vector<OptionSpec>& table) {
  TopicTable optimizer(table, "optimizer", &Options::optimizer);
  using O = OptimizerOptions;
  optimizer.real("label-smoothing", &O::label_smoothing, {0, 1, true},
                 "fraction of the target probability spread uniformly over all classes");
  optimizer.real("epochs", &O::epochs, {0, 1e9, false, true}, "passes over the training set; may be fractional")
      .common = true;
  optimizer.integer("max-steps", &O::max_steps, 0, kUnbounded, "stop after this many steps; 0: no limit");
  optimizer.bits("seed", &O::seed, "seed for weights, sample order and augmentation").common = true;
  optimizer.choice("on-nonfinite", &O::on_nonfinite,
                   "what follows a step whose loss or gradient is not finite; stop: end with code 6; skip: go on "
                   "without an update; rollback: go on with the weights of the newest checkpoint");
  optimizer.integer("nonfinite-limit", &O::nonfinite_limit, 1, kUnbounded,
                    "--on-nonfinite skip, rollback: end with code 6 after more than this many such steps");
  optimizer.real(
      "loss-scale", &O::loss_scale, {1, kMostLossScale},
      "--precision fp16: factor of the loss, which keeps small gradients from becoming zero, in the first step; "
      "a power of two, which is halved whenever the gradient overflows");
  optimizer.integer("loss-scale-interval", &O::loss_scale_interval, 0, kUnbounded,
                    "--precision fp16: steps without overflow after which the factor is doubled; 0: never");
  optimizer.on_off("deterministic", &O::deterministic,
                   "bit-identical results in every run with the same --logical-shards, on any number of ranks");
}

void add_distributed(std::vector<OptionSpec>& table) {
  TopicTable distributed(table, "distributed", &Options::distributed);
  using D = DistributedOptions;
  distributed.choice("reduction", &D::reduction,
                     "how gradients are summed; ring: ring all-reduce; tree: in a fixed order, independent of the "
                     "number of ranks; root: on rank 0");
  distributed.choice("gradient-precision", &D::gradient_precision, "numeric format of gradients sent between ranks");
  distributed.on_off("overlap", &D::overlap, "reduce gradients while the backward pass runs");
  distributed.text(
      "split-linear", &D::split_linear, "none|LAYER,...", "none, or names of linear layers in which * is any text",
      "linear layers whose outputs are divided among the ranks, which then exchange activations instead of "
      "these gradients, such as fc*; plan says where that is less; CPU only");
  distributed.integer("pipeline", &D::pipeline, 1, kMaxStages,
                      "number of pipeline stages, one rank each; logical shards are micro-batches; plan says whether "
                      "that is faster; CPU only");
  distributed.real("first-bucket-mib", &D::first_bucket_mib, {0.001, 4096},
                   "size in MiB of the first gradient bucket; less where the others are smaller");
  distributed.real(
      "bucket-mib", &D::bucket_mib, {0, 4096},
      "size in MiB of the other gradient buckets; 0: at most 25, as the link between the ranks suggests, on GPUs 25");
  distributed
      .integer("threads", &D::threads, 0, 4096, "compute threads per rank; 0: an equal share of the host's cores")
      .common = true;
  distributed.choice("bind", &D::bind, "auto: bind each rank to its share of the cores");
  distributed.real("hang-timeout", &D::hang_timeout, {0.1, 1e6},
                   "seconds without progress, beyond the longest silence so far, after which a run counts as hung and "
                   "the job ends; evaluations, checkpoints and the building of caches may take up to --timeout");
  distributed.real("timeout", &D::timeout, {0.1, 1e6}, "seconds without any progress after which the job ends");
}

void add_output(std::vector<OptionSpec>& table) {
  TopicTable output(table, "output", &Options::output);
  using O = OutputOptions;
  OptionSpec& folder =
      output.text("output", &O::output, "DIR", "a folder",
                  "run folder; %j expands to the Slurm job ID, %A and %a to the array job and task ID");
  folder.unset = "runs/MODEL-DATASET";
  folder.common = true;
  output
      .text("resume", &O::resume, "none|auto|PATH", "none, auto or the path to a checkpoint",
            "resume from a checkpoint; auto: the newest intact one in the run folder, if any")
      .common = true;
  output.integer("checkpoint-every", &O::checkpoint_every, 0, kUnbounded,
                 "steps between checkpoints; 0: at the end of each epoch");
  output.integer("keep-checkpoints", &O::keep_checkpoints, 1, 1'000'000,
                 "number of most recent checkpoints to keep, in addition to the best");
  output.choice("on-checkpoint-failure", &O::on_checkpoint_failure,
                "if a checkpoint cannot be written during training; retry: warn, continue and write another one later");
  output.integer("log-interval", &O::log_interval, 1, kUnbounded, "steps between progress lines and training records");
  output.integer("eval-every", &O::eval_every, 0, kUnbounded, "epochs between evaluations; 0: only after the last");
  output.choice("eval-on", &O::eval_on, "ranks that evaluate");
  output.choice(
      "eval-views", &O::eval_views,
      "evaluate the mean of the logits over views of each image; mirror: and its mirror image; mirror-shift: and "
      "both shifted by one pixel to the lower right and the upper left");
  output.text("plan-cache", &O::plan_cache, "DIR|off", "a folder or off", "cache of execution plans").unset =
      "~/.cache/ddp_train/plans";
  output.on_off("trace", &O::trace,
                "write RUN/trace.json at the end, the last 512 steps of all ranks for ui.perfetto.dev");
  output.on_off("tensorboard", &O::tensorboard, "write event files for TensorBoard into the run folder");
  output.on_off("recording", &O::recording,
                "record the times, fingerprint and gradient norm of each step, for the commands explain and compare");
  output.choice("progress", &O::progress, "progress display; auto: a bar on a terminal, else lines");
  output.choice("summary", &O::summary, "time by phase at the end of a run; short: a line, full: a table of all ranks");
}

void add_export(std::vector<OptionSpec>& table) {
  const std::size_t first = table.size();
  TopicTable exported(table, "export", &Options::exported);
  using E = ExportOptions;
  exported.text("run", &E::run, "DIR", "a run folder", "run folder").unset = "--output";
  exported.text("checkpoint", &E::checkpoint, "latest|best|PATH", "latest, best or the path to a checkpoint",
                "checkpoint to use");
  exported.choice("format", &E::format,
                  "onnx: network and weights, for inference; safetensors: weights only, for PyTorch; auto: by the "
                  "extension of --to");
  exported.text("to", &E::to, "FILE", "a file",
                "output file; report: RUN/report.html if not set; scaling: scaling.svg");
  exported.on_off("average", &E::average, "export the moving average of the weights (--ema-decay)");
  exported.choice("export-precision", &E::precision, "numeric format of the exported tensors");
  exported.on_off("fold-batch-norm", &E::fold_batch_norm, "onnx: fold batch normalization into the preceding layers");
  for (std::size_t i = first; i < table.size(); ++i) table[i].command_line_only = true;
}

void add_bench(std::vector<OptionSpec>& table) {
  TopicTable bench(table, "bench", &Options::bench);
  bench
      .on_off("on-request", &BenchOptions::on_request,
              "time 0.3 s of training steps for each line read from standard input")
      .command_line_only = true;
  bench
      .on_off("stages", &BenchOptions::stages,
              "print a table of each stage's time, GFLOP/s, GB/s and share of the measured peak before the result")
      .command_line_only = true;
}

void add_sweep(std::vector<OptionSpec>& table) {
  using S = SweepOptions;
  const std::size_t first = table.size();
  TopicTable sweep(table, "sweep", &Options::sweep);
  sweep.texts("sweep", &S::axes, "KEY=VALUES",
              "KEY=V1,V2,..., or KEY=LOW..HIGH or KEY=log:LOW..HIGH with --sweep-draws",
              "values of an option; repeated, all combinations are trained");
  sweep.text("sweep-list", &S::list, "FILE", "a file", "settings to train, one line of KEY=VALUE words each");
  sweep.integer("sweep-draws", &S::draws, 0, 1'000'000, "train N settings drawn at random by --seed, instead of all");
  sweep.integer("ranks-per-trial", &S::ranks_per_trial, 1, 1 << 20, "ranks that train one setting together");
  sweep.integer("sweep-halving", &S::halving, 0, 1000,
                "successive halving (ASHA): after each rung the best 1/N of the trials continue; 0: off");
  sweep.integer("sweep-halving-epochs", &S::halving_epochs, 1, 1'000'000,
                "epochs of the first rung; each further rung has --sweep-halving times as many");
  sweep.integer("sweep-max-trials", &S::max_trials, 1, 1'000'000, "limit on the number of settings");
  for (std::size_t i = first; i < table.size(); ++i) table[i].command_line_only = true;
}

void add_explain(std::vector<OptionSpec>& table) {
  TopicTable explain(table, "explain", &Options::explain);
  explain
      .integer("verify", &ExplainOptions::verify, 0, 1'000'000,
               "train for N steps with and without the best cure, and compare its gain with the prediction; 0: off")
      .command_line_only = true;
  explain
      .on_off(
          "probe", &ExplainOptions::probe,
          "measure the run's step with a larger batch or fewer threads, for some seconds, where a prediction needs it")
      .command_line_only = true;
}

void add_scaling(std::vector<OptionSpec>& table) {
  TopicTable scaling(table, "scaling", &Options::scaling);
  scaling
      .real("scaling-seconds", &ScalingOptions::seconds, {0.1, 3600},
            "seconds of training that are measured for each number of ranks and batch")
      .command_line_only = true;
}

}  // namespace

std::vector<OptionSpec> option_table() {
  std::vector<OptionSpec> table;
  table.reserve(128);
  add_run(table);
  add_model(table);
  add_device(table);
  add_data_options(table);
  add_batch(table);
  add_update_rules(table);
  add_schedules(table);
  add_training(table);
  add_distributed(table);
  add_output(table);
  add_export(table);
  add_bench(table);
  add_sweep(table);
  add_explain(table);
  add_scaling(table);
  for (OptionSpec& spec : table) spec.effects = effects_of(spec.key);
  return table;
}

std::span<const OptionTopic> option_topics() { return kTopics; }

std::span<const CommandSpec> command_table() { return kCommands; }

const OptionSpec* find_option(std::span<const OptionSpec> table, std::string_view key) {
  const auto found =
      std::find_if(table.begin(), table.end(), [key](const OptionSpec& spec) { return spec.key == key; });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace ddp
