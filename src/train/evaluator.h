// The loss and accuracy over a whole data set, each sample counted exactly once.
//
//   Evaluator evaluator(backend, network, test, nullptr, ranks, EvalOn::rank0, config);
//   EvalResult result = evaluator.run({parameters, statistics.mean()});   // collective; the same result on all ranks
//
// On rank 0 alone, or on all ranks: the set is cut into chunks of the network's batch, the chunks are dealt out to the
// ranks, and the sums are added in the order of the chunks, so that the number of ranks changes no bit.
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
#include "train/batch_stage.h"

namespace ddp {

struct EvalResult {
  double loss = 0;      // mean over the samples
  double accuracy = 0;  // 0 to 1
  std::int64_t samples = 0;
};

class Evaluator {
 public:
  // `resident` holds the data set's images in the device's memory, or is null.
  Evaluator(Backend& backend, Network& network, const Dataset& dataset, const ResidentImages* resident,
            Communicator& ranks, EvalOn where, const DataOptions& options);

  EvalResult run(const ModelState& state);
  // Asks `stopped` before each chunk; nothing, on all ranks, where it said yes on any rank that evaluates.
  std::optional<EvalResult> run_unless(const ModelState& state, const std::function<bool()>& stopped);

 private:
  Backend& backend_;
  Network& network_;
  const Dataset& dataset_;
  Communicator& ranks_;
  EvalOn where_;
  std::vector<std::uint32_t> indices_;
  BatchStage stage_;
  Memory device_sums_;
  Memory host_sums_;
  std::span<double>
      sums_;  // the host's: a loss sum for each chunk, the number of right answers, and of ranks that stopped
  Loader loader_;
};

}  // namespace ddp
