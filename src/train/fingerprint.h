// What a run computes from, as named parts, so that two runs can be compared and their differences named.
//
//   Fingerprint options = options_fingerprint(e.options);
//   check_same_on_all_ranks(ranks, options, ExitCode::preflight);   // "rank 1 on host b has --lr 0.2, rank 0 ... 0.1"
//
// The parts are compared across ranks before the first step, stored in checkpoints (state.json), and compared again
// where a run resumes or a checkpoint is evaluated. Values are short texts: numbers where people know them, hashes
// (XXH3-128) of what is long.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "checkpoint/tensor_view.h"
#include "comm/communicator.h"
#include "data/pipeline/normalization.h"
#include "data/sources/catalog.h"
#include "model/graph.h"
#include "options/options.h"

namespace ddp {

// In the order in which differences are reported.
struct FingerprintPart {
  std::string name;  // "--lr", "training images"
  std::string value;
  bool operator==(const FingerprintPart&) const = default;
};
using Fingerprint = std::vector<FingerprintPart>;

// Collective: throws JointError(code) on all ranks where the parts of any rank are not those of rank 0. The line names
// the lowest such rank, its host, and the first parts that differ; `advice` ends it.
void check_same_on_all_ranks(Communicator& ranks, const Fingerprint& mine, ExitCode code, std::string_view advice);

// "NAME VALUE in place of OTHER" for the first parts that differ, those of `mine` first; "" where none does. Parts that
// only one side has differ, too.
std::string differences(const Fingerprint& mine, const Fingerprint& other);

// The version of the program, and the options that decide what is computed, one part each: not those of places,
// threads, waiting, and what is shown.
Fingerprint options_fingerprint(const Options& options);
// The same of a configuration's text, as checkpoints keep it.
Fingerprint options_fingerprint(const std::string& config);

// Count, shape, labels and the pixels of some images of both sets, and how pixels are normalised.
Fingerprint data_fingerprint(const DataSets& data, const Normalization& normalization);

// Layers, their settings, and the names and shapes of all tensors.
FingerprintPart network_part(const Graph& graph);

// The plan, and what its kernels are computed by (OpFactory::arithmetic()).
FingerprintPart plan_part(const std::string& plan);
FingerprintPart kernels_part(const Backend& backend);

// The parts of a checkpoint's fingerprint (TrainingState::fingerprint) among `mine`, in the order of these.
Fingerprint stored_parts(const Fingerprint& mine, const std::map<std::string, std::string>& stored);

// One part, of the names, shapes and values of tensors.
FingerprintPart tensors_part(const std::string& name, std::span<const TensorView> tensors);

// The first tensor that holds a number that is infinite or NaN; "" where there is none.
std::string first_not_finite(std::span<const TensorView> tensors);

}  // namespace ddp
