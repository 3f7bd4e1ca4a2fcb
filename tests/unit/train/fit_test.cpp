#include "train/plan/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/host_queue.h"
#include "base/error.h"
#include "model/zoo.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;

// A device with `bytes` of memory that does not allow allocations.
class Bounded final : public HostMemory {
 public:
  explicit Bounded(std::size_t bytes) : bytes_(bytes) {}

  std::size_t available_bytes() const override { return bytes_; }
  Memory allocate(std::size_t bytes, const std::string& /*purpose*/) override {
    ADD_FAILURE() << "allocates " << bytes;
    return {};
  }

 private:
  std::size_t bytes_;
};

Backend bounded_backend(std::size_t bytes) {
  return {make_host_device(std::make_unique<Bounded>(bytes)), make_cpu_ops(), make_cpu_math()};
}

struct Fit : ::testing::Test {
  Graph graph = make_model("lenet", {1, 28, 28}, 10);

  NetworkConfig config(std::int64_t batch) const { return {batch, {1, 28, 28}, {1.0F}, {0.0F}, 0.0F, true}; }
  LayoutPlan plan(Backend& backend, std::int64_t batch) const {
    return plan_layouts(backend, make_stages(graph, batch), ChoiceMode::expected);
  }
  std::size_t arena(std::int64_t batch) const {
    Backend backend = bounded_backend(0);
    return Network(backend, graph, config(batch), plan(backend, batch)).memory().arena_bytes;
  }
  std::string refusal(std::size_t available, std::int64_t batch, std::size_t other) const {
    Backend backend = bounded_backend(available);
    try {
      check_fits(backend, graph, config(batch), plan(backend, batch), other);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::out_of_memory);
      return error.what();
    }
    return "";
  }
};

TEST_F(Fit, WhatFitsToTheByteIsTaken) {
  EXPECT_EQ(refusal(arena(256) + 1000, 256, 1000), "");
  EXPECT_NE(refusal(arena(256) + 999, 256, 1000), "");
  EXPECT_EQ(refusal(0, 256, 1000), "");  // unknown
}

TEST_F(Fit, ARefusalNamesTheLargestBatchThatFits) {
  const std::size_t room = arena(96);
  std::int64_t largest = 0;
  for (std::int64_t batch = 96; batch < 128 && arena(batch) <= room; ++batch) largest = batch;
  EXPECT_THAT(refusal(room, 256, 0), HasSubstr("; " + std::to_string(largest) + " would fit"));
  EXPECT_THAT(refusal(1000, 256, 0), HasSubstr("not even 1 sample"));
  EXPECT_THAT(refusal(1000, 256, 5000), HasSubstr("not even 1 sample"));
}

}  // namespace
}  // namespace ddp
