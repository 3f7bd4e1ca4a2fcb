#include "options/table.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "options/values.h"

namespace ddp {
namespace {

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();
// Batches and shards stay below 2^31, so that products with the number of ranks cannot overflow.
constexpr std::int64_t kMaxBatch = std::numeric_limits<std::int32_t>::max();
constexpr RealRange kLearningRates{0, 1e6};

template <class T>
struct Unwrapped {
  using type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using type = T;
};

constexpr std::array kTopics = {
    OptionTopic{"run", "the run as a whole"},
    OptionTopic{"model", "the network, its first weights and its number format"},
    OptionTopic{"device", "where it runs: the CPU or GPUs, which of them, and how much of their memory"},
    OptionTopic{"data", "data sets and how they are read"},
    OptionTopic{"batch", "how many samples make a step, and how they are shared out"},
    OptionTopic{"optimizer", "the optimizer, the learning rate and how long to train"},
    OptionTopic{"distributed", "gradient exchange between ranks, threads and cores"},
    OptionTopic{"output", "run folder, checkpoints, evaluation and progress"},
    OptionTopic{"export", "the command export: a trained model for other programs"},
    OptionTopic{"bench", "the command bench: when it times"},
};

constexpr std::array kCommands = {
    CommandSpec{"train", "train a network (the default)"},
    CommandSpec{"eval", "evaluate a checkpoint on the test samples"},
    CommandSpec{"plan", "show the execution plan: memory, layouts, expected time of a step"},
    CommandSpec{"bench", "time training steps without reading or writing anything"},
    CommandSpec{"check", "try out every rank's device and the sums between them"},
    CommandSpec{"export", "write a trained model as an ONNX or safetensors file"},
    CommandSpec{"devices", "list the GPUs of this machine: memory, load, temperature, processes"},
};

// Adds the options of one topic, whose values live in the member `group` of Options.
template <class Group>
class TopicTable {
 public:
  TopicTable(std::vector<OptionSpec>& table, std::string_view topic, Group Options::*group)
      : table_(table), topic_(topic), group_(group) {}

  template <class T>
  OptionSpec& integer(std::string_view key, T Group::*member, std::int64_t low, std::int64_t high,
                      std::string_view help) {
    using Integer = typename Unwrapped<T>::type;
    OptionSpec& spec = add(key, "N", help);
    spec.range = brief_range(low, high);
    spec.allowed = "a whole number " + describe_range(low, high);
    spec.set = [group = group_, member, low, high](Options& options, std::string_view value) {
      options.*group.*member = static_cast<Integer>(read_integer(value, low, high));
    };
    spec.get = [group = group_, member](const Options& options) -> std::optional<std::string> {
      const T& value = options.*group.*member;
      if constexpr (std::is_same_v<T, Integer>) {
        return std::to_string(value);
      } else {
        return value ? std::optional(std::to_string(*value)) : std::nullopt;
      }
    };
    return spec;
  }

  // Any 64 bits.
  OptionSpec& bits(std::string_view key, std::uint64_t Group::*member, std::string_view help) {
    OptionSpec& spec = add(key, "N", help);
    spec.range = "0 to 2^64-1";
    spec.allowed = "a whole number from 0 to 2^64-1";
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_bits(value);
    };
    spec.get = [group = group_, member](const Options& options) {
      return std::optional(std::to_string(options.*group.*member));
    };
    return spec;
  }

  OptionSpec& real(std::string_view key, double Group::*member, const RealRange& range, std::string_view help) {
    OptionSpec& spec = add(key, "X", help);
    spec.range = brief_range(range);
    spec.allowed = "a number " + describe_range(range);
    spec.set = [group = group_, member, range](Options& options, std::string_view value) {
      options.*group.*member = read_real(value, range);
    };
    spec.get = [group = group_, member](const Options& options) {
      return std::optional(fmt::format("{}", options.*group.*member));
    };
    return spec;
  }

