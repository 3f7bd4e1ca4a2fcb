#include "train/parallel/shared_state.h"

#include <algorithm>

#include "optim/optimizer.h"
#include "train/parallel/parallelism.h"

namespace ddp {
namespace {

// Whether an update of an element needs nothing of others but the norm of the gradient; --deterministic demands of that norm,
// too, that its bits do not depend on the parts.
bool updates_elements(const OptimizerOptions& options) {
  if (options.deterministic && options.clip_norm > 0) return false;
  switch (options.optimizer) {
    case UpdateRule::sgd:
    case UpdateRule::adam:
    case UpdateRule::adamw:
    case UpdateRule::rmsprop:
      return options.lookahead == 0;
    case UpdateRule::lars:
    case UpdateRule::lamb:
    case UpdateRule::muon:
      break;
  }
  return false;
}

}  // namespace

bool may_share_state(const Options& options, const Device& device) {
  const bool on_host = device.gpu_module == nullptr && !device.described;
  return on_host && !device.views.empty() && reduction_of(options) != Reduction::root &&
         updates_elements(options.optimizer);
}

std::unique_ptr<HostShare> share_state(Communicator& ranks, const Device& device, const Graph& graph,
                                       const OptimizerOptions& options) {
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    hosts.push_back(device.views[static_cast<std::size_t>(rank)].host);
  }
  const auto elements = static_cast<std::size_t>(graph.flat_elements());
  return HostShare::open(ranks, hosts,
                         aligned_bytes(elements * sizeof(float)) + state_bytes(elements, update_settings(options)));
}

std::vector<ParameterSegment> segments_within(std::span<const ParameterSegment> segments,
                                              std::span<const Range> ranges) {
  std::vector<ParameterSegment> within;
  for (const Range& range : ranges) {
    for (const ParameterSegment& segment : segments) {
      const std::int64_t begin = std::max(segment.offset, range.begin);
      const std::int64_t end = std::min(segment.offset + segment.count, range.end);
      if (begin >= end) continue;
      ParameterSegment part = segment;
      part.offset = begin;
      part.count = end - begin;
      within.push_back(part);
    }
  }
  return within;
}

}  // namespace ddp
