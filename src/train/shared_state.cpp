#include "train/shared_state.h"

#include <algorithm>

#include "optim/optimizer.h"

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

std::unique_ptr<HostShare> share_state(Communicator& ranks, const Experiment& e) {
  const bool whole = !e.slices.any() && e.place.stages == 1;
  const bool on_host = e.device.gpu_module == nullptr && !e.device.described;
  if (ranks.size() == 1 || !whole || !on_host || e.device.views.empty() || reduction_of(e.options) == Reduction::root ||
      !updates_elements(e.options.optimizer)) {
    return nullptr;
  }
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    hosts.push_back(e.device.views[static_cast<std::size_t>(rank)].host);
  }
  const auto elements = static_cast<std::size_t>(e.graph.flat_elements());
  return HostShare::open(
      ranks, hosts,
      aligned_bytes(elements * sizeof(float)) + state_bytes(elements, update_settings(e.options.optimizer)));
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