  OptionSpec& on_off(std::string_view key, bool Group::*member, std::string_view help) {
    OptionSpec& spec = add(key, "on|off", help);
    spec.bare = "on";
    spec.allowed = "on or off";
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_switch(value);
    };
    spec.get = [group = group_, member](const Options& options) {
      return std::optional<std::string>(options.*group.*member ? "on" : "off");
    };
    return spec;
  }

  template <Choice E>
  OptionSpec& choice(std::string_view key, E Group::*member, std::string_view help) {
    constexpr auto kNames = enum_names(E{});
    const std::vector<std::string> words(kNames.begin(), kNames.end());
    OptionSpec& spec = add(key, join(words, "|"), help);
    spec.allowed = words.size() == 1 ? "only " + words[0] : "one of " + join(words);
    spec.set = [group = group_, member, kNames](Options& options, std::string_view value) {
      const auto* const found = std::find(kNames.begin(), kNames.end(), value);
      if (found == kNames.end()) throw BadValue("unknown");
      options.*group.*member = static_cast<E>(found - kNames.begin());
    };
    spec.get = [group = group_, member](const Options& options) {
      return std::optional<std::string>(to_string(options.*group.*member));
    };
    return spec;
  }

  OptionSpec& three_reals(std::string_view key, std::array<double, 3> Group::*member, std::string_view value_name,
                          const RealRange& range, std::string_view help) {
    OptionSpec& spec = add(key, std::string(value_name), help);
    spec.range = brief_range(range) + " each";
    spec.allowed = "three numbers " + describe_range(range) + " with commas between, such as 0.4,0.4,0.4";
    spec.set = [group = group_, member, range](Options& options, std::string_view value) {
      options.*group.*member = read_three_reals(value, range);
    };
    spec.get = [group = group_, member](const Options& options) {
      const std::array<double, 3>& values = options.*group.*member;
      return std::optional(fmt::format("{},{},{}", values[0], values[1], values[2]));
    };
    return spec;
  }

  OptionSpec& bytes(std::string_view key, std::uint64_t Group::*member, std::string_view help) {
    OptionSpec& spec = add(key, "SIZE", help);
    spec.range = "such as 512MiB";
    spec.allowed = "a whole number of bytes, KiB, MiB or GiB, such as 512MiB";
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_bytes(value);
    };
    spec.get = [group = group_, member](const Options& options) {
      return std::optional(bytes_text(options.*group.*member));
    };
    return spec;
  }

  OptionSpec& ordinals(std::string_view key, std::vector<int> Group::*member, std::string_view help) {
    OptionSpec& spec = add(key, "LIST", help);
    spec.range = "such as 3,2";
    spec.allowed = "numbers from 0 with commas between, such as 3,2";
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_ordinals(value);
    };
    spec.get = [group = group_, member](const Options& options) {
      const std::vector<int>& values = options.*group.*member;
      return values.empty() ? std::nullopt : std::optional(fmt::format("{}", fmt::join(values, ",")));
    };
    return spec;
  }

  OptionSpec& milestones(std::string_view key, std::vector<std::int64_t> Group::*member, std::string_view help) {
    OptionSpec& spec = add(key, "LIST", help);
    spec.range = "such as 30,60";
    spec.allowed = "rising numbers from 1 with commas between, such as 30,60";
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_milestones(value);
    };
    spec.get = [group = group_, member](const Options& options) {
      const std::vector<std::int64_t>& values = options.*group.*member;
      return values.empty() ? std::nullopt : std::optional(fmt::format("{}", fmt::join(values, ",")));
    };
    return spec;
  }

  // `value_name` is also what the errors say it takes.
  OptionSpec& text(std::string_view key, std::string Group::*member, std::string value_name, std::string allowed,
                   std::string_view help) {
    OptionSpec& spec = add(key, std::move(value_name), help);
    spec.allowed = std::move(allowed);
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_text(value);
    };
    spec.get = [group = group_, member](const Options& options) -> std::optional<std::string> {
      const std::string& value = options.*group.*member;
      return value.empty() ? std::nullopt : std::optional(value);
    };
    return spec;
  }

 private:
  OptionSpec& add(std::string_view key, std::string value_name, std::string_view help) {
    OptionSpec& spec = table_.emplace_back();
    spec.topic = topic_;
    spec.key = key;
    spec.value_name = std::move(value_name);
    spec.help = help;
    return spec;
  }

  std::vector<OptionSpec>& table_;
  std::string_view topic_;
  Group Options::*group_;
};

