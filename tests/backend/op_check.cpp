#include "backend/op_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/device_values.h"
#include "base/error.h"

namespace ddp {
namespace {

using reference::Parameters;
using reference::Values;

// Random multiples of 1/16 up to `most` of them: products and their sums are exact in fp32, and in bf16 below 1, so
// that ReLU and maxima decide alike there and in double. What is left of the tolerance is for kernels that transform
// (Winograd) or divide, and for the rounding of results.
Values exact_values(std::int64_t count, int most = 16) {
  std::uniform_int_distribution<int> sixteenths(-most, most);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) value = sixteenths(generator()) / 16.0;
  return values;
}

// Biases an odd multiple of 1/512, so that no sum of products and bias is zero, where rounding would decide about ReLU;
// below 1, so that a sum of products that bias cancels nearly is exact.
Values exact_biases(std::int64_t count) {
  Values values = exact_values(count, 14);
  for (double& value : values) value += 1.0 / 512;
  return values;
}

// `terms`: how many products of about 1 each value is the sum of. Partial sums grow to sqrt(terms), and each addition
// rounds at that size, also where they cancel in the end.
void expect_close(const Values& actual, const Values& expected, double tolerance, const std::string& what,
                  std::int64_t terms = 1) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double scale = std::sqrt(static_cast<double>(terms));
  for (const double value : expected) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * scale) << what << " at " << i;
  }
}

// Weight and bias in one flat buffer, at places as odd as in a model's.
class FlatParameters {
 public:
  FlatParameters(Backend& backend, const Parameters& parameters)
      : weights_(static_cast<std::size_t>(random_between(0, 3))),
        bias_(weights_ + parameters.weight.size() + static_cast<std::size_t>(random_between(0, 3))),
        weight_count_(parameters.weight.size()),
        bias_count_(parameters.bias.size()),
        flat_(backend, flatten(parameters)) {}

  float* weights() const { return flat_.data() + weights_; }
  float* bias() const { return flat_.data() + bias_; }
  Parameters get() const {
    const std::vector<float> flat = flat_.get();
    const auto part = [&](std::size_t begin, std::size_t count) {
      const auto from = flat.begin() + static_cast<std::ptrdiff_t>(begin);
      return Values(from, from + static_cast<std::ptrdiff_t>(count));
    };
    return {part(weights_, weight_count_), part(bias_, bias_count_)};
  }
  // Whether what lies around weight and bias is still what was put there.
  bool rest_is_untouched() const {
    const std::vector<float> flat = flat_.get();
    for (std::size_t i = 0; i < flat.size(); ++i) {
      const bool inside = (i >= weights_ && i < weights_ + weight_count_) || (i >= bias_ && i < bias_ + bias_count_);
      if (!inside && flat[i] != kRest) return false;
    }
    return true;
  }

 private:
  static constexpr float kRest = 77;

  std::vector<float> flatten(const Parameters& parameters) const {
    std::vector<float> flat(bias_ + bias_count_ + 3, kRest);
    const auto put = [&](const Values& values, std::size_t begin) {
      std::transform(values.begin(), values.end(), flat.begin() + static_cast<std::ptrdiff_t>(begin),
                     [](double value) { return static_cast<float>(value); });
    };
    put(parameters.weight, weights_);
    put(parameters.bias, bias_);
    return flat;
  }

  std::size_t weights_;
  std::size_t bias_;
  std::size_t weight_count_;
  std::size_t bias_count_;
  DeviceArray<float> flat_;
};

// What lies in memory that is handed in is anything: garbage must not change a result.
class Garbage {
 public:
  Garbage(Backend& backend, std::size_t bytes) : array_(backend, std::vector<std::uint8_t>(bytes, 0x7F)) {}
  std::byte* data() const { return static_cast<std::byte*>(static_cast<void*>(array_.data())); }

 private:
  DeviceArray<std::uint8_t> array_;
};

}  // namespace

std::mt19937_64& generator() {
  static std::mt19937_64 engine{std::random_device{}()};
  return engine;
}

std::int64_t random_between(std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(generator());
}

Values random_values(std::int64_t count) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) value = static_cast<double>(uniform(generator()));
  return values;
}

