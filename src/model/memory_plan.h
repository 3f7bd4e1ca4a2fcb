// Planning of one arena by liveness: buffers that are never alive at the same time share memory.
//
//   MemoryPlanner planner;
//   BufferId a = planner.add("conv1.output", bytes, /*first*/ 0, /*last*/ 7);
//   MemoryPlan plan = planner.plan();
//   std::byte* p = arena.data() + plan.offset(a);
//
// Time is counted in operator calls. Greedy by size: each buffer is placed at the lowest offset that is free during its
// lifetime (Pisarchyk and Lee: "Efficient Memory Management for Deep Neural Net Inference", 2020).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddp {

using BufferId = std::size_t;

struct PlannedBuffer {
  std::string name;
  std::size_t bytes = 0;
  int first = 0;  // the first and the last call that use it, inclusive
  int last = 0;
  std::size_t offset = 0;
};

struct MemoryPlan {
  std::vector<PlannedBuffer> buffers;
  std::size_t arena_bytes = 0;
  std::size_t offset(BufferId id) const { return buffers.at(id).offset; }
};

class MemoryPlanner {
 public:
  BufferId add(std::string name, std::size_t bytes, int first, int last);
  // Extends the lifetime to include `first` to `last`: the buffer holds two values, one after the other.
  void extend(BufferId id, int first, int last);
  MemoryPlan plan() const;

 private:
  std::vector<PlannedBuffer> buffers_;
};

}  // namespace ddp
