#include "backend/joined_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace ddp {

using reference::Values;

std::string describe(const std::vector<OpSpec>& specs) {
  std::string text;
  for (const OpSpec& spec : specs) text += (text.empty() ? "" : ", ") + describe(spec);
  return text;
}

double size_of(const Values& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

void expect_near(const Values& actual, const Values& expected, double most, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  Values apart = actual;
  for (std::size_t i = 0; i < expected.size(); ++i) apart[i] -= expected[i];
  EXPECT_LE(size_of(apart), most) << what;
}

Values widened(const std::vector<float>& values) { return {values.begin(), values.end()}; }

JoinedReference::JoinedReference(std::vector<OpSpec> specs, std::int64_t active)
    : specs_(std::move(specs)), inputs_(specs_.size()) {
  for (OpSpec& spec : specs_) std::visit([&](auto& s) { s.batch = active; }, spec);
}

Values JoinedReference::forward(const JoinedValues& values, bool training) {
  Values between = values.inputs.front();
  statistics_.clear();
  std::size_t p = 0;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const bool norm = std::holds_alternative<BatchNormSpec>(specs_[i]);
    inputs_[i] = {.inputs = {between}, .training = training};
    if (i + 1 == specs_.size()) {
      inputs_[i].inputs.insert(inputs_[i].inputs.end(), values.inputs.begin() + 1, values.inputs.end());
    }
    inputs_[i].parameters.weight = values.parameters[p++];
    if (norm) {
      inputs_[i].parameters.bias = values.parameters[p++];
      inputs_[i].statistics = values.statistics.at(statistics_.size());
    }
    const reference::Outputs out = reference::forward(specs_[i], inputs_[i]);
    between = out.y;
    if (norm) statistics_.push_back(out.statistics);
  }
  return between;
}

Values JoinedReference::without_kinks(Values dy, double distance) const {
  const std::vector<bool> near = reference::near_kinks(specs_.back(), inputs_.back(), distance);
  for (std::size_t i = 0; i < near.size(); ++i) dy[i] = near[i] ? 0 : dy[i];
  return dy;
}

JoinedReference::Gradients JoinedReference::backward(const Values& dy) const {
  Gradients all;
  Values gradient = dy;
  for (std::size_t i = specs_.size(); i-- > 0;) {
    const reference::Gradients g = reference::backward(specs_[i], inputs_[i], gradient);
    double size = size_of(gradient);
    const auto* conv = std::get_if<ConvSpec>(&specs_[i]);
    if (conv != nullptr && conv->groups == 1) {
      const Values& x = inputs_[i].x();
      const double places = static_cast<double>(x.size()) / static_cast<double>(conv->input.channels);
      size *= std::max(1.0, size_of(x) / std::sqrt(places));
    }
    if (!g.parameters.bias.empty()) all.parameters.push_back({g.parameters.bias, size});
    all.parameters.push_back({g.parameters.weight, size});
    if (i + 1 == specs_.size()) all.further.assign(g.inputs.begin() + 1, g.inputs.end());
    gradient = g.dx();
  }
  std::reverse(all.parameters.begin(), all.parameters.end());
  all.dx = {gradient, size_of(gradient)};
  return all;
}

namespace {

std::vector<DeviceActivation> inputs_of(Backend& backend, const std::vector<OpSpec>& specs, Layout layout) {
  std::vector<DeviceActivation> all;
  for (const Shape& shape : input_shapes(specs)) all.emplace_back(backend, batch_of(specs.front()), shape, layout);
  return all;
}

template <class Argument>
std::vector<Argument> arguments_of(const std::vector<DeviceActivation>& all) {
  std::vector<Argument> arguments;
  for (const DeviceActivation& each : all) arguments.emplace_back(each.data());
  return arguments;
}

std::byte* bytes(const std::vector<DeviceArray<std::uint8_t>>& memory) {
  return static_cast<std::byte*>(static_cast<void*>(memory.front().data()));
}

}  // namespace

