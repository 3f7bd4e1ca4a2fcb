#include "backend/op_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/device_values.h"
#include "base/error.h"

namespace ddp {
namespace {

using reference::Parameters;
using reference::Values;

using reference::Inputs;

// Random multiples of 1/16 up to `most`/16. Products and their sums are exact in fp32, and in bf16 below 1, so that
// ReLU and maximum decide as in double precision. The tolerance is left for kernels that transform (Winograd) or
// divide, and for the rounding of results.
Values exact_values(std::int64_t count, int most = 16) {
  std::uniform_int_distribution<int> sixteenths(-most, most);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) value = sixteenths(generator()) / 16.0;
  return values;
}

// Odd multiples of 1/512, so that no sum of products plus bias is zero, where rounding would decide ReLU; below 1, so
// that a sum of products that nearly cancels the bias is exact.
Values exact_biases(std::int64_t count) {
  Values values = exact_values(count, 14);
  for (double& value : values) value += 1.0 / 512;
  return values;
}

// Up to 8 for ReLU6, to exceed its upper limit: 128/16 and sums of two such values are exact in bf16.
int most_sixteenths(const OpSpec& spec) {
  return std::visit(
      [](const auto& s) {
        // Beyond all kinks.
        if constexpr (requires { s.function; }) return 128;
        if constexpr (requires { s.activation; }) return s.activation == Activation::relu6 ? 128 : 16;
        return 16;
      },
      spec);
}

// Moves channel means away from zero, if the element type can represent them, because a variance must not lose
// precision to the mean. The offset is limited: a mean of 100 in fp32 has an error of up to 4e-6, which the sum of the
// gradients multiplies. So is its ratio to the standard deviation, since normalised values, x * scale + shift, have an error of
// 2^-24 times this ratio: of a few values that are nearly the same it would exceed the tolerance.
void move_channels(const BatchNormSpec& s, Values& x) {
  constexpr double kMostDeviations = 64;
  const std::int64_t plane = s.shape.height * s.shape.width;
  for (std::int64_t c = 0; c < s.shape.channels; ++c) {
    std::vector<double*> channel;
    for (std::int64_t n = 0; n < s.batch; ++n) {
      for (std::int64_t i = 0; i < plane; ++i) {
        channel.push_back(&x[static_cast<std::size_t>((n * s.shape.channels + c) * plane + i)]);
      }
    }
    double sum = 0;
    double squares = 0;
    for (const double* value : channel) {
      sum += *value;
      squares += *value * *value;
    }
    const auto count = static_cast<double>(channel.size());
    const double variance = std::max(0.0, squares / count - sum * sum / count / count);
    const double mean = count > 0 ? sum / count : 0;
    const double wanted = mean + static_cast<double>(random_between(-1, 1) * random_between(0, 20));
    const double most = kMostDeviations * std::sqrt(variance + static_cast<double>(s.epsilon));
    const double offset = std::trunc(16 * (std::clamp(wanted, -most, most) - mean)) / 16;  // exact
    for (double* value : channel) *value += offset;
  }
}

// Random inputs for `spec`.
Inputs inputs_for(const OpSpec& spec, bool has_bf16) {
  const std::int64_t count = batch_of(spec) * input_of(spec).elements();
  Inputs in{.inputs = {exact_values(count, most_sixteenths(spec))},
            .parameters = {exact_values(parameter_elements(spec, 0)), exact_biases(parameter_elements(spec, 1)),
                           exact_biases(parameter_elements(spec, 2))}};
  for (std::size_t which = 1; std::cmp_less(which, inputs_of(spec)); ++which) {
    in.inputs.push_back(exact_values(batch_of(spec) * input_of(spec, which).elements(), most_sixteenths(spec)));
  }
  if (const auto* norm = std::get_if<BatchNormSpec>(&spec)) {
    if (!has_bf16) move_channels(*norm, in.x());
    in.statistics = random_values(norm->shape.channels);
    for (std::int64_t c = 0; c < norm->shape.channels; ++c) {
      in.statistics.push_back(static_cast<double>(random_between(1, 32)) / 16);
    }
    // Some values must exceed the upper limit of ReLU6.
    if (norm->activation == Activation::relu6) {
      for (double& bias : in.parameters.bias) bias += 4;
    }
  }
  for (std::int64_t n = 0; n < batch_of(spec); ++n) in.keys.push_back(generator()());
  return in;
}

// `terms`: the number of products of about 1 in each sum. Partial sums grow to sqrt(terms), and each addition rounds at
// that magnitude, even if they cancel in the end.
void expect_close(const Values& actual, const Values& expected, double tolerance, const std::string& what,
                  std::int64_t terms = 1) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double scale = std::sqrt(static_cast<double>(terms));
  for (const double value : expected) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * scale) << what << " at " << i;
  }
}

