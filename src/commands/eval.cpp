// ddp_train eval: the loss and accuracy of a checkpoint and of its classes, as tables or as one line of JSON. What the
// options do not say is taken from the configuration of the run; with --ema-decay the moving average is evaluated.
#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/output.h"
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "commands/commands.h"
#include "commands/ranks.h"
#include "job/report.h"
#include "metrics/display/evaluation_text.h"
#include "options/parse.h"
#include "train/evaluation/evaluator.h"
#include "train/inputs/model_source.h"
#include "train/inputs/resume.h"
#include "train/loop/prepared_run.h"
#include "train/loop/training_run.h"

namespace ddp {

namespace {

std::string json_line(const Checkpoint& checkpoint, const EvalResult& result) {
  nlohmann::ordered_json line;
  line["checkpoint"] = checkpoint.path.string();
  line["step"] = checkpoint.state.step;
  line["val_loss"] = result.loss;
  line["val_accuracy"] = result.accuracy;
  const double top5 = result.classes.top5_accuracy();
  if (top5 >= 0) line["val_top5_accuracy"] = top5;
  if (!checkpoint.state.classes.empty()) line["classes"] = checkpoint.state.classes;
  line["class_accuracy"] = result.classes.class_accuracy();
  if (!result.classes.confusion.empty()) line["confusion"] = result.classes.confusion;
  line["samples"] = result.samples;
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string tables(const Checkpoint& checkpoint, const EvalResult& result, std::vector<std::string> names) {
  const double top5 = result.classes.top5_accuracy();
  const EvalRecord evaluation{checkpoint.state.step,
                              0,
                              result.loss,
                              result.accuracy,
                              top5 < 0 ? std::nullopt : std::optional(top5),
                              result.classes.class_accuracy(),
                              result.classes.confusion};
  return fmt::format("checkpoint  {} (step {})\n", checkpoint.path.string(), checkpoint.state.step) +
         evaluation_text(evaluation, result.classes.of_class, std::move(names));
}

}  // namespace

int run_eval(const MpiSession& session, const Options& given) {
  const Ranks ranks = open_ranks(session, given);
  log_device(ranks.device);
  Communicator& communicator = *ranks.communicator;
  std::optional<Checkpoint> checkpoint;
  together(session, [&] {
    if (session.rank() != 0) return;
    checkpoint = open_checkpoint(chosen_checkpoint(given));
  });
  // Only rank 0 may have access to the checkpoint.
  const std::string state_text = communicator.broadcast_text(checkpoint ? to_json(checkpoint->state) : "", 0);
  const TrainingState state = parse_state(state_text, "the checkpoint of rank 0");
  const Options options = together(session, [&] { return with_stored_run(given, state.config); });
  PreparedRun prepared(session, communicator, ranks.device, options,
                       {.model_copy = checkpoint ? model_copy_of(checkpoint->path) : std::filesystem::path(),
                        .split = checkpoint ? split_of(checkpoint->path) : std::filesystem::path(),
                        .evaluated = state});
  const Dataset& test = prepared.inputs.test();
  together(session, [&] {
    if (!checkpoint) return;
    check_same_classes(test.class_names(), checkpoint->state);
    check_same_model(prepared.job.options, prepared.inputs, checkpoint->state);
    check_same_network(prepared.job.options, prepared.inputs, checkpoint->state);
    const std::vector<TensorView> views = weight_views(prepared.inputs.graph, prepared.state);
    const std::string model = model_label(options.model.model);
    if (options.optimizer.ema_decay > 0) {
      load_average(*checkpoint, model, views);
    } else {
      load(*checkpoint, model, views);
    }
  });
  broadcast_floats(communicator, *prepared.state.host_parameters);
  prepared.state.statistics->broadcast(communicator);
  return or_abort(session, [&] {
    Evaluator evaluator(*prepared.backend, *prepared.engine.network, test, prepared.engine.resident_test.get(),
                        communicator, options.output.eval_on, options.data, options.output.eval_views);
    const EvalResult result = evaluator.run({prepared.state.parameters(), prepared.state.statistics->mean()});
    if (!std::isfinite(result.loss)) {
      throw JointError(ExitCode::non_finite,
                       "the loss on the test set is not finite: the outputs of the network overflow; use an "
                       "earlier checkpoint",
                       session.rank() == 0);
    }
    if (checkpoint) {
      print_text("{}", options.json ? json_line(*checkpoint, result) : tables(*checkpoint, result, test.class_names()));
    }
    return static_cast<int>(ExitCode::done);
  });
}

}  // namespace ddp