JoinedDevice::JoinedDevice(Backend& backend, const std::vector<OpSpec>& specs, Layout layout, std::int64_t active)
    : specs_(specs),
      op_(backend.ops().join(specs, layout)),
      active_(active),
      x(inputs_of(backend, specs, layout)),
      dx(inputs_of(backend, specs, layout)),
      y(backend, batch_of(specs.front()), output_of(specs.back()), layout),
      dy(backend, batch_of(specs.front()), output_of(specs.back()), layout) {
  std::vector<float> running;
  for (const OpSpec& spec : specs) {
    for (std::size_t p = 0; p < 3; ++p) {
      const std::int64_t count = parameter_elements(spec, p);
      if (count == 0) continue;
      parameters.emplace_back(backend, random_floats(count));
      gradients.emplace_back(backend, std::vector<float>(static_cast<std::size_t>(count), NAN));
    }
    for (const float value : random_floats(statistic_elements(spec))) running.push_back(std::abs(value) + 0.5F);
  }
  statistics.emplace_back(backend, running);
  saved_.emplace_back(backend, std::vector<std::uint8_t>(op_->traits().saved_bytes, 0xFF));
  workspace_.emplace_back(backend, std::vector<std::uint8_t>(op_->traits().workspace_bytes, 0xFF));
  const std::vector<Shape> shapes = input_shapes(specs);
  for (std::size_t i = 0; i < x.size(); ++i) x[i].set(random_values(active * shapes[i].elements()), active, 5);
  y.fill(NAN);
  for (DeviceActivation& each : dx) each.fill(NAN);
}

void JoinedDevice::forward(bool training) {
  const auto inputs = arguments_of<ConstActivations>(x);
  ForwardArguments a{.inputs = ArgumentList<ConstActivations>(std::span<const ConstActivations>(inputs)),
                     .y = y.data(),
                     .saved = bytes(saved_),
                     .workspace = bytes(workspace_)};
  a.active = active_;
  a.statistics = statistics.front().data();
  a.training = training;
  const auto values = pointers<const float*>(parameters);
  a.parameters = ArgumentList<const float*>(std::span<const float* const>(values));
  op_->forward(a);
}

void JoinedDevice::backward(bool add) {
  const auto inputs = arguments_of<ConstActivations>(x);
  const auto input_gradients = arguments_of<Activations>(dx);
  BackwardArguments a{.inputs = ArgumentList<ConstActivations>(std::span<const ConstActivations>(inputs)),
                      .y = y.data(),
                      .dy = dy.data(),
                      .input_gradients = ArgumentList<Activations>(std::span<const Activations>(input_gradients))};
  a.add_to_dx = add;
  a.saved = bytes(saved_);
  a.workspace = bytes(workspace_);
  a.active = active_;
  const auto values = pointers<const float*>(parameters);
  const auto results = pointers<float*>(gradients);
  a.parameters = ArgumentList<const float*>(std::span<const float* const>(values));
  a.parameter_gradients = ArgumentList<float*>(std::span<float* const>(results));
  op_->backward(a);
}

JoinedValues JoinedDevice::values() const {
  JoinedValues values;
  for (const DeviceActivation& each : x) values.inputs.push_back(each.get(active_));
  for (const DeviceArray<float>& p : parameters) values.parameters.push_back(widened(p.get()));
  const std::vector<float> running = statistics.front().get();
  auto begin = running.begin();
  for (const OpSpec& spec : specs_) {
    const auto end = begin + statistic_elements(spec);
    if (end != begin) values.statistics.emplace_back(begin, end);
    begin = end;
  }
  return values;
}

void avoid_kinks(JoinedDevice& device, BatchNormSpec spec, std::int64_t active) {
  spec.batch = active;
  const JoinedValues values = device.values();
  reference::Inputs in{.parameters = {values.parameters[0], values.parameters[1]}, .statistics = values.statistics[0]};
  for (bool any = true; any;) {
    in.x() = device.x[0].get(active);
    const std::vector<bool> near = reference::near_kinks(OpSpec{spec}, in, 1e-4);
    any = std::find(near.begin(), near.end(), true) != near.end();
    for (std::size_t i = 0; i < near.size(); ++i) in.x()[i] = near[i] ? random_values(1).front() : in.x()[i];
    if (any) device.x[0].set(in.x(), active, 5);
  }
}

}  // namespace ddp