// The parameters in one flat buffer, at offsets as odd as in a model.
class FlatParameters {
 public:
  FlatParameters(Backend& backend, const Parameters& parameters)
      : parts_(place({parameters.weight.size(), parameters.bias.size(), parameters.input_bias.size()})),
        flat_(backend, flatten({&parameters.weight, &parameters.bias, &parameters.input_bias})) {}

  // Null if the parameter does not exist.
  float* at(std::size_t which) const {
    const Part& part = parts_.at(which);
    return part.count == 0 ? nullptr : flat_.data() + part.begin;
  }
  Parameters get() const {
    const std::vector<float> flat = flat_.get();
    const auto values = [&](const Part& part) {
      const auto from = flat.begin() + static_cast<std::ptrdiff_t>(part.begin);
      return Values(from, from + static_cast<std::ptrdiff_t>(part.count));
    };
    return {values(parts_[0]), values(parts_[1]), values(parts_[2])};
  }
  // Returns true if the memory around the parameters is unchanged.
  bool rest_is_untouched() const {
    const std::vector<float> flat = flat_.get();
    for (std::size_t i = 0; i < flat.size(); ++i) {
      const bool inside = std::any_of(parts_.begin(), parts_.end(),
                                      [&](const Part& part) { return i >= part.begin && i < part.begin + part.count; });
      if (!inside && flat[i] != kRest) return false;
    }
    return true;
  }

 private:
  static constexpr float kRest = 77;
  static constexpr std::size_t kTensors = 3;  // weight, bias and input bias
  struct Part {
    std::size_t begin, count;
  };
  using Parts = std::array<Part, kTensors>;

  static Parts place(const std::array<std::size_t, kTensors>& counts) {
    Parts parts{};
    std::size_t end = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      parts.at(i) = {end + static_cast<std::size_t>(random_between(0, 3)), counts.at(i)};
      end = parts.at(i).begin + counts.at(i);
    }
    return parts;
  }
  std::vector<float> flatten(const std::array<const Values*, kTensors>& parameters) const {
    std::vector<float> flat(parts_.back().begin + parts_.back().count + 3, kRest);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      std::transform(parameters.at(i)->begin(), parameters.at(i)->end(),
                     flat.begin() + static_cast<std::ptrdiff_t>(parts_.at(i).begin),
                     [](double value) { return static_cast<float>(value); });
    }
    return flat;
  }

  Parts parts_;
  DeviceArray<float> flat_;
};

// Workspace memory may contain anything, so garbage must not change a result.
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

std::vector<float> random_floats(std::int64_t count) {
  const Values values = random_values(count);
  return {values.begin(), values.end()};
}

ConvSpec random_conv(std::int64_t most_stride, std::int64_t most_groups) {
  ConvSpec s;
  s.batch = random_between(1, 40);
  s.window.height = random_between(1, 5);
  s.window.width = random_between(1, 5);
  s.groups = random_between(1, most_groups);
  const std::int64_t most_each = s.groups == 1 ? 13 : 5;
  s.input = {s.groups * random_between(1, (most_each + 1) / 2), random_between(6, 13), random_between(6, 13)};
  s.output_channels = s.groups * random_between(1, most_each);
  s.window.stride = random_between(1, most_stride);
  s.window.padding.top = random_between(0, s.window.height / 2);
  s.window.padding.left = random_between(0, s.window.width / 2);
  s.window.padding.bottom = random_between(0, s.window.height / 2);
  s.window.padding.right = random_between(0, s.window.width / 2);
  // Without bias, a sum of products can be zero, where the rounding of Winograd transforms would decide ReLU.
  s.bias = random_between(0, 3) != 0;
  s.relu = s.bias && random_between(0, 1) == 1;
  s.input_gradient = random_between(0, 3) != 0;
  const Shape out = s.convolved();
  s.average_pool = s.relu && out.height % 2 == 0 && out.width % 2 == 0;
  return s;
}

