#include "commands/run_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/text/text.h"
#include "data/sources/class_text.h"
#include "train/inputs/init_from.h"
#include "train/inputs/preprocessing.h"
#include "train/inputs/resume.h"
#include "train/inputs/single_values.h"
#include "train/parallel/parallelism.h"
#include "train/step/parameter_segments.h"

namespace ddp {
namespace {

std::string count_text(std::int64_t count) { return format_count(static_cast<std::uint64_t>(count)); }

// "resnet18, 11,181,642 parameters, 5,130 of them trained (--freeze)"
std::string model_text(const std::string& model, const Graph& graph) {
  std::int64_t frozen = 0;
  for (const Parameter& p : graph.parameters()) frozen += p.frozen && !p.fixed ? p.elements() : 0;
  const std::int64_t all = graph.trained_count();
  std::string text = fmt::format("{}, {} parameters", model, count_text(all));
  if (frozen > 0)
    text += fmt::format(", {} of them trained and {} frozen", count_text(all - frozen), count_text(frozen));
  return text;
}

// "6 trained, 2 constant: mean, std"
std::string tensors_text(const Inputs& inputs) {
  const std::vector<Parameter>& all = inputs.graph.parameters();
  const auto trained = std::count_if(all.begin(), all.end(), [](const Parameter& p) { return !p.fixed; });
  constexpr std::size_t kShown = 6;
  std::vector<std::string> names = inputs.file_constants;
  if (names.size() > kShown) {
    const std::size_t more = names.size() - kShown;
    names.resize(kShown);
    names.push_back(fmt::format("and {} more", more));
  }
  const std::size_t constant = inputs.file_constants.size();
  return fmt::format("{} trained, {} constant{}", trained, constant, constant == 0 ? "" : ": " + join(names));
}

// "resnet18.safetensors, 120 tensors taken, 2 new: fc.weight, fc.bias"; each tensor that is not new is in the file, or reading it
// fails.
std::string taken_text(const std::string& file, const Graph& graph, bool new_classifier) {
  std::size_t taken = graph.statistics().size();
  std::vector<std::string> added;
  for (const Parameter& p : graph.parameters()) {
    const FirstValue from = first_value(graph, p, new_classifier);
    if (from == FirstValue::file) ++taken;
    if (from == FirstValue::initialization) added.push_back(p.name);
  }
  const std::string text = fmt::format("{}, {} tensors taken", file, taken);
  return added.empty() ? text : fmt::format("{}, {} new: {}", text, added.size(), join(added));
}

std::string weights_text(const Job& job, const Inputs& inputs, bool resumed) {
  const ModelOptions& options = job.options.model;
  if (resumed) return "of the checkpoint";
  const bool from_model = !inputs.onnx_hash.empty() && options.init == InitKind::model;
  if (!options.init_from.empty() || from_model) {
    return taken_text(options.init_from.empty() ? options.model : options.init_from, inputs.graph,
                      options.new_classifier);
  }
  return fmt::format("random, --init {}, seed {}", to_string(options.init), job.options.optimizer.seed);
}

// With a limit, which samples these are.
std::string data_text(const DataOptions& data, const Inputs& inputs) {
  const std::int64_t train = inputs.train().size();
  const std::int64_t test = inputs.test().size();
  std::string text =
      fmt::format("{}, {} training and {} test images", data.dataset, count_text(train), count_text(test));
  std::vector<std::string> limits;
  if (data.train_limit > 0 && data.train_limit == train) limits.emplace_back("--train-limit");
  if (data.test_limit > 0 && data.test_limit == test) limits.emplace_back("--test-limit");
  if (!limits.empty()) {
    text +=
        fmt::format(" ({}: {})", join(limits),
                    resizes_pictures(data.dataset) ? "taken from all classes in turn" : "the first ones of the files");
  }
  const std::string& evaluation = inputs.images.sets.evaluation;
  return evaluation.empty() ? text : fmt::format("{}, evaluated on {}", text, evaluation);
}

std::string normalization_text(NormalizeMode mode, const PixelValues& pixels) {
  std::vector<double> mean;
  std::vector<double> deviation;
  for (std::size_t c = 0; c < pixels.scale.size(); ++c) {
    deviation.push_back(1 / (255.0 * pixels.scale[c]));
    mean.push_back(-pixels.shift[c] * deviation[c]);
  }
  const bool none = std::all_of(pixels.shift.begin(), pixels.shift.end(), [](float s) { return s == 0; });
  if (none && mode == NormalizeMode::none) return "none, pixels are divided by 255";
  return fmt::format("{}, mean {:.4g}, standard deviation {:.4g}", to_string(mode), fmt::join(mean, " "),
                     fmt::join(deviation, " "));
}

std::string learning_rate_text(const OptimizerOptions& options, std::int64_t global_batch) {
  std::string text = fmt::format("{:g} effective, {}", scaled_lr(options, global_batch), to_string(options.schedule));
  if (options.warmup_epochs > 0) text += fmt::format(", warmup of {:g} epochs", options.warmup_epochs);
  return text;
}

std::string batch_text(const BatchPlan& batch, bool pipelined) {
  return fmt::format("{} global = {} x {}{}, in {}", batch.global_batch,
                     counted(static_cast<std::uint64_t>(batch.ranks), pipelined ? "replica" : "rank"), batch.per_rank,
                     batch.per_rank * batch.ranks == batch.global_batch ? "" : " at most",
                     counted(static_cast<std::uint64_t>(batch.shards), "logical shard"));
}

std::string reduction_text(const PreparedRun& run, const Trainer& trainer) {
  const Options& options = run.job.options;
  if (run.inputs.batch.ranks == 1) return run.plan.parallelism.pipelined() ? "none, one replica" : "none, one rank";
  return fmt::format("{}, {}{}", options.optimizer.deterministic ? "tree" : to_string(options.distributed.reduction),
                     counted(trainer.facts().bucket_bytes.size(), "bucket"),
                     trainer.reduction_overlaps() ? ", overlapping backward" : ", after backward");
}

std::string memory_text(const PreparedRun& prepared, TrainingRun& run) {
  const Engine& engine = prepared.engine;
  const std::uint64_t floats = static_cast<std::uint64_t>(prepared.inputs.graph.flat_elements()) * sizeof(float);
  const std::uint64_t optimizer = run.optimizer().bytes();
  std::uint64_t activations = engine.network->memory().arena_bytes;
  std::uint64_t gradient = floats;
  if (engine.pipeline) {
    for (const auto& part : engine.pipeline->networks) activations += part->memory().arena_bytes;
    gradient = static_cast<std::uint64_t>(prepared.plan.parallelism.held.size()) * sizeof(float);
  }
  return fmt::format("{} parameters + {} gradient + {} optimizer + {} activations = {}{}", format_bytes(floats),
                     format_bytes(gradient), format_bytes(optimizer), format_bytes(activations),
                     format_bytes(floats + gradient + optimizer + activations),
                     prepared.state.share ? "; the ranks of a host share parameters and optimizer" : "");
}

// What happens to single layers and batches beyond what the options say.
void add_exceptions(std::vector<HeaderRow>& rows, const Job& job, const Inputs& inputs) {
  if (const std::string kept = kept_statistics_text(inputs.graph); !kept.empty()) rows.emplace_back("frozen", kept);
  if (const std::string last = last_batch_text(job, inputs); !last.empty()) rows.emplace_back("last batch", last);
}

void add_divided(std::vector<HeaderRow>& rows, const PreparedRun& run) {
  const BatchPlan& batch = run.inputs.batch;
  const Parallelism& parallelism = run.plan.parallelism;
  if (!run.inputs.smaller.empty()) rows.emplace_back("image sizes", run.inputs.sizes.text());
  if (parallelism.slices.any()) {
    rows.emplace_back("divided layers",
                      divided_text(run.inputs.graph, parallelism.slices, batch.ranks, batch.global_batch));
  }
  if (parallelism.pipelined()) {
    const PipelineShape shape =
        pipeline_shape(run.job.options.distributed, batch, *run.backend, parallelism.place.stages, run.job.size());
    rows.emplace_back("pipeline", pipeline_text(run.plan.pipeline, shape));
    rows.emplace_back("estimate", estimate_text(run.plan.pipeline, shape));
  }
}

}  // namespace

std::string optimizer_text(const OptimizerOptions& o) {
  std::vector<std::string> parts = {std::string(to_string(o.optimizer))};
  const auto add = [&](std::string text) { parts.push_back(std::move(text)); };
  switch (o.optimizer) {
    case UpdateRule::sgd:
    case UpdateRule::lars:
      add(fmt::format("momentum {:g}{}", o.momentum, o.nesterov ? " (Nesterov)" : ""));
      if (o.optimizer == UpdateRule::lars) add(fmt::format("trust {:g}", o.lars_trust));
      break;
    case UpdateRule::rmsprop:
      add(fmt::format("momentum {:g}", o.momentum));
      add(fmt::format("rho {:g}, epsilon {:g}", o.rho, o.epsilon));
      break;
    case UpdateRule::adam:
    case UpdateRule::adamw:
    case UpdateRule::lamb:
      add(fmt::format("betas {:g} {:g}, epsilon {:g}", o.beta1, o.beta2, o.epsilon));
      break;
    case UpdateRule::muon:
      add(fmt::format("momentum {:g} for matrices, {:g} for others", o.muon_momentum, o.momentum));
      break;
  }
  if (o.weight_decay > 0) {
    add(fmt::format("weight decay {:g}{}", o.weight_decay,
                    o.no_decay_on == NoDecay::norm_and_bias ? " (not on normalisation and biases)" : ""));
  } else {
    add("no weight decay");
  }
  if (o.clip_norm > 0) add(fmt::format("gradient norm clipped to {:g}", o.clip_norm));
  if (o.clip_value > 0) add(fmt::format("gradient values clipped to {:g}", o.clip_value));
  if (o.label_smoothing > 0) add(fmt::format("label smoothing {:g}", o.label_smoothing));
  if (o.ema_decay > 0) add(fmt::format("EMA of the weights {:g}", o.ema_decay));
  if (o.lookahead > 0) add(fmt::format("Lookahead every {} steps", o.lookahead));
  return join(parts);
}

std::string augmentation_text(const DataOptions& o) {
  std::vector<std::string> parts;
  const auto add = [&](bool applies, std::string text) {
    if (applies) parts.push_back(std::move(text));
  };
  add(o.random_resized_crop, "random resized crop");
  add(o.random_crop_padding > 0, fmt::format("random crop, {} pixels of padding", o.random_crop_padding));
  add(o.random_flip == FlipMode::on, "flip");
  add(o.random_flip == FlipMode::alternate, "alternating flip");
  const auto jitters = [](double strength) { return strength > 0; };
  add(std::any_of(o.color_jitter.begin(), o.color_jitter.end(), jitters),
      fmt::format("color jitter {:g}", fmt::join(o.color_jitter, " ")));
  add(o.trivial_augment, "TrivialAugment");
  if (o.rand_augment.size() == 2) {
    add(true, fmt::format("RandAugment of {} operations, magnitude {}", o.rand_augment[0], o.rand_augment[1]));
  }
  add(o.repeat_augment > 1, fmt::format("{} copies of a sample in a global batch", o.repeat_augment));
  add(o.cutout > 0, fmt::format("cutout of {} pixels", o.cutout));
  add(o.random_erasing > 0, fmt::format("random erasing {:g}", o.random_erasing));
  add(o.mixup > 0, fmt::format("mixup {:g}", o.mixup));
  add(o.cutmix > 0, fmt::format("CutMix {:g}", o.cutmix));
  return parts.empty() ? "none" : join(parts);
}

std::vector<HeaderRow> header_rows(const RunParts& parts) {
  const PreparedRun& prepared = parts.prepared;
  const Options& options = prepared.job.options;
  const Inputs& inputs = prepared.inputs;
  const BatchPlan& batch = inputs.batch;
  std::vector<HeaderRow> rows = {
      {"model", model_text(options.model.model, inputs.graph)},
      {"weights", weights_text(prepared.job, inputs, parts.resumed.has_value())},
      {"data", data_text(options.data, inputs)},
      {"classes", class_text(inputs.train())},
      {"normalization", normalization_text(options.data.normalize, inputs.pixels)},
      {"augmentation", augmentation_text(options.data)},
      {"batch", batch_text(batch, prepared.plan.parallelism.pipelined())},
      {"steps", fmt::format("{} per epoch, {} in total", count_text(batch.steps_per_epoch),
                            count_text(parts.trainer.total_steps()))},
      {"optimizer", optimizer_text(options.optimizer)},
      {"learning rate", learning_rate_text(options.optimizer, batch.global_batch)},
      {"ranks", parts.ranks.binding.sentence},
      {"device", prepared.backend->ops().traits().description +
                     (parts.ranks.device.note.empty() ? "" : "; " + parts.ranks.device.note)},
      {"reduction", reduction_text(prepared, parts.trainer)},
      {"memory per rank", memory_text(prepared, parts.run)},
      {"kernels", prepared.plan.origin},
      {"run folder", run_directory(options).string()}};
  if (resizes_pictures(options.data.dataset)) {
    rows.insert(rows.begin() + 3, {"pictures", inputs.images.preprocessing.text(options.data.random_resized_crop)});
    const std::string& passed_over = inputs.images.sets.passed_over;
    if (!passed_over.empty()) rows.insert(rows.begin() + 4, {"not read", passed_over});
  }
  if (!inputs.onnx_hash.empty()) rows.insert(rows.begin() + 1, {"tensors", tensors_text(inputs)});
  add_exceptions(rows, prepared.job, inputs);
  add_divided(rows, prepared);
  if (parts.resumed) {
    const std::string changed = changed_options(parts.resumed->state, options);
    rows.emplace_back(
        "resumed", fmt::format("at step {}{}", parts.resumed->state.step, changed.empty() ? "" : ", with " + changed));
  }
  return rows;
}

}  // namespace ddp
