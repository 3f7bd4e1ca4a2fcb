#include "model/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "backend/memory.h"
#include "base/error.h"

namespace ddp {
namespace {

bool alive_together(const PlannedBuffer& a, const PlannedBuffer& b) { return a.first <= b.last && b.first <= a.last; }

// The lowest offset at which `buffer` overlaps no placed buffer with an overlapping lifetime.
std::size_t lowest_offset(const PlannedBuffer& buffer, const std::vector<const PlannedBuffer*>& placed_by_offset) {
  std::size_t offset = 0;
  for (const PlannedBuffer* other : placed_by_offset) {
    if (!alive_together(buffer, *other)) continue;
    if (offset + aligned_bytes(buffer.bytes) <= other->offset) break;
    offset = std::max(offset, other->offset + aligned_bytes(other->bytes));
  }
  return offset;
}

}  // namespace

BufferId MemoryPlanner::add(std::string name, std::size_t bytes, int first, int last) {
  DDP_ASSERT(first <= last);
  buffers_.push_back({std::move(name), bytes, first, last, 0});
  return buffers_.size() - 1;
}

void MemoryPlanner::extend(BufferId id, int first, int last) {
  DDP_ASSERT(first <= last);
  PlannedBuffer& buffer = buffers_.at(id);
  buffer.first = std::min(buffer.first, first);
  buffer.last = std::max(buffer.last, last);
}

MemoryPlan MemoryPlanner::plan() const {
  MemoryPlan plan{buffers_, 0};
  std::vector<std::size_t> order(buffers_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [this](std::size_t a, std::size_t b) { return buffers_[a].bytes > buffers_[b].bytes; });
  std::vector<const PlannedBuffer*> placed;
  for (const std::size_t index : order) {
    PlannedBuffer& buffer = plan.buffers[index];
    if (buffer.bytes == 0) continue;
    buffer.offset = lowest_offset(buffer, placed);
    plan.arena_bytes = std::max(plan.arena_bytes, buffer.offset + aligned_bytes(buffer.bytes));
    const auto place = std::upper_bound(placed.begin(), placed.end(), &buffer,
                                        [](const auto* a, const auto* b) { return a->offset < b->offset; });
    placed.insert(place, &buffer);
  }
  return plan;
}

}  // namespace ddp
