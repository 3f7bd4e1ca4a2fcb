// How often a test program has allocated: proof that a step does not.
//
//   const long before = allocation_count();
//   step();
//   EXPECT_EQ(allocation_count(), before);
//
// A program that links ddp_count_allocations counts every call of operator new, from all threads.
#pragma once

namespace ddp::testing {

long allocation_count();

}  // namespace ddp::testing