// The switches of Options itself, for the command line alone.
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
  spec.help = "show the options of a topic, or of all";
  std::vector<std::string> words;
  for (const OptionTopic& topic : kTopics) words.emplace_back(topic.name);
  words.emplace_back("all");
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
  OptionSpec& config =
      run.text("config", &RunOptions::config, "FILE", "a file", "read options from FILE; the command line beats it");
  config.command_line_only = true;
  config.common = true;
  add_switch(table, "dump-config", &Options::dump_config, "print all options as a configuration file and end");
  add_help(table);
  add_switch(table, "version", &Options::version, "print the versions of the program and its libraries and end");
  run.choice("log-level", &RunOptions::log_level, "leave out messages below this level");
}

void add_model(std::vector<OptionSpec>& table) {
  TopicTable model(table, "model", &Options::model);
  model
      .text("model", &ModelOptions::model, "NAME|FILE.onnx", "the name of a model or an ONNX file",
            "the network; of an ONNX file with its weights")
      .common = true;
  model.choice("init", &ModelOptions::init,
               "first weights; default: as the model's source begins; pytorch: uniform in 1/sqrt(fan-in)");
  model.real("init-std", &ModelOptions::init_std, {0, 1000}, "standard deviation of --init normal");
  model.text("init-from", &ModelOptions::init_from, "PATH", "a .safetensors file, a checkpoint or a run folder",
             "begin with the weights of another run or program");
  model.on_off("new-classifier", &ModelOptions::new_classifier,
               "--init-from: but begin the last layer anew, for other classes");
  model.choice("precision", &ModelOptions::precision, "number format of the computation");
}

void add_device(std::vector<OptionSpec>& table) {
  TopicTable device(table, "device", &Options::device);
  using D = DeviceOptions;
  device.choice("device", &D::device, "auto: on GPUs where all ranks have one, else on the CPU").common = true;
  device.ordinals("gpus", &D::gpus, "the visible cards that ranks take, in this order").unset = "all";
  device.on_off("oversubscribe-gpus", &D::oversubscribe_gpus,
                "let ranks share a card; gradients then go through the host by MPI");
  device.real("gpu-memory-fraction", &D::gpu_memory_fraction, {0, 1, false, true},
              "share of its card's memory that a rank may take");
  device.bytes("gpu-memory-limit", &D::gpu_memory_limit, "memory of its card that a rank may take; 0: no limit");
  device.on_off("log-placement", &D::log_placement, "show which rank has which card");
  device.choice("cuda-graph", &D::cuda_graph, "replay whole steps as CUDA graphs; auto: where that is possible");
}

