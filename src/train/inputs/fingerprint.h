// The inputs of a run as named parts, so that runs can be compared and differences named.
//
//   Fingerprint mine = options_fingerprint(options);
//   check_same_on_all_ranks(ranks, mine, ExitCode::preflight, "use the same options on all ranks");
//
// The parts are compared across ranks before the first step, stored in checkpoints (state.json), and compared again
// when a run resumes or a checkpoint is evaluated. Values are short texts: numbers, or XXH3-128 hashes of long data.
#pragma once

#include <cstddef>
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

// Collective: throws JointError(code) on all ranks if the parts of any rank differ from those of rank 0. The message
// names the lowest such rank, its host and the first parts that differ, followed by `advice`.
void check_same_on_all_ranks(Communicator& ranks, const Fingerprint& mine, ExitCode code, std::string_view advice);

// "NAME VALUE instead of OTHER" for the first `most` parts that differ, those of `mine` first; "" if none does. Parts that
// only one side has count as different.
std::string differences(const Fingerprint& mine, const Fingerprint& other, std::size_t most = 3);

// The version of the program and the options that affect the result, one part each; not paths, threads, timeouts and
// output.
Fingerprint options_fingerprint(const Options& options);
// The same for the text of a configuration stored in a checkpoint; `all`: of all options.
Fingerprint options_fingerprint(const std::string& config, bool all = false);

// Count, shape, labels and pixels of some images of both splits, and the normalisation.
Fingerprint data_fingerprint(const DataSets& data, const Normalization& normalization);

// Layers, their settings, and the names and shapes of all tensors.
FingerprintPart network_part(const Graph& graph);

// The plan and the arithmetic of its kernels (BackendTraits::arithmetic).
FingerprintPart plan_part(const std::string& plan);
FingerprintPart kernels_part(const Backend& backend);

// Those parts of `mine` that a checkpoint's fingerprint (TrainingState::fingerprint) contains, in their order.
Fingerprint stored_parts(const Fingerprint& mine, const std::map<std::string, std::string>& stored);

// A part with the hash of the names, shapes and values of tensors.
FingerprintPart tensors_part(const std::string& name, std::span<const TensorView> tensors);

// The first tensor that contains a non-finite value; "" if there is none.
std::string first_not_finite(std::span<const TensorView> tensors);

}  // namespace ddp
