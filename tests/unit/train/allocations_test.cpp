// A step allocates nothing: every allocation of the process is counted, including those of libraries.
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "comm/transport/self.h"
#include "training_rig.h"

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* block, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {
std::atomic<bool> counting = false;
std::atomic<long> allocations = 0;

void count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

// These take precedence over the C library's functions in this program and all its libraries.
extern "C" {
void* malloc(std::size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(std::size_t number, std::size_t size) {
  count();
  return __libc_calloc(number, size);
}
void* realloc(void* block, std::size_t size) {
  count();
  return __libc_realloc(block, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  count();
  *block = __libc_memalign(alignment, size);
  return *block != nullptr ? 0 : 12;
}
}

namespace ddp {
namespace {

TEST(Allocations, TheCounterCounts) {
  allocations = 0;
  counting = true;
  std::vector<int>* volatile block = new std::vector<int>(1000);
  counting = false;
  delete block;
  EXPECT_GE(allocations.load(), 2);
}

TEST(Allocations, AStepOfOneRankAllocatesNothing) {
  omp_set_num_threads(1);
  const auto self = make_self_communicator();
  TrainingRig rig(
      *self, {.global_batch = 64, .shards = 4, .optimizer = {.momentum = 0.9, .nesterov = true, .weight_decay = 5e-4}});
  const golden::Samples samples(0, 64);
  const auto run = [&](std::int64_t step) {
    (void)rig.step.run(rig.parameters.data(), samples.batch(), {{0.1, 0.9, static_cast<double>(step)}, 64, {}});
  };
  for (std::int64_t s = 1; s <= 3; ++s) run(s);
  allocations = 0;
  counting = true;
  for (std::int64_t s = 4; s <= 8; ++s) run(s);
  counting = false;
  EXPECT_EQ(allocations.load(), 0);
}

}  // namespace
}  // namespace ddp