std::string describe(const ConvSpec& s) {
  return fmt::format("batch {} in {}x{}x{} out {}{} groups {}{}{}{}{}", s.batch, s.input.channels, s.input.height,
                     s.input.width, s.output_channels, Description().add(s.window).text(), s.groups,
                     s.bias ? "" : " without bias", s.relu ? " relu" : "", s.average_pool ? " pool" : "",
                     s.input_gradient ? "" : " without dx");
}

namespace {

// The largest factor by which an operator amplifies its values and gradients, and therefore rounding errors.
double steepness(const OpSpec& spec, const Inputs& in) {
  if (const auto* within = std::get_if<SampleNormSpec>(&spec)) {
    return std::max(1.0, reference::largest_factor(*within, in.x()));
  }
  const auto* norm = std::get_if<BatchNormSpec>(&spec);
  if (norm == nullptr || batch_of(spec) == 0) return 1;
  BatchNormSpec plain = *norm;
  plain.add = false;
  plain.activation = Activation::none;
  // y(1) - y(0) in evaluation with the batch's statistics: a momentum of 1 stores them (with n - 1 for n).
  plain.momentum = 1;
  const Values statistics = reference::forward(plain, in).statistics;
  double most = 1;
  const auto count = static_cast<double>(norm->batch * norm->shape.height * norm->shape.width);
  for (std::size_t c = 0; c < statistics.size() / 2; ++c) {
    const double variance = statistics[statistics.size() / 2 + c] * std::max(1.0, count - 1) / count;
    most = std::max(most, 1 / std::sqrt(variance + static_cast<double>(norm->epsilon)));
  }
  return most;
}

// All memory for running one operator on a device.
class Run {
 public:
  Run(const OpCheck& check, const Inputs& in)
      : check_(check),
        x(activations()),
        y(check.backend, batch(), output_of(check.spec), check.y_layout),
        dx(activations()),
        dy(check.backend, batch(), output_of(check.spec), check.y_layout),
        values(check.backend, in.parameters),
        gradients(check.backend, {Values(in.parameters.weight.size()), Values(in.parameters.bias.size()),
                                  Values(in.parameters.input_bias.size())}),
        statistics(check.backend, std::vector<float>(in.statistics.begin(), in.statistics.end())),
        keys_(check.backend, in.keys),
        saved_(check.backend, check.op.traits().saved_bytes) {
    set_inputs(in);
    for (DeviceActivation& each : dx) each.fill(kGarbage);
  }

  // Padding samples hold a finite value.
  void set_inputs(const Inputs& in) {
    for (std::size_t which = 0; which < x.size(); ++which) x[which].set(in.inputs[which], check_.active, kGarbage);
  }
  // Returns true if result memory is as it was before the operator ran.
  static bool untouched(const DeviceActivation& result) {
    const std::vector<float> values = result.stored();
    return std::all_of(values.begin(), values.end(), [](float value) { return value == kGarbage; });
  }

  void forward(bool training, Activations result) {
    const Garbage workspace(check_.backend, check_.op.traits().workspace_bytes);
    const std::vector<ConstActivations> all = inputs();
    check_.op.forward({.inputs = ArgumentList<ConstActivations>(std::span<const ConstActivations>(all)),
                       .y = result,
                       .parameters = parameters(),
                       .saved = saved_.data(),
                       .workspace = workspace.data(),
                       .active = check_.active,
                       .statistics = statistics.data(),
                       .keys = training ? keys_.data() : nullptr,
                       .training = training});
  }

