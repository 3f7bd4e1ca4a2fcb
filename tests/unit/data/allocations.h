// Counts this test program's allocations by replacing operator new.
//
//   const AllocationRecord before = allocations();
//   work();
//   EXPECT_EQ(allocations().count, before.count);
#pragma once

#include <cstddef>

namespace ddp {

struct AllocationRecord {
  std::size_t count = 0;    // since the program started, on all threads
  std::size_t largest = 0;  // bytes of the largest request since reset_largest()
};

AllocationRecord allocations();
void reset_largest();

}  // namespace ddp
