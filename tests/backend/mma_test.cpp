// Convolutions and linear layers with our own kernels on tensor cores, whatever the backend would choose, in every precision.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend_case.h"
#include "backend/cuda/candidates/op_set.h"
#include "backend/cuda/code/parts.h"
#include "backend/cuda/conv/conv_mma.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/op_check.h"

namespace ddp {
namespace {

// Checks inputs that are exact in bf16, whose parts but the first are zero (Note [Parts] of backend/cuda/code/parts.h).
void check_exact(const OpSpec& spec, Layout layout, Precision precision) {
  const auto backend = make_cuda_backend({.precision = precision});
  const auto op = backend->ops().make_op(spec, layout, layout, cuda::kMmaKernels);
  const std::int64_t active = random_between(batch_of(spec) == 0 ? 0 : 1, batch_of(spec));
  check_op({*backend, *op, spec, layout, layout, active, precision == Precision::bf16 ? 1e-2 : 1e-5,
            fmt::format("{} {} active {} in {}", describe(spec), to_string(layout), active, cuda::name_of(precision))});
}

// The results, before pooling, of which rounding may decide whether ReLU passes them.
std::vector<bool> near_zero(OpSpec spec, const reference::Inputs& in) {
  if (auto* conv = std::get_if<ConvSpec>(&spec)) conv->relu = conv->average_pool = false;
  if (auto* linear = std::get_if<LinearSpec>(&spec)) linear->relu = false;
  std::vector<bool> near;
  for (const double y : reference::forward(spec, in).y) near.push_back(std::abs(y) < 1e-3);
  return near;
}

// Gradients of results that are not near a kink, nor averages of one that is.
reference::Values random_gradient(const OpSpec& spec, const reference::Inputs& in) {
  reference::Values dy = random_values(batch_of(spec) * output_of(spec).elements());
  const std::vector<bool> near = near_zero(spec, in);
  const auto* conv = std::get_if<ConvSpec>(&spec);
  const bool pools = conv != nullptr && conv->average_pool;
  const std::int64_t width = pools ? conv->convolved().width : 1;
  const std::int64_t plane = pools ? conv->convolved().height * width : 1;
  const Shape out = output_of(spec);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(near.size()); ++i) {
    if (!near[static_cast<std::size_t>(i)]) continue;
    std::int64_t place = i;
    if (pools) {
      place = (i / plane * out.height + i % plane / width / 2) * out.width + i % width / 2;
    }
    dy[static_cast<std::size_t>(place)] = 0;
  }
  return dy;
}

// Checks any floats, in fp32 or tf32. Two parts leave out 2^-17 of each factor, and three 2^-25: below the rounding of sums in fp32.
// Without the smallest products the errors would be 2^-9 and 2^-17.
void check_floats(const OpSpec& spec, Layout layout, Precision precision) {
  const auto backend = make_cuda_backend({.precision = precision});
  const auto op = backend->ops().make_op(spec, layout, layout, cuda::kMmaKernels);
  const reference::Inputs in{
      .inputs = {random_values(batch_of(spec) * input_of(spec).elements())},
      .parameters = {random_values(parameter_elements(spec, 0)), random_values(parameter_elements(spec, 1)), {}}};
  const reference::Values dy = random_gradient(spec, in);
  const Expected expected{reference::forward(spec, in), reference::backward(spec, in, dy),
                          reference::forward(spec, in).y};
  check_op({*backend, *op, spec, layout, layout, batch_of(spec), precision == Precision::tf32 ? 2e-5 : 2e-6,
            fmt::format("{} {} of any floats in {}", describe(spec), to_string(layout), cuda::name_of(precision))},
           in, dy, expected);
}

bool takes(const ConvSpec& spec, Precision precision) { return cuda::conv_mma_takes(spec, cuda::parts_of(precision)); }

class Mma : public OwnBackend, public ::testing::WithParamInterface<Precision> {};
class LargeMma : public Mma {};

// Random small convolutions, where supported.
TEST_P(Mma, ConvolutionsAgreeWithTheReference) {
  const bool parts = GetParam() != Precision::bf16;
  for (int taken = 0; taken < (parts ? 5 : 12);) {
    const ConvSpec spec = random_conv(2, 1);
    if (!takes(spec, GetParam())) continue;
    ++taken;
    check_exact(spec, Layout::nhwc, GetParam());
    if (parts && !HasFatalFailure()) check_floats(spec, Layout::nhwc, GetParam());
    if (HasFatalFailure()) return;
  }
}

// Images in several bands, channels in several blocks with a smaller last one, large windows.
TEST_P(LargeMma, ConvolutionsAgreeWithTheReference) {
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
  for (ConvSpec spec : specs) {
    if (GetParam() == Precision::bf16) {
      check_exact(spec, Layout::nhwc, GetParam());
    } else {
      spec.batch = (spec.batch + 2) / 3;  // each product is six
      check_floats(spec, Layout::nhwc, GetParam());
    }
    if (HasFatalFailure()) return;
  }
}

class MmaLinear : public OwnBackend, public ::testing::WithParamInterface<Precision> {
 protected:
  static void check(const LinearSpec& spec, Layout layout) {
    check_exact(spec, layout, GetParam());
    if (GetParam() != Precision::bf16 && !HasFatalFailure()) check_floats(spec, layout, GetParam());
  }
};

TEST_P(MmaLinear, RandomLayersAgreeWithTheReference) {
  for (int round = 0; round < 16; ++round) {
    LinearSpec spec{.batch = random_between(1, 70), .inputs = 1, .outputs = random_between(1, 140)};
    spec.image = {random_between(1, 30), random_between(1, 4), random_between(1, 4)};
    spec.inputs = spec.image.elements();
    spec.bias = random_between(0, 3) != 0;
    spec.relu = spec.bias && random_between(0, 1) == 1;
    spec.input_gradient = random_between(0, 3) != 0;
    check(spec, round % 2 == 0 ? Layout::nhwc : Layout::plain);
    if (HasFatalFailure()) return;
  }
}

// Several steps of the depth and several blocks in each direction, with vectors of each width.
TEST_P(MmaLinear, LargerLayersAgreeWithTheReference) {
  for (const LinearSpec& spec : {LinearSpec{.batch = 150, .inputs = 200, .outputs = 136, .relu = true},
                                 LinearSpec{.batch = 33, .inputs = 196, .outputs = 132, .relu = true},
                                 LinearSpec{.batch = 64, .inputs = 66, .outputs = 70, .bias = false},
                                 LinearSpec{.batch = 65, .inputs = 129, .outputs = 33},
                                 LinearSpec{.batch = 40, .inputs = 800, .outputs = 36, .relu = true},
                                 LinearSpec{.batch = 40, .inputs = 200, .outputs = 20, .image = {50, 2, 2}}}) {
    check(spec, Layout::nhwc);
    if (HasFatalFailure()) return;
  }
}

TEST_P(MmaLinear, NoSamplesHaveZeroGradients) {
  check_exact(LinearSpec{.batch = 0, .inputs = 20, .outputs = 10}, Layout::plain, GetParam());
}

std::string name_of_precision(const ::testing::TestParamInfo<Precision>& info) { return cuda::name_of(info.param); }
const auto every_precision = ::testing::Values(Precision::fp32, Precision::tf32, Precision::bf16);
INSTANTIATE_TEST_SUITE_P(In, Mma, every_precision, name_of_precision);
INSTANTIATE_TEST_SUITE_P(In, LargeMma, ::testing::Values(Precision::fp32, Precision::bf16), name_of_precision);
INSTANTIATE_TEST_SUITE_P(In, MmaLinear, every_precision, name_of_precision);

}  // namespace
}  // namespace ddp
