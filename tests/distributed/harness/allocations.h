// Counts the allocations of a test program, to check that a step does not allocate.
//
//   const long before = allocation_count();
//   step();
//   EXPECT_EQ(allocation_count(), before);
//
// Programs that link ddp_count_allocations count every call of operator new, on all threads.
#pragma once

namespace ddp::testing {

long allocation_count();

}  // namespace ddp::testing