void add_data(std::vector<OptionSpec>& table) {
  TopicTable data(table, "data", &Options::data);
  data.text(
          "dataset", &DataOptions::dataset, "NAME", "the name of a data set",
          "data set: glyphs (needs no files), mnist, fashion-mnist, cifar10, folder (images in DIR/{train,val}/CLASS)")
      .common = true;
  data.text("data-dir", &DataOptions::data_dir, "DIR", "a folder", "folder of the data sets").common = true;
  data.integer("workers", &DataOptions::workers, 0, 256, "loader threads per rank; 0: read within the step");
  data.integer("prefetch", &DataOptions::prefetch, 1, 1024, "batches read ahead");
  data.integer("train-limit", &DataOptions::train_limit, 0, kUnbounded, "train on the first N samples only; 0: on all");
  data.integer("test-limit", &DataOptions::test_limit, 0, kUnbounded, "test on the first N samples only; 0: on all");
  data.choice("normalize", &DataOptions::normalize,
              "none: pixels from 0 to 1; standard: minus the mean, by the standard deviation; imagenet: by ImageNet's");
  using D = DataOptions;
  data.on_off("random-resized-crop", &D::random_resized_crop,
              "train on parts of 8% to 100% of the area, resized to the whole");
  data.integer("random-crop-padding", &D::random_crop_padding, 0, 4096,
               "train on images moved by up to N pixels; 0: as they are");
  data.choice("random-crop-fill", &D::random_crop_fill, "what --random-crop-padding brings in");
  data.on_off("random-flip", &D::random_flip, "train on images mirrored at random");
  data.three_reals("color-jitter", &D::color_jitter, "B,C,S", {0, 10},
                   "train with brightness, contrast, saturation times 1-X to 1+X");
  data.integer("cutout", &D::cutout, 0, 4096, "train on images with a square of N pixels painted over; 0: none");
  data.real("mixup", &D::mixup, {0, 100}, "train on mixtures of two samples, in shares from Beta(X, X); 0: off");
  data.integer("image-size", &D::image_size, 8, 2048, "--dataset folder or synthetic: images of N x N pixels");
  data.integer("max-bad-samples", &D::max_bad_samples, 0, kUnbounded,
               "--dataset folder: go on without up to N files that cannot be read");
  data.text("image-cache", &D::image_cache, "DIR|off", "a folder or off",
            "--dataset folder: keep the decoded images in a file there");
}

void add_batch(std::vector<OptionSpec>& table) {
  TopicTable batch(table, "batch", &Options::batch);
  OptionSpec& global = batch.integer("global-batch", &BatchOptions::global_batch, 1, kMaxBatch,
                                     "samples in a step, of all ranks together");
  global.unset = std::to_string(kDefaultGlobalBatch);
  global.common = true;
  OptionSpec& per_rank = batch.integer("batch-per-rank", &BatchOptions::batch_per_rank, 1, kMaxBatch,
                                       "samples in a step of each rank, in place of --global-batch");
  per_rank.unset = "--global-batch / ranks";
  per_rank.common = true;
  OptionSpec& size =
      batch.integer("batch-size", &BatchOptions::batch_size, 1, kMaxBatch, "samples in a step, where one rank trains");
  size.letter = 'b';
  size.unset = "--global-batch";
  batch.integer("logical-shards", &BatchOptions::logical_shards, 0, 1 << 20,
                "parts of the global batch, each computed as a whole; 0: one per rank");
  batch.on_off("drop-last", &BatchOptions::drop_last, "leave out the last, smaller batch of an epoch");
}

