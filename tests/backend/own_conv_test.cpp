// Convolutions with our own kernels, whatever the backend would choose.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/cuda/conv_mma.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/op_set.h"
#include "backend/op_check.h"
#include "base/error.h"
#include "stand_ins/gpu/grid.h"

namespace ddp {
namespace {

bool takes(const ConvSpec& spec, Precision precision) {
  return cuda::conv_mma_takes(spec, cuda::conv_mma_parts(precision));
}

std::unique_ptr<Op> make_mma(Backend& backend, const ConvSpec& spec) {
  return backend.ops().make_op(spec, Layout::nhwc, Layout::nhwc, "mma");
}

// Of inputs that are exact in bf16, whose parts but the first are zero.
void check_exact(const ConvSpec& spec, Precision precision) {
  const auto backend = make_cuda_backend({.precision = precision});
  ASSERT_TRUE(takes(spec, precision)) << describe(spec);
  const auto op = make_mma(*backend, spec);
  const std::int64_t active = random_between(spec.batch == 0 ? 0 : 1, spec.batch);
  check_op({*backend, *op, spec, Layout::nhwc, Layout::nhwc, active, precision == Precision::bf16 ? 1e-2 : 1e-5,
            fmt::format("{} active {} in {}", describe(spec), active, cuda::name_of(precision))});
}

// Of any floats. Two parts leave out 2^-17 of each factor, and three 2^-25: below the rounding of sums in fp32. Without the
// smallest products the errors would be 2^-9 and 2^-17.
void check_floats(const ConvSpec& spec, Precision precision) {
  const auto backend = make_cuda_backend({.precision = precision});
  ASSERT_TRUE(takes(spec, precision)) << describe(spec);
  const auto op = make_mma(*backend, spec);
  const reference::Inputs in{
      .x = random_values(spec.batch * spec.input.elements()),
      .parameters = {random_values(spec.weights()), random_values(spec.bias ? spec.output_channels : 0), {}}};
  reference::Values dy = random_values(spec.batch * spec.output().elements());
  const std::vector<bool> near = reference::near_kinks(spec, in, 1e-4);
  for (std::size_t i = 0; i < near.size(); ++i) dy[i] = near[i] ? 0 : dy[i];
  const Expected expected{reference::forward(spec, in), reference::backward(spec, in, dy),
                          reference::forward(spec, in).y};
  check_op({*backend, *op, spec, Layout::nhwc, Layout::nhwc, spec.batch, precision == Precision::tf32 ? 2e-5 : 2e-6,
            fmt::format("{} of any floats in {}", describe(spec), cuda::name_of(precision))},
           in, dy, expected);
}

class StandInMma : public ::testing::TestWithParam<Precision> {};
class StandInLargeMma : public ::testing::TestWithParam<Precision> {};

// Random small convolutions, where supported.
TEST_P(StandInMma, ConvolutionsAgreeWithTheReference) {
  const bool parts = GetParam() != Precision::bf16;
  for (int taken = 0; taken < (parts ? 5 : 12);) {
    const ConvSpec spec = random_conv(2, 1);
    if (!takes(spec, GetParam())) continue;
    ++taken;
    check_exact(spec, GetParam());
    if (parts && !HasFatalFailure()) check_floats(spec, GetParam());
    if (HasFatalFailure()) return;
  }
}

// Images in several bands, channels in several blocks with a smaller last one, large windows.
TEST_P(StandInLargeMma, ConvolutionsAgreeWithTheReference) {
  const std::vector<ConvSpec> specs = {
      {.batch = 2,
       .input = {20, 34, 30},
       .output_channels = 9,
       .window = square(3),
       .relu = true,
       .average_pool = true},
      {.batch = 3, .input = {33, 9, 9}, .output_channels = 99, .window = square(3, 1, 1), .bias = false},
      {.batch = 2,
       .input = {3, 41, 37},
       .output_channels = 64,
       .window = square(7, 2, 3),
       .relu = true,
       .input_gradient = false},
      {.batch = 2, .input = {3, 30, 40}, .output_channels = 5, .window = square(5), .relu = true},
      {.batch = 300,
       .input = {1, 5, 5},
       .output_channels = 20,
       .window = square(2),
       .relu = true,
       .average_pool = true}};
  for (const ConvSpec& spec : specs) {
    if (GetParam() == Precision::bf16) {
      check_exact(spec, GetParam());
    } else {
      check_floats(spec, GetParam());
    }
    if (HasFatalFailure()) return;
  }
}

std::string name_of_precision(const ::testing::TestParamInfo<Precision>& info) { return cuda::name_of(info.param); }
INSTANTIATE_TEST_SUITE_P(In, StandInMma, ::testing::Values(Precision::fp32, Precision::tf32, Precision::bf16),
                         name_of_precision);
INSTANTIATE_TEST_SUITE_P(In, StandInLargeMma, ::testing::Values(Precision::fp32, Precision::bf16), name_of_precision);

TEST(StandInMmaChoice, LeavesTheRestToCudnn) {
  const ConvSpec taken{.batch = 4, .input = {16, 12, 12}, .output_channels = 8, .window = square(3)};
  EXPECT_TRUE(takes(taken, Precision::bf16));
  std::vector<ConvSpec> others(5, taken);
  others[0].groups = 2;
  others[1].window.stride = 2;
  others[2].input.channels = 65;
  others[3].input.width = 4000;
  others[4].window.padding.top = 3;
  for (const ConvSpec& spec : others) EXPECT_FALSE(takes(spec, Precision::bf16)) << describe(spec);
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  EXPECT_EQ(backend->ops().choose(taken, Layout::nhwc, Layout::nhwc, ChoiceMode::fixed).kernels.substr(0, 8),
            "forward=");
  try {
    static_cast<void>(backend->ops().make_op(others[0], Layout::nhwc, Layout::nhwc, "mma"));
    ADD_FAILURE() << "kernels were taken that do not compute this";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
  }
}

// cuDNN would pad these channels, so our kernel is faster without measuring.
TEST(StandInMmaChoice, IsTheFixedChoiceForOddChannels) {
  const ConvSpec spec{.batch = 4, .input = {20, 12, 12}, .output_channels = 50, .window = square(5)};
  const auto bf16 = make_cuda_backend({.precision = Precision::bf16, .deterministic = true});
  EXPECT_EQ(bf16->ops().choose(spec, Layout::nhwc, Layout::nhwc, ChoiceMode::fixed).kernels, "mma");
  const auto fp32 = make_cuda_backend({});
  EXPECT_EQ(fp32->ops().choose(spec, Layout::nhwc, Layout::nhwc, ChoiceMode::fixed).kernels.substr(0, 8), "forward=");
}

// Data that the threads of a warp share stays valid until all have read it.
TEST(StandInGrid, AWarpSeesWhatEachOfItsThreadsPointsTo) {
  std::vector<unsigned> sums(64);
  stand_in::run_grid(dim3(2), dim3(64), [&] {
    unsigned mine = threadIdx.x;
    stand_in::with_warp(&mine, [&](const stand_in::Warp& all) {
      sums[threadIdx.x] = 0;
      for (const void* other : all) sums[threadIdx.x] += *static_cast<const unsigned*>(other);
    });
    mine = 0;
  });
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(sums[i], (i / 32 * 32) * 32 + 31 * 32 / 2);
}

}  // namespace
}  // namespace ddp