  // Tensors that the operator claims not to read hold garbage.
  void backward(Activations gradient, bool add = false) {
    const Garbage workspace(check_.backend, check_.op.traits().workspace_bytes);
    for (std::size_t which = 0; which < x.size(); ++which) {
      if (!check_.op.traits().reads_input(which)) x[which].fill(kGarbage);
    }
    if (!check_.op.traits().backward_reads_y) y.fill(kGarbage);
    std::vector<Activations> results = {gradient};
    for (std::size_t which = 1; which < dx.size(); ++which) results.push_back(dx[which].data());
    const std::vector<ConstActivations> all = inputs();
    check_.op.backward({.inputs = ArgumentList<ConstActivations>(std::span<const ConstActivations>(all)),
                        .y = y.data(),
                        .dy = dy.data(),
                        .input_gradients = ArgumentList<Activations>(std::span<const Activations>(results)),
                        .parameters = parameters(),
                        .parameter_gradients = {gradients.at(0), gradients.at(1), gradients.at(2)},
                        .saved = saved_.data(),
                        .workspace = workspace.data(),
                        .active = check_.active,
                        .add_to_dx = add,
                        .keys = keys_.data()});
  }

 private:
  static constexpr float kGarbage = 3.5;

  std::int64_t batch() const { return batch_of(check_.spec); }
  // One for each input.
  std::vector<DeviceActivation> activations() const {
    std::vector<DeviceActivation> all;
    for (std::size_t which = 0; std::cmp_less(which, inputs_of(check_.spec)); ++which) {
      all.emplace_back(check_.backend, batch(), input_of(check_.spec, which), check_.x_layout);
    }
    return all;
  }
  std::vector<ConstActivations> inputs() const {
    std::vector<ConstActivations> all;
    for (const DeviceActivation& each : x) all.emplace_back(each.data());
    return all;
  }
  ArgumentList<const float*> parameters() const { return {values.at(0), values.at(1), values.at(2)}; }

  const OpCheck& check_;

 public:
  std::vector<DeviceActivation> x;
  DeviceActivation y;
  std::vector<DeviceActivation> dx;
  DeviceActivation dy;
  FlatParameters values, gradients;
  DeviceArray<float> statistics;

 private:
  DeviceArray<std::uint64_t> keys_;
  Garbage saved_;
};

class Comparison {
 public:
  Comparison(const OpCheck& check, double steepness) : check_(check), steepness_(steepness) {}

  void close(const Values& actual, const Values& wanted, const char* of, std::int64_t terms = 1) const {
    if (testing::Test::HasFatalFailure()) return;
    expect_close(actual, wanted, check_.tolerance * steepness_, check_.what + " " + of, terms);
  }
  // An input gradient must be zero for padding samples.
  void gradient(const DeviceActivation& actual, const Values& wanted, const std::string& of) const {
    if (testing::Test::HasFatalFailure()) return;
    expect_close(actual.get(check_.active), wanted, check_.tolerance * steepness_, check_.what + " " + of);
    EXPECT_TRUE(actual.zero_from(check_.active)) << check_.what << " " << of << " beyond the active samples";
  }
  // Those of all inputs.
  void gradients(const std::vector<DeviceActivation>& actual, const std::vector<Values>& wanted,
                 std::string_view how) const {
    for (std::size_t which = 0; which < actual.size(); ++which) {
      gradient(actual[which], wanted.at(which), fmt::format("the gradient of input {} {}", which, how));
    }
  }

