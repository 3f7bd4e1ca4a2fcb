#include "model/memory_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "backend/workspace.h"

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
      EXPECT_EQ(a.offset % 256, 0U);
      EXPECT_LE(a.offset + a.bytes, plan.arena_bytes);
      for (const PlannedBuffer& b : plan.buffers) {
        if (&a == &b || a.bytes == 0 || b.bytes == 0 || a.last < b.first || b.last < a.first) continue;
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset) << a.name << " " << b.name;
      }
    }
  }
}

TEST(WorkspaceParts, BeginAtMultiplesOf256Bytes) {
  Workspace workspace;
  for (const std::int64_t count : {1, 0, 300, 64}) EXPECT_EQ(workspace.add<float>(count).offset % 256, 0U);
  EXPECT_EQ(workspace.bytes() % 256, 0U);
}

TEST(MemoryPlanner, BuffersThatDoNotLiveTogetherShare) {
  MemoryPlanner planner;
  for (int i = 0; i < 10; ++i) planner.add(std::to_string(i), 1024, i, i);
  EXPECT_EQ(planner.plan().arena_bytes, 1024U);
}

TEST(MemoryPlanner, AnExtendedBufferLivesAllTheWhile) {
  MemoryPlanner planner;
  const BufferId longer = planner.add("a", 1024, 5, 6);
  const BufferId early = planner.add("b", 1024, 2, 2);
  const BufferId between = planner.add("c", 1024, 8, 8);
  const BufferId later = planner.add("d", 1024, 10, 11);
  planner.extend(longer, 2, 3);
  planner.extend(longer, 9, 9);
  const MemoryPlan plan = planner.plan();
  EXPECT_EQ(plan.arena_bytes, 2048U);
  EXPECT_NE(plan.offset(longer), plan.offset(early));
  EXPECT_NE(plan.offset(longer), plan.offset(between));
  EXPECT_EQ(plan.offset(longer), plan.offset(later));
}

}  // namespace
}  // namespace ddp
