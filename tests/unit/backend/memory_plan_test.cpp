#include "backend/memory_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace ddp {
namespace {

TEST(MemoryPlanner, BuffersThatLiveTogetherNeverOverlap) {
  std::mt19937_64 engine{std::random_device{}()};
  const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine); };
  for (int round = 0; round < 100; ++round) {
    MemoryPlanner planner;
    const int count = between(1, 40);
    for (int i = 0; i < count; ++i) {
      const int first = between(0, 30);
      planner.add(std::to_string(i), static_cast<std::size_t>(between(0, 5000)), first, first + between(0, 10));
    }
    const MemoryPlan plan = planner.plan();
    for (const PlannedBuffer& a : plan.buffers) {
      EXPECT_EQ(a.offset % MemoryPlanner::kAlignment, 0U);
      EXPECT_LE(a.offset + a.bytes, plan.arena_bytes);
      for (const PlannedBuffer& b : plan.buffers) {
        if (&a == &b || a.bytes == 0 || b.bytes == 0 || a.last < b.first || b.last < a.first) continue;
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset) << a.name << " " << b.name;
      }
    }
  }
}

TEST(MemoryPlanner, BuffersThatDoNotLiveTogetherShare) {
  MemoryPlanner planner;
  for (int i = 0; i < 10; ++i) planner.add(std::to_string(i), 1024, i, i);
  EXPECT_EQ(planner.plan().arena_bytes, 1024U);
}

}  // namespace
}  // namespace ddp