 private:
  const OpCheck& check_;
  double steepness_;
};

// An operator that supports in-place execution must compute the same result in place.
void check_in_place(const OpCheck& check, Run& run, const Inputs& in, const reference::Outputs& wanted,
                    const reference::Gradients& gradients, const Comparison& compare) {
  if (!check.op.traits().in_place) return;
  run.set_inputs(in);
  run.forward(true, run.x[0].data());
  // The result has the shape and layout of y, although it is stored in x.
  run.y.set_stored(run.x[0].stored());
  compare.close(run.y.get(check.active), wanted.y, "y in place");
  run.backward(run.dy.data());
  run.dx[0].set_stored(run.dy.stored());
  compare.gradients(run.dx, gradients.inputs, "in place");
}

// An operator that can add its input gradient to another one must do so.
void check_adding(const OpCheck& check, Run& run, const Inputs& in, const reference::Gradients& gradients,
                  const Comparison& compare) {
  if (!check.op.traits().adds_to_dx || testing::Test::HasFatalFailure()) return;
  Values earlier = exact_values(static_cast<std::int64_t>(gradients.dx().size()));
  run.set_inputs(in);
  run.forward(true, run.y.data());
  run.dx[0].set(earlier, check.active);
  run.backward(run.dx[0].data(), true);
  for (std::size_t i = 0; i < earlier.size(); ++i) earlier[i] += gradients.dx()[i];
  compare.gradient(run.dx[0], earlier, "dx added to a gradient");
}

// The operator for the active samples only.
OpSpec active_part(const OpCheck& check) {
  OpSpec part = check.spec;
  std::visit([&](auto& s) { s.batch = check.active; }, part);
  return part;
}

}  // namespace

void check_op(const OpCheck& check, const Inputs& in, const Values& dy, const Expected& expected) {
  const OpSpec part = active_part(check);
  const Shape out = output_of(part);
  const auto& [wanted, gradients, y_in_evaluation] = expected;
  const Comparison compare(check, steepness(part, in));

  Run run(check, in);
  run.dy.set(dy, check.active);
  run.forward(true, run.y.data());
  compare.close(run.y.get(check.active), wanted.y, "y");
  const std::vector<float> statistics = run.statistics.get();
  const auto half = static_cast<std::ptrdiff_t>(statistics.size() / 2);
  compare.close(Values(statistics.begin(), statistics.begin() + half),
                Values(wanted.statistics.begin(), wanted.statistics.begin() + half), "running means");
  compare.close(Values(statistics.begin() + half, statistics.end()),
                Values(wanted.statistics.begin() + half, wanted.statistics.end()), "running variances");
  run.backward(run.dx[0].data());
  if (has_input_gradient(part)) {
    compare.gradients(run.dx, gradients.inputs, "");
  } else {
    EXPECT_TRUE(Run::untouched(run.dx[0])) << check.what << " wrote dx, which it does not have";
  }
  const Parameters computed = run.gradients.get();
  const std::int64_t terms = check.active * out.height * out.width;
  compare.close(computed.weight, gradients.parameters.weight, "dw", terms);
  compare.close(computed.bias, gradients.parameters.bias, "db", terms);
  EXPECT_EQ(computed.input_bias, Values(in.parameters.input_bias.size())) << check.what << " d(input bias)";
  compare.close(computed.input_bias, gradients.parameters.input_bias, "d(input bias)", terms);
  EXPECT_TRUE(run.gradients.rest_is_untouched()) << check.what << " wrote beside the gradients";
  EXPECT_TRUE(run.values.rest_is_untouched()) << check.what << " wrote beside the parameters";

  check_in_place(check, run, in, wanted, gradients, compare);
  check_adding(check, run, in, gradients, compare);
  run.statistics.set(statistics);
  run.set_inputs(in);
  run.forward(false, run.y.data());
  compare.close(run.y.get(check.active), y_in_evaluation, "y in evaluation");
  EXPECT_EQ(run.statistics.get(), statistics) << check.what << " changed its statistics in evaluation";
}

void check_op(const OpCheck& check) {
  const OpSpec part = active_part(check);
  Inputs in = inputs_for(part, check.backend.ops().traits().activation_element != Element::fp32);
  Values dy = exact_values(check.active * output_of(part).elements());
  const std::vector<bool> near = reference::near_kinks(part, in, std::max(1e-3, 5 * check.tolerance));
  for (std::size_t i = 0; i < near.size(); ++i) dy[i] = near[i] ? 0 : dy[i];
  Expected expected{reference::forward(part, in), reference::backward(part, in, dy), {}};
  Inputs later = in;
  later.training = false;
  later.statistics = expected.forward.statistics;
  expected.y_in_evaluation = reference::forward(part, later).y;
  check_op(check, in, dy, expected);
}

}  // namespace ddp
