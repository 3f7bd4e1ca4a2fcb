#include "train/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/zoo.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;

// The CPU's operators on a device that has `bytes`.
class Bounded final : public Backend {
 public:
  explicit Bounded(std::size_t bytes) : bytes_(bytes) {}

  std::size_t available_bytes() const override { return bytes_; }
  Memory allocate(std::size_t bytes, const std::string& /*purpose*/) override {
    ADD_FAILURE() << "allocates " << bytes;
    return {};
  }

  std::string description() const override { return cpu_->description(); }
  std::string fingerprint() const override { return cpu_->fingerprint(); }
  std::string arithmetic() const override { return cpu_->arithmetic(); }
  bool supports(const OpSpec& spec, Layout x, Layout y) const override { return cpu_->supports(spec, x, y); }
  KernelChoice choose(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) override {
    return cpu_->choose(spec, x, y, mode);
  }
  std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) override {
    return cpu_->make_op(spec, x, y, kernels);
  }
  bool on_host() const override { return true; }
  Memory allocate_for_transfer(std::size_t bytes, const std::string& purpose) override {
    return allocate(bytes, purpose);
  }
  void upload(void* /*device*/, const void* /*host*/, std::size_t /*bytes*/) override {}
  void download(void* /*host*/, const void* /*device*/, std::size_t /*bytes*/) override {}
  void fill_zero(void* /*device*/, std::size_t /*bytes*/) override {}
  void load_input(const InputSpec& /*spec*/, const InputArguments& /*arguments*/) override {}
  void softmax_cross_entropy(const LossSpec& /*spec*/, const LossArguments& /*arguments*/) override {}
  void add(float* /*sum*/, const float* /*addend*/, std::size_t /*count*/) override {}
  void add_activations(float* /*sum*/, const float* /*addend*/, std::size_t /*count*/) override {}
  void to_bf16(Bf16* /*to*/, const float* /*from*/, std::size_t /*count*/) override {}
  void from_bf16(float* /*to*/, const Bf16* /*from*/, std::size_t /*count*/) override {}
  void find_broken(const float* /*values*/, std::size_t /*count*/, const double* /*sums*/, std::size_t /*sum_count*/,
                   double* /*broken*/) override {}
  void update(const UpdateArguments& /*arguments*/) override {}
  void mark(std::size_t /*place*/) override {}
  void synchronize() override {}
  double seconds_between(std::size_t /*from*/, std::size_t /*to*/) const override { return 0; }
  std::unique_ptr<Recording> record(const std::function<void()>& /*enqueue*/) override { return nullptr; }

 private:
  std::size_t bytes_;
  std::unique_ptr<Backend> cpu_ = make_cpu_backend();
};

struct Fit : ::testing::Test {
  Graph graph = make_model("lenet", {1, 28, 28}, 10);

  NetworkConfig config(std::int64_t batch) const { return {batch, {1, 28, 28}, {1.0F}, {0.0F}, 0.0F, true}; }
  LayoutPlan plan(Backend& backend, std::int64_t batch) const {
    return plan_layouts(backend, make_stages(graph, batch), ChoiceMode::fixed);
  }
  std::size_t arena(std::int64_t batch) const {
    Bounded backend(0);
    return Network(backend, graph, config(batch), plan(backend, batch)).memory().arena_bytes;
  }
  std::string refusal(std::size_t available, std::int64_t batch, std::size_t other) const {
    Bounded backend(available);
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
