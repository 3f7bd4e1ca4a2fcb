#include "train/inputs/resume.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/partition.h"
#include "base/text/text.h"
#include "checkpoint/class_names.h"
#include "checkpoint/layout.h"
#include "job/report.h"
#include "options/parse.h"
#include "train/inputs/fingerprint.h"
#include "train/inputs/inputs.h"
#include "train/inputs/model_source.h"

namespace ddp {
namespace {

// Whether each shard has running statistics of its own.
bool shards_have_statistics(const Options& options, const Graph& graph) {
  return graph.statistic_count() > 0 && !options.model.sync_batch_norm;
}

}  // namespace

int resumed_shards(const Options& options, const TrainingState& state, int ranks) {
  check(state.logical_shards >= 1 && state.logical_shards <= state.global_batch, ExitCode::checkpoint,
        "--resume: the checkpoint has {} logical shards in a global batch of {}, which is impossible: it is damaged; "
        "resume from another one",
        state.logical_shards, state.global_batch);
  const int given = options.batch.logical_shards;
  if (given != 0 && given != state.logical_shards) return given;
  const int dividers = options.distributed.pipeline > 1 ? ranks / options.distributed.pipeline : ranks;
  const bool one_per_rank = options.model.sync_batch_norm;
  return one_per_rank || state.logical_shards < dividers ? ranks : state.logical_shards;
}

std::string changed_shards(const Options& options, const Inputs& inputs, const TrainingState& state) {
  const int shards = inputs.batch.shards;
  if (shards == state.logical_shards) return "";
  std::string text = fmt::format("the global batch is divided into {} instead of {}",
                                 counted(static_cast<std::uint64_t>(shards), "logical shard"), state.logical_shards);
  if (shards_have_statistics(options, inputs.graph)) {
    const std::int64_t before = part(inputs.batch.global_batch, state.logical_shards, 0).size();
    text += fmt::format(
        "; batch normalisation takes its statistics from {} instead of {} samples, and every shard begins with the "
        "mean of the checkpoint's running statistics",
        inputs.batch.per_shard, before);
  } else {
    text += "; gradients are the same up to rounding";
  }
  if (mixes(options.data)) text += "; images are mixed within a shard, so with others";
  if (options.optimizer.deterministic) text += fmt::format("; the bits are those of {} shards from here on", shards);
  return text;
}

void check_same_shards(const Options& options, const Inputs& inputs, const TrainingState& state) {
  const int then = state.logical_shards;
  const int now = inputs.batch.shards;
  const int ranks = inputs.batch.ranks;
  if (then == now || !options.optimizer.deterministic || !shards_have_statistics(options, inputs.graph)) return;
  const std::string have = fmt::format(
      "--resume: the checkpoint has {}, each with its own statistics of batch normalisation, which --deterministic "
      "keeps",
      counted(static_cast<std::uint64_t>(then), "logical shard"));
  check(ranks <= then, ExitCode::checkpoint,
        "{}; here are {} ranks, and each needs a shard: use at most {}, or omit --deterministic to continue with {} "
        "shards, or start over with --resume none (and --logical-shards {} for later restarts on more ranks)",
        have, ranks, counted(static_cast<std::uint64_t>(then), "rank"), now, 4 * ranks);
  throw Error(
      ExitCode::checkpoint,
      fmt::format("{}; omit --logical-shards {}, or omit --deterministic to continue with {}, or start over with "
                  "--resume none",
                  have, now, now));
}

std::optional<ResumePoint> find_resume_point(const MpiSession& session, Communicator& ranks, const Options& options,
                                             std::unique_ptr<RunFolder>& folder) {
  std::optional<ResumePoint> mine;
  together(session, [&] {
    if (session.rank() != 0) return;
    folder = std::make_unique<RunFolder>(run_directory(options));
    mine = folder->find(options.output.resume);
  });
  const std::string state = ranks.broadcast_text(mine ? to_json(mine->state) : "", 0);
  const std::string evaluation = ranks.broadcast_text(mine && mine->evaluation ? to_json(*mine->evaluation) : "", 0);
  if (state.empty()) return std::nullopt;
  return ResumePoint{parse_state(state, "the checkpoint of rank 0"), parse_evaluation(evaluation),
                     !mine || mine->epoch_logged};
}

void check_same_run(const Options& options, const TrainingState& state, const BatchPlan& plan) {
  const auto same = [](const char* key, const auto& now, const auto& then) {
    check(now == then, ExitCode::checkpoint,
          "--resume: the checkpoint was made with --{} {}, this run has {}; use the same value, or start over with "
          "--resume none",
          key, then, now);
  };
  same("model", model_label(options.model.model), state.model);
  same("dataset", options.data.dataset, state.dataset);
  same("optimizer", to_string(options.optimizer.optimizer), state.optimizer);
  same("seed", options.optimizer.seed, state.seed);
  if (const std::optional<std::int64_t>& per_rank = options.batch.batch_per_rank) {
    check(plan.global_batch == state.global_batch, ExitCode::checkpoint,
          "--resume: the checkpoint was made with a global batch of {}, and --batch-per-rank {} on {} ranks is one of "
          "{}; replace it by --global-batch {}, or start over with --resume none",
          state.global_batch, *per_rank, plan.global_batch / *per_rank, plan.global_batch, state.global_batch);
  }
  same("global-batch", plan.global_batch, state.global_batch);
}

void check_same_data(const Options& options, const Inputs& inputs, const TrainingState& state) {
  const auto refuse = [](const std::string& what) {
    throw Error(ExitCode::checkpoint, fmt::format("--resume: this run has {} of the checkpoint; use the data and "
                                                  "options it was created with, or start over with --resume none",
                                                  what));
  };
  if (state.fingerprint.empty()) {
    const auto is_new = [](const Layer& layer) {
      const auto* flatten = std::get_if<FlattenLayer>(&layer.kind);
      return std::holds_alternative<AffineLayer>(layer.kind) || (flatten != nullptr && flatten->channels_last);
    };
    const bool other = std::any_of(inputs.graph.layers().begin(), inputs.graph.layers().end(), is_new);
    check(!other, ExitCode::checkpoint,
          "--resume: the checkpoint was written by an older ddp_train, which treated {} as another network (constants "
          "and "
          "the order of columns were folded into its weights); resume with that version, or start over with --resume "
          "none",
          options.model.model);
    const std::int64_t steps = inputs.batch.steps_per_epoch;
    check(
        state.step_in_epoch < steps && state.step == state.epoch * steps + state.step_in_epoch, ExitCode::checkpoint,
        "--resume: the checkpoint is at step {} of epoch {}, which does not match {} steps per epoch: it was made with "
        "another number of images; use the same data, or start over with --resume none",
        state.step_in_epoch, state.epoch, steps);
    log_info("the checkpoint was written by an older ddp_train, which did not record the data set; it is not compared");
    return;
  }
  // Another test set does not affect the weights.
  Fingerprint mine = inputs.fingerprint;
  std::erase_if(mine, [](const FingerprintPart& part) { return part.name.starts_with("test "); });
  const std::string text = differences(mine, stored_parts(mine, state.fingerprint));
  if (!text.empty()) refuse(text);
}

void check_same_epoch(const BatchPlan& plan, const TrainingState& state) {
  check(state.step_in_epoch < plan.steps_per_epoch, ExitCode::checkpoint,
        "--resume: the checkpoint is at step {} of an epoch, which has {} steps with these options; use those of the "
        "checkpoint, or start over with --resume none",
        state.step_in_epoch, plan.steps_per_epoch);
}

void check_same_classes(const std::vector<std::string>& classes, const TrainingState& state) {
  if (state.classes.empty() || classes.empty()) return;
  const std::string difference = class_difference(classes, state.classes);
  check(difference.empty(), ExitCode::checkpoint, "{}", difference);
}

void check_same_network(const Options& options, const Inputs& inputs, const TrainingState& state) {
  const FingerprintPart mine = network_part(inputs.graph);
  const auto found = state.fingerprint.find(mine.name);
  check(found == state.fingerprint.end() || found->second == mine.value, ExitCode::checkpoint,
        "the checkpoint's network is not --model {} with these data: its layers or their settings differ ({}, not {}); "
        "evaluate it with its own config.cfg, and with the ddp_train that wrote it",
        options.model.model, found == state.fingerprint.end() ? "" : found->second, mine.value);
}

void check_same_model(const Options& options, const Inputs& inputs, const TrainingState& state) {
  check(inputs.onnx_hash == state.model_hash, ExitCode::checkpoint,
        "--model {} is not the file that the checkpoint was trained with; use that file, or restore it as "
        "RUN/{}",
        options.model.model, kModelCopyFile);
}

namespace {

// Options that both versions have.
struct ChangedOptions {
  Fingerprint then, now;
};

ChangedOptions options_of_both(const TrainingState& state, const Options& options) {
  Fingerprint then = options_fingerprint(state.config);
  Fingerprint now = options_fingerprint(dump_config(options));
  const auto unknown_to = [](const Fingerprint& other) {
    return [&other](const FingerprintPart& part) {
      return std::none_of(other.begin(), other.end(), [&](const auto& each) { return each.name == part.name; });
    };
  };
  std::erase_if(now, unknown_to(then));
  // A resumed run takes them from the checkpoint.
  std::erase_if(now, [](const FingerprintPart& part) { return part.name == "--logical-shards"; });
  std::erase_if(then, unknown_to(now));
  return {std::move(then), std::move(now)};
}

}  // namespace

std::string changed_options(const TrainingState& state, const Options& options) {
  const ChangedOptions changed = options_of_both(state, options);
  return differences(changed.now, changed.then, changed.now.size());
}

std::string changed_kernel_options(const TrainingState& state, const Options& options) {
  constexpr std::array kOptions = {"--freeze",       "--frozen-statistics", "--precision",
                                   "--split-linear", "--sync-batch-norm",   "--model"};
  ChangedOptions changed = options_of_both(state, options);
  for (Fingerprint* each : {&changed.then, &changed.now}) {
    std::erase_if(*each, [&](const FingerprintPart& part) {
      return std::find(kOptions.begin(), kOptions.end(), part.name) == kOptions.end();
    });
  }
  return differences(changed.now, changed.then);
}

}  // namespace ddp
