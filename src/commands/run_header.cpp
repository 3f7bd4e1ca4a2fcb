#include "commands/run_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/text/text.h"
#include "data/sources/class_text.h"
#include "train/parameter_segments.h"
#include "train/pipeline_setup.h"
#include "train/preprocessing.h"
#include "train/resume.h"
#include "train/single_values.h"

namespace ddp {
namespace {

std::string count_text(std::int64_t count) { return format_count(static_cast<std::uint64_t>(count)); }

// "resnet18, 11,181,642 parameters, 5,130 of them trained (--freeze)"
std::string model_text(const Experiment& e) {
  std::int64_t frozen = 0;
  for (const Parameter& p : e.graph.parameters()) frozen += p.frozen && !p.fixed ? p.elements() : 0;
  const std::int64_t all = e.graph.trained_count();
  std::string text = fmt::format("{}, {} parameters", e.options.model.model, count_text(all));
  if (frozen > 0)
    text += fmt::format(", {} of them trained and {} frozen", count_text(all - frozen), count_text(frozen));
  return text;
}

// "6 trained, 2 constant: mean, std"
std::string tensors_text(const Experiment& e) {
  const std::vector<Parameter>& all = e.graph.parameters();
  const auto trained = std::count_if(all.begin(), all.end(), [](const Parameter& p) { return !p.fixed; });
  constexpr std::size_t kShown = 6;
  std::vector<std::string> names = e.file_constants;
  if (names.size() > kShown) {
    const std::size_t more = names.size() - kShown;
    names.resize(kShown);
    names.push_back(fmt::format("and {} more", more));
  }
  const std::size_t constant = e.file_constants.size();
  return fmt::format("{} trained, {} constant{}", trained, constant, constant == 0 ? "" : ": " + join(names));
}

std::string weights_text(const Experiment& e, bool resumed) {
  const ModelOptions& options = e.options.model;
  if (resumed) return "of the checkpoint";
  if (!options.init_from.empty()) {
    return options.init_from + (options.new_classifier ? ", but for a new last layer" : "");
  }
  if (!e.onnx_hash.empty() && options.init == InitKind::model) {
    return options.model + (options.new_classifier ? ", but for a new last layer" : "");
  }
  return fmt::format("random, --init {}, seed {}", to_string(options.init), e.options.optimizer.seed);
}

// With a limit, which samples these are.
std::string data_text(const Experiment& e) {
  const DataOptions& data = e.options.data;
  std::string text = fmt::format("{}, {} training and {} test images", data.dataset, count_text(e.data.train->size()),
                                 count_text(e.data.test->size()));
  std::vector<std::string> limits;
  if (data.train_limit > 0 && data.train_limit == e.data.train->size()) limits.emplace_back("--train-limit");
  if (data.test_limit > 0 && data.test_limit == e.data.test->size()) limits.emplace_back("--test-limit");
  if (!limits.empty()) {
    text += fmt::format(" ({}: {})", join(limits),
                        data.dataset == "folder" ? "taken from all classes in turn" : "the first ones of the files");
  }
  return e.data.evaluation.empty() ? text : fmt::format("{}, evaluated on {}", text, e.data.evaluation);
}

std::string normalization_text(const Experiment& e) {
  std::vector<double> mean;
  std::vector<double> deviation;
  for (std::size_t c = 0; c < e.scale.size(); ++c) {
    deviation.push_back(1 / (255.0 * e.scale[c]));
    mean.push_back(-e.shift[c] * deviation[c]);
  }
  const bool none = std::all_of(e.shift.begin(), e.shift.end(), [](float s) { return s == 0; });
  if (none && e.options.data.normalize == NormalizeMode::none) return "none, pixels are divided by 255";
  return fmt::format("{}, mean {:.4g}, standard deviation {:.4g}", to_string(e.options.data.normalize),
                     fmt::join(mean, " "), fmt::join(deviation, " "));
}

std::string learning_rate_text(const OptimizerOptions& options, std::int64_t global_batch) {
  std::string text = fmt::format("{:g} effective, {}", scaled_lr(options, global_batch), to_string(options.schedule));
  if (options.warmup_epochs > 0) text += fmt::format(", warmup of {:g} epochs", options.warmup_epochs);
  return text;
}

std::string batch_text(const Experiment& e) {
  const BatchPlan& batch = e.batch;
  return fmt::format("{} global = {} x {}{}, in {}", batch.global_batch,
                     counted(static_cast<std::uint64_t>(batch.ranks), e.pipeline ? "replica" : "rank"), batch.per_rank,
                     batch.per_rank * batch.ranks == batch.global_batch ? "" : " at most",
                     counted(static_cast<std::uint64_t>(batch.shards), "logical shard"));
}

std::string reduction_text(const Experiment& e, const Trainer& trainer) {
  if (e.batch.ranks == 1) return e.pipeline ? "none, one replica" : "none, one rank";
  return fmt::format("{}, {}{}",
                     e.options.optimizer.deterministic ? "tree" : to_string(e.options.distributed.reduction),
                     counted(trainer.facts().bucket_bytes.size(), "bucket"),
                     trainer.reduction_overlaps() ? ", overlapping backward" : ", after backward");
}

std::string memory_text(const Experiment& e, TrainingRun& run) {
  const std::uint64_t floats = static_cast<std::uint64_t>(e.graph.flat_elements()) * sizeof(float);
  const std::uint64_t optimizer = run.optimizer().bytes();
  std::uint64_t activations = e.network->memory().arena_bytes;
  std::uint64_t gradient = floats;
  if (e.pipeline) {
    for (const auto& part : e.pipeline->networks) activations += part->memory().arena_bytes;
    gradient = static_cast<std::uint64_t>(e.held().size()) * sizeof(float);
  }
  return fmt::format("{} parameters + {} gradient + {} optimizer + {} activations = {}{}", format_bytes(floats),
                     format_bytes(gradient), format_bytes(optimizer), format_bytes(activations),
                     format_bytes(floats + gradient + optimizer + activations),
                     e.share ? "; the ranks of a host share parameters and optimizer" : "");
}

// What happens to single layers and batches beyond what the options say.
void add_exceptions(std::vector<HeaderRow>& rows, const Experiment& e) {
  if (const std::string kept = kept_statistics_text(e.graph); !kept.empty()) rows.emplace_back("frozen", kept);
  if (const std::string last = last_batch_text(e); !last.empty()) rows.emplace_back("last batch", last);
}

void add_divided(std::vector<HeaderRow>& rows, const Experiment& e, const Ranks& ranks) {
  if (!e.smaller.empty()) rows.emplace_back("image sizes", e.sizes.text());
  if (e.slices.any()) {
    rows.emplace_back("divided layers", divided_text(e.graph, e.slices, e.batch.ranks, e.batch.global_batch));
  }
  if (e.pipeline) {
    const PipelineShape shape = pipeline_shape(e, e.place.stages, ranks.communicator->size());
    rows.emplace_back("pipeline", pipeline_text(e.pipeline_plan, shape));
    rows.emplace_back("estimate", estimate_text(e.pipeline_plan, shape));
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
  add(o.cutout > 0, fmt::format("cutout of {} pixels", o.cutout));
  add(o.random_erasing > 0, fmt::format("random erasing {:g}", o.random_erasing));
  add(o.mixup > 0, fmt::format("mixup {:g}", o.mixup));
  add(o.cutmix > 0, fmt::format("CutMix {:g}", o.cutmix));
  return parts.empty() ? "none" : join(parts);
}

std::vector<HeaderRow> header_rows(const RunParts& parts) {
  const Experiment& e = parts.experiment;
  std::vector<HeaderRow> rows = {
      {"model", model_text(e)},
      {"weights", weights_text(e, parts.resumed.has_value())},
      {"data", data_text(e)},
      {"classes", class_text(*e.data.train)},
      {"normalization", normalization_text(e)},
      {"augmentation", augmentation_text(e.options.data)},
      {"batch", batch_text(e)},
      {"steps", fmt::format("{} per epoch, {} in total", count_text(e.batch.steps_per_epoch),
                            count_text(parts.trainer.total_steps()))},
      {"optimizer", optimizer_text(e.options.optimizer)},
      {"learning rate", learning_rate_text(e.options.optimizer, e.batch.global_batch)},
      {"ranks", parts.ranks.binding.sentence},
      {"device",
       e.backend->ops().description() + (parts.ranks.device.note.empty() ? "" : "; " + parts.ranks.device.note)},
      {"reduction", reduction_text(e, parts.trainer)},
      {"memory per rank", memory_text(e, parts.run)},
      {"kernels", e.plan_origin},
      {"run folder", run_directory(e.options).string()}};
  if (resizes_pictures(e.options.data.dataset)) {
    rows.insert(rows.begin() + 3, {"pictures", e.preprocessing.text(e.options.data.random_resized_crop)});
  }
  if (!e.onnx_hash.empty()) rows.insert(rows.begin() + 1, {"tensors", tensors_text(e)});
  add_exceptions(rows, e);
  add_divided(rows, e, parts.ranks);
  if (parts.resumed) {
    const std::string changed = changed_options(parts.resumed->state, e.options);
    rows.emplace_back(
        "resumed", fmt::format("at step {}{}", parts.resumed->state.step, changed.empty() ? "" : ", with " + changed));
  }
  return rows;
}

}  // namespace ddp
