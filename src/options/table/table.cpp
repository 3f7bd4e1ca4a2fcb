#include "options/table/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "options/table/topic_table.h"
#include "options/table/topics.h"

namespace ddp {
namespace {

constexpr std::int64_t kMaxStages = 1024;

constexpr std::array kTopics = {
    OptionTopic{"run", "general options"},
    OptionTopic{"model", "network architecture, weight initialization and numeric precision"},
    OptionTopic{"device", "CPU or GPUs, GPU selection and GPU memory limits"},
    OptionTopic{"data", "data sets and their loading"},
    OptionTopic{"augmentation", "random changes of training images, and their size"},
    OptionTopic{"batch", "batch size and its distribution over ranks"},
    OptionTopic{"optimizer", "optimizer, weight decay, clipping and averages of the weights"},
    OptionTopic{"parameters", "rates, decay and freezing of some parameters"},
    OptionTopic{"schedule", "learning rate as a function of the step"},
    OptionTopic{"training", "length of training, loss, seed, determinism and steps that are not finite"},
    OptionTopic{"distributed", "gradient reduction, threads, CPU binding and timeouts"},
    OptionTopic{"output", "run folder, checkpoints, evaluation and progress output"},
    OptionTopic{kCommandTopic, "options of single commands"},
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

void add_help(std::vector<OptionSpec>& table, std::span<const CommandSpec> commands) {
  OptionSpec& spec = table.emplace_back();
  spec.topic = "run";
  spec.key = "help";
  spec.letter = 'h';
  spec.value_name = "[TOPIC]";
  spec.help = "show the options of a topic, the page of a command, or all options";
  std::vector<std::string> words;
  for (const OptionTopic& topic : kTopics) words.emplace_back(topic.name);
  for (const CommandSpec& command : commands) words.emplace_back(command.name);
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

void add_run(std::vector<OptionSpec>& table, std::span<const CommandSpec> commands) {
  TopicTable run(table, "run", &Options::run);
  OptionSpec& config = run.text("config", &RunOptions::config, "FILE", "a file",
                                "read options from FILE; options on the command line take precedence");
  config.command_line_only = true;
  add_switch(table, "dump-config", &Options::dump_config, "print all options as a configuration file and exit");
  add_help(table, commands);
  add_switch(table, "version", &Options::version, "print the versions of the program and its libraries and exit");
  run.choice("log-level", &RunOptions::log_level, "minimum severity of messages");
}

void add_model(std::vector<OptionSpec>& table) {
  TopicTable model(table, "model", &Options::model);
  model.text("model", &ModelOptions::model, "NAME|FILE.onnx", "a model name or an ONNX file",
             "the network; an ONNX file also provides the initial weights");
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
  device.choice("device", &D::device, "auto: GPUs if every rank has one, else the CPU");
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
  OptionSpec& per_rank = batch.integer("batch-per-rank", &BatchOptions::batch_per_rank, 1, kMaxBatch,
                                       "samples per step on each rank, as an alternative to --global-batch");
  per_rank.unset = "--global-batch / ranks";
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
  distributed.integer("threads", &D::threads, 0, 4096,
                      "compute threads per rank; 0: an equal share of the host's cores");
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
  output.text("resume", &O::resume, "none|auto|PATH", "none, auto or the path to a checkpoint",
              "resume from a checkpoint; auto: the newest intact one in the run folder, if any");
  output.integer("checkpoint-every", &O::checkpoint_every, 0, kNoLimit,
                 "steps between checkpoints; 0: at the end of each epoch");
  output.integer("keep-checkpoints", &O::keep_checkpoints, 1, 1'000'000,
                 "number of most recent checkpoints to keep, in addition to the best");
  output.choice("on-checkpoint-failure", &O::on_checkpoint_failure,
                "if a checkpoint cannot be written during training; retry: warn, continue and write another one later");
  output.integer("log-interval", &O::log_interval, 1, kNoLimit, "steps between progress lines and training records");
  output.integer("eval-every", &O::eval_every, 0, kNoLimit, "epochs between evaluations; 0: only after the last");
  output.choice("eval-on", &O::eval_on, "ranks that evaluate");
  output.choice("eval-views", &O::eval_views,
                "evaluate the mean of the logits over views of each image; mirror: the image and its mirror image; "
                "mirror-shift: also both shifted by one pixel to the lower right and to the upper left");
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

}  // namespace

std::vector<OptionSpec> option_table(std::span<const CommandSpec> commands) {
  std::vector<OptionSpec> table;
  table.reserve(192);
  add_run(table, commands);
  add_model(table);
  add_device(table);
  add_data_options(table);
  add_batch(table);
  add_training_options(table);
  add_distributed(table);
  add_output(table);
  add_command_options(table);
  for (OptionSpec& spec : table) spec.effects = effects_of(spec.key);
  return table;
}

std::string whole_help(const OptionSpec& spec) {
  return spec.group.empty() ? std::string(spec.help) : fmt::format("{}: {}", spec.group, spec.help);
}

std::span<const OptionTopic> option_topics() { return kTopics; }

const OptionSpec* find_option(std::span<const OptionSpec> table, std::string_view key) {
  const auto found =
      std::find_if(table.begin(), table.end(), [key](const OptionSpec& spec) { return spec.key == key; });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace ddp
