// The loss and accuracy over a whole data set, with each sample counted exactly once.
//
//   Evaluator evaluator(backend, network, test, nullptr, ranks, EvalOn::rank0, options.data);
//   EvalResult result = evaluator.run({parameters, statistics.mean()});   // collective; the same result on all ranks
//
// Runs on rank 0 or on all ranks: the set is split into chunks of the network's batch size, which are distributed over
// the ranks, and their sums are added in chunk order, so that the result is bit-identical for any number of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "data/pipeline/loader.h"
#include "data/sources/dataset.h"
#include "model/network.h"
#include "options/options.h"
#include "train/evaluation/class_counts.h"
#include "train/evaluation/eval_views.h"
#include "train/step/batch_stage.h"

namespace ddp {

struct EvalResult {
  double loss = 0;      // mean over the samples
  double accuracy = 0;  // 0 to 1
  std::int64_t samples = 0;
  ClassCounts classes = {};
};

class Evaluator {
 public:
  // `resident` holds the images of the data set in device memory, or is null. Where there are several views, the answer
  // and the loss are those of the mean of their logits.
  Evaluator(Backend& backend, Network& network, const Dataset& dataset, const ResidentImages* resident,
            Communicator& ranks, EvalOn where, const DataOptions& options, EvalViews views = EvalViews::plain);

  EvalResult run(const ModelState& state);
  // Calls `stopped` before each chunk; returns nullopt on all ranks if it returned true on any evaluating rank.
  std::optional<EvalResult> run_unless(const ModelState& state, const std::function<bool()>& stopped);

 private:
  LogitLoss run_views(const ModelState& state, const Batch& batch);

  Backend& backend_;
  Network& network_;
  const Dataset& dataset_;
  Communicator& ranks_;
  EvalOn where_;
  std::vector<EvalView> views_;
  Memory shown_;  // a batch in one of several views
  std::vector<std::uint32_t> indices_;
  BatchStage stage_;
  Memory device_sums_;
  Memory host_sums_;
  std::span<double>
      sums_;  // the host's: a loss sum for each chunk, the number of right answers, and of ranks that stopped
  ClassCounter counter_;
  Loader loader_;
};

}  // namespace ddp