ConvSpec random_conv(std::int64_t most_stride) {
  ConvSpec s;
  s.batch = random_between(1, 40);
  s.kernel_h = random_between(1, 5);
  s.kernel_w = random_between(1, 5);
  s.input = {random_between(1, 7), random_between(6, 13), random_between(6, 13)};
  s.output_channels = random_between(1, 13);
  s.stride = random_between(1, most_stride);
  s.pad_top = random_between(0, s.kernel_h / 2);
  s.pad_left = random_between(0, s.kernel_w / 2);
  s.pad_bottom = random_between(0, s.kernel_h / 2);
  s.pad_right = random_between(0, s.kernel_w / 2);
  s.relu = random_between(0, 1) == 1;
  s.input_gradient = random_between(0, 3) != 0;
  const Shape out = s.convolved();
  s.average_pool = s.relu && out.height % 2 == 0 && out.width % 2 == 0;
  return s;
}

std::string describe(const ConvSpec& s) {
  return fmt::format("batch {} in {}x{}x{} out {} kernel {}x{} stride {} pads {}{}{}{}{}{}{}", s.batch,
                     s.input.channels, s.input.height, s.input.width, s.output_channels, s.kernel_h, s.kernel_w,
                     s.stride, s.pad_top, s.pad_left, s.pad_bottom, s.pad_right, s.relu ? " relu" : "",
                     s.average_pool ? " pool" : "", s.input_gradient ? "" : " without dx");
}

void check_op(const OpCheck& check) {
  const OpSpec& spec = check.spec;
  Backend& backend = check.backend;
  OpSpec part = spec;
  std::visit([&](auto& s) { s.batch = check.active; }, part);
  const std::int64_t batch = batch_of(spec);
  const Shape in = input_of(spec);
  const Shape out = output_of(spec);
  const Values x = exact_values(check.active * in.elements());
  const Values dy = exact_values(check.active * out.elements());
  const Parameters parameters{exact_values(reference::weight_count(spec)), exact_biases(reference::bias_count(spec))};
  const bool input_gradient = std::visit(
      [](const auto& s) {
        if constexpr (requires { s.input_gradient; }) return s.input_gradient;
        return true;
      },
      spec);

  DeviceActivation x_device(backend, batch, in, check.x_layout);
  DeviceActivation y_device(backend, batch, out, check.y_layout);
  DeviceActivation dx_device(backend, batch, in, check.x_layout);
  DeviceActivation dy_device(backend, batch, out, check.y_layout);
  const FlatParameters values(backend, parameters);
  const FlatParameters gradients(backend, {Values(parameters.weight.size()), Values(parameters.bias.size())});
  const Garbage saved(backend, check.op.saved_bytes());
  const Garbage forward_workspace(backend, check.op.workspace_bytes());
  const Garbage backward_workspace(backend, check.op.workspace_bytes());
  x_device.set(x, check.active);
  dy_device.set(dy, check.active);
  dx_device.fill(99);

  check.op.forward({x_device.data(),
                    y_device.data(),
                    {values.weights(), values.bias()},
                    saved.data(),
                    forward_workspace.data(),
                    check.active});
  check.op.backward({x_device.data(),
                     y_device.data(),
                     dy_device.data(),
                     dx_device.data(),
                     {values.weights(), values.bias()},
                     {gradients.weights(), gradients.bias()},
                     saved.data(),
                     backward_workspace.data(),
                     check.active});

  const reference::Gradients expected = reference::backward(part, x, dy, parameters);
  const std::int64_t terms = check.active * out.height * out.width;
  const auto close = [&](const Values& actual, const Values& wanted, const char* of, std::int64_t sum_of = 1) {
    if (!testing::Test::HasFatalFailure()) {
      expect_close(actual, wanted, check.tolerance, check.what + " " + of, sum_of);
    }
  };
  close(y_device.get(check.active), reference::forward(part, x, parameters), "y");
  if (input_gradient) close(dx_device.get(check.active), expected.dx, "dx");
  const Parameters computed = gradients.get();
  close(computed.weight, expected.parameters.weight, "dw", terms);
  close(computed.bias, expected.parameters.bias, "db", terms);
  EXPECT_TRUE(gradients.rest_is_untouched()) << check.what << " wrote beside the gradients";
  EXPECT_TRUE(values.rest_is_untouched()) << check.what << " wrote beside the parameters";
}

}  // namespace ddp