void add_optimizer(std::vector<OptionSpec>& table) {
  TopicTable optimizer(table, "optimizer", &Options::optimizer);
  using O = OptimizerOptions;
  optimizer.choice("optimizer", &O::optimizer, "the rule of the update").common = true;
  optimizer.real("lr", &O::lr, kLearningRates, "learning rate").common = true;
  optimizer.real("momentum", &O::momentum, {0, 1, true}, "momentum of sgd, rmsprop and lars");
  optimizer.on_off("nesterov", &O::nesterov, "sgd: Nesterov's momentum");
  optimizer.real("beta1", &O::beta1, {0, 1, true}, "adam, adamw, lamb: decay of the gradients' average");
  optimizer.real("beta2", &O::beta2, {0, 1, true}, "adam, adamw, lamb: decay of the average of their squares");
  optimizer.real("rho", &O::rho, {0, 1, true}, "rmsprop: decay of the average of squared gradients");
  optimizer.real("epsilon", &O::epsilon, {0, 1}, "adam, adamw, lamb, rmsprop: added to the divisor");
  optimizer.choice("rmsprop-form", &O::rmsprop_form, "keras: epsilon inside of the root, --lr inside of the momentum");
  optimizer.real("lars-trust", &O::lars_trust, {0, 1000, false, true}, "lars: the trust coefficient");
  optimizer.real("weight-decay", &O::weight_decay, {0, 1000}, "weight decay");
  optimizer.choice("decay", &O::decay,
                   "l2: added to the gradient; decoupled: taken off the weights; auto: decoupled for adamw, else l2");
  optimizer.choice("no-decay-on", &O::no_decay_on,
                   "norm-and-bias: no decay, nor a rate of their own by lars and lamb, for tensors of one dimension");
  optimizer.real("clip-norm", &O::clip_norm, {0, 1e9}, "the most that the gradient's norm may be; 0: anything");
  optimizer.real("clip-value", &O::clip_value, {0, 1e9},
                 "the most that each value of the gradient may be; 0: anything");
  optimizer.real("ema-decay", &O::ema_decay, {0, 1, true},
                 "decay of a moving average of the weights, which is then what is evaluated; 0: none");
  optimizer.on_off("ema-warmup", &O::ema_warmup, "the average's decay is at most (1 + n) / (10 + n) after n updates");
  optimizer.choice("schedule", &O::schedule, "course of the learning rate").common = true;
  optimizer.choice("schedule-by", &O::schedule_by,
                   "when the learning rate may change, and what milestones count; auto: by epoch for multi-step");
  optimizer.integer("lr-step-epochs", &O::lr_step_epochs, 0, kUnbounded,
                    "--schedule step, exponential: epochs between decays");
  optimizer.integer("lr-decay-steps", &O::lr_decay_steps, 0, kUnbounded,
                    "--schedule step, exponential: steps between decays, in place of --lr-step-epochs");
  optimizer.milestones("lr-milestones", &O::lr_milestones, "--schedule multi-step: the epochs of the decays");
  optimizer.real("lr-gamma", &O::lr_gamma, {0, 1}, "--schedule step, multi-step, exponential: factor of a decay");
  optimizer.on_off("lr-staircase", &O::lr_staircase, "--schedule exponential: in whole decays");
  optimizer.real("lr-min", &O::lr_min, kLearningRates, "--schedule cosine, polynomial: the last learning rate");
  optimizer.real("lr-power", &O::lr_power, {0, 100}, "--schedule polynomial: its power");
  optimizer.real("one-cycle-rise", &O::one_cycle_rise, {0, 1, true, true},
                 "--schedule one-cycle: the share of training in which the learning rate rises");
  optimizer.real("one-cycle-div", &O::one_cycle_div, {1, 1e9}, "--schedule one-cycle: --lr by the first rate");
  optimizer.real("one-cycle-final-div", &O::one_cycle_final_div, {1, 1e12},
                 "--schedule one-cycle: the first rate by the last");
  optimizer.on_off("one-cycle-momentum", &O::one_cycle_momentum,
                   "--schedule one-cycle: move the momentum, or beta1, from high to low and back to high");
  optimizer.real("one-cycle-low-momentum", &O::one_cycle_low_momentum, {0, 1, true}, "the one at the highest rate");
  optimizer.real("one-cycle-high-momentum", &O::one_cycle_high_momentum, {0, 1, true}, "the first and last one");
  optimizer.real("warmup-epochs", &O::warmup_epochs, {0, 1e6}, "epochs over which the learning rate rises to --lr");
  optimizer.choice("lr-scale", &O::lr_scale, "scale --lr with the global batch by --lr-base-batch");
  optimizer.integer("lr-base-batch", &O::lr_base_batch, 1, kMaxBatch, "the global batch that --lr is meant for");
  optimizer.real("label-smoothing", &O::label_smoothing, {0, 1, true}, "share of the target spread over all classes");
  optimizer.integer("epochs", &O::epochs, 1, 1'000'000'000, "passes over the training samples").common = true;
  optimizer.integer("max-steps", &O::max_steps, 0, kUnbounded, "stop after this many steps; 0: no limit");
  optimizer.bits("seed", &O::seed, "seed of weights, order and noise").common = true;
  optimizer.on_off("deterministic", &O::deterministic, "the same bits in every run, on any number of ranks");
}

void add_distributed(std::vector<OptionSpec>& table) {
  TopicTable distributed(table, "distributed", &Options::distributed);
  using D = DistributedOptions;
  distributed.choice("reduction", &D::reduction,
                     "how gradients are summed; tree: in one order on any number of ranks; root: all through rank 0");
  distributed.choice("gradient-precision", &D::gradient_precision, "how gradients travel between GPUs");
  distributed.on_off("overlap", &D::overlap, "sum gradients while the backward pass still runs");
  distributed.real("first-bucket-mib", &D::first_bucket_mib, {0.001, 4096}, "size of the first gradient bucket in MiB");
  distributed.real("bucket-mib", &D::bucket_mib, {0.001, 4096}, "size of the other gradient buckets in MiB");
  distributed.integer("threads", &D::threads, 0, 4096, "compute threads per rank; 0: the rank's share of the cores")
      .common = true;
  distributed.choice("bind", &D::bind, "auto: each rank to its share of the cores");
  distributed.real("timeout", &D::timeout, {0.1, 1e6}, "seconds after which a silent rank counts as lost");
}

void add_output(std::vector<OptionSpec>& table) {
  TopicTable output(table, "output", &Options::output);
  using O = OutputOptions;
  OptionSpec& folder = output.text("output", &O::output, "DIR", "a folder",
                                   "the run folder; %j in it: the Slurm job, %a: its array task");
  folder.unset = "runs/MODEL-DATASET";
  folder.common = true;
  output
      .text("resume", &O::resume, "none|auto|PATH", "none, auto or the path of a checkpoint",
            "auto: go on from the newest good checkpoint of the run folder, if any")
      .common = true;
  output.integer("checkpoint-every", &O::checkpoint_every, 0, kUnbounded,
                 "steps between checkpoints; 0: at the end of each epoch");
  output.integer("keep-checkpoints", &O::keep_checkpoints, 1, 1'000'000, "the newest N stay, and the best");
  output.integer("log-interval", &O::log_interval, 1, kUnbounded, "steps between two progress lines");
  output.integer("eval-every", &O::eval_every, 0, kUnbounded, "epochs between evaluations; 0: only at the end");
  output.choice("eval-on", &O::eval_on, "who evaluates");
  output.text("plan-cache", &O::plan_cache, "DIR|off", "a folder or off", "where execution plans are kept").unset =
      "~/.cache/ddp_train/plans";
  output.choice("progress", &O::progress, "auto: a bar on a terminal, lines elsewhere");
}

void add_export(std::vector<OptionSpec>& table) {
  const std::size_t first = table.size();
  TopicTable exported(table, "export", &Options::exported);
  using E = ExportOptions;
  exported.text("run", &E::run, "DIR", "a run folder", "the run folder").unset = "--output";
  exported.text("checkpoint", &E::checkpoint, "latest|best|PATH", "latest, best or the path of a checkpoint",
                "which of its checkpoints");
  exported.choice("format", &E::format,
                  "onnx: the network, for inference; safetensors: its weights, for PyTorch; auto: by the name of --to");
  exported.text("to", &E::to, "FILE", "a file", "the file to write");
  exported.on_off("average", &E::average, "the moving average of the weights, of a run with --ema-decay");
  exported.on_off("fold-batch-norm", &E::fold_batch_norm, "put batch norm into the layers before it, in ONNX");
  for (std::size_t i = first; i < table.size(); ++i) table[i].command_line_only = true;
}

void add_bench(std::vector<OptionSpec>& table) {
  TopicTable bench(table, "bench", &Options::bench);
  bench
      .on_off("on-request", &BenchOptions::on_request,
              "time 0.3 s of steps for each line on standard input, and wait for the next")
      .command_line_only = true;
}

}  // namespace

std::vector<OptionSpec> option_table() {
  std::vector<OptionSpec> table;
  table.reserve(128);
  add_run(table);
  add_model(table);
  add_device(table);
  add_data(table);
  add_batch(table);
  add_optimizer(table);
  add_distributed(table);
  add_output(table);
  add_export(table);
  add_bench(table);
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
