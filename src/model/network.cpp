#include "model/network.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/status/heartbeat.h"
#include "model/cuts.h"
#include "model/joins.h"

namespace ddp {
namespace {

// Bytes of plain gradients that are converted at once; see Note [Packed weights].
constexpr std::int64_t kPackedBytes = std::int64_t{8} << 20U;

}  // namespace

Network::Network(Backend& backend, const Graph& graph, const NetworkConfig& config, const LayoutPlan& plan)
    : backend_(backend), parameters_(graph.parameters()), config_(config) {
  std::vector<Stage> stages = make_stages(graph, config_.batch, backend_.ops().traits().takes_bias_into_norm);
  DDP_ASSERT(stages.size() == plan.stages.size());
  if (config_.forward_only) {
    // As if no parameter were trained; the loss still writes the gradient of the logits.
    for (std::size_t s = 0; s + 1 < stages.size(); ++s) stages[s].backward = false;
  }
  if (config_.stages == Range{}) config_.stages = {0, std::ssize(stages)};
  held_ = parameters_of(graph, stages, config_.stages);
  has_loss_ = config_.stages.end == std::ssize(stages);
  build_steps(graph, stages, plan);
  plan_packing();
  packings_.reserve(steps_.size());
  const Value& images = values_.front();
  if (first_part()) {
    const InputSpec input{config.batch, images.shape,         config.image, config.scale,
                          config.shift, config.edits_reflect, config.fill};
    input_ = backend_.ops().make_op(input, images.layout, images.layout, "");
  }
  loss_spec_ = {config.batch, graph.classes(), config.label_smoothing};
  const Layout logits = values_.back().layout;
  if (has_loss_) loss_ = backend_.ops().make_op(loss_spec_, logits, logits, "");
  plan_memory();
}

// Adds a step that computes a new value in layout `out`; returns the value.
std::size_t Network::add_step(Step step, Layout out) {
  const auto index = static_cast<int>(steps_.size());
  try {
    if (step.op == nullptr) {
      step.op = backend_.ops().make_op(step.specs.front(), values_[step.inputs.front()].layout, out, step.kernels);
    }
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("layer {}: {}", step.name, error.what()));
  }
  step.traits = step.op->traits();
  for (const std::size_t input : step.inputs) values_[input].readers.push_back(index);
  step.output = values_.size();
  values_.push_back({step.last, output_of(step.specs.back()), out, index, step.backward, {}, nullptr, nullptr});
  steps_.push_back(std::move(step));
  return values_.size() - 1;
}

// The value converted to another layout; readers with the same layout share the conversion.
std::size_t Network::in_layout(std::size_t value, Layout layout, std::size_t stage) {
  if (values_[value].layout == layout) return value;
  for (const int reader : values_[value].readers) {
    const Step& step = steps_[static_cast<std::size_t>(reader)];
    if (std::holds_alternative<ReorderSpec>(step.specs.front()) && values_[step.output].layout == layout)
      return step.output;
  }
  Step step;
  step.name = step.last = "reorder";
  step.stages = {static_cast<std::int64_t>(stage), static_cast<std::int64_t>(stage)};
  step.specs = {ReorderSpec{config_.batch, values_[value].shape}};
  step.inputs = {value};
  step.backward = values_[value].has_gradient;
  return add_step(std::move(step), layout);
}

// Makes one operator of the stages from `first` on, if the backend has one for some and the plan gives all the same layout
// and does not find them faster separately; otherwise the step is left as it is.
void Network::join(const std::vector<Stage>& stages, const LayoutPlan& plan, std::size_t first, Step& step) const {
  const Layout layout = plan.stages[first].layout;
  std::size_t most = 1;
  while (most < kMostJoined && first + most < stages.size() && !plan.stages[first + most - 1].separate) ++most;
  const std::size_t count = joined_stages(backend_.ops(), stages, first, layout, most);
  for (std::size_t s = first + 1; s < first + count; ++s) {
    if (plan.stages[s].layout != layout) return;
  }
  if (count == 1 || static_cast<std::int64_t>(first + count) > config_.stages.end) return;
  std::vector<std::string> kernels;
  for (std::size_t s = first; s < first + count; ++s) kernels.push_back(plan.stages[s].kernels);
  std::vector<OpSpec> specs = specs_of(stages, first, count);
  std::unique_ptr<Op> op = backend_.ops().join(specs, layout, kernels);
  if (op == nullptr) return;
  step.specs = std::move(specs);
  step.op = std::move(op);
  for (std::size_t s = first + 1; s < first + count; ++s) {
    step.parameters.insert(step.parameters.end(), stages[s].parameters.begin(), stages[s].parameters.end());
    if (step.statistics < 0) step.statistics = stages[s].statistics;
  }
  step.last = stages[first + count - 1].name;
  step.kernels = "joined";
}

void Network::build_steps(const Graph& graph, const std::vector<Stage>& stages, const LayoutPlan& plan) {
  const auto first = static_cast<std::size_t>(config_.stages.begin);
  const auto end = static_cast<std::size_t>(config_.stages.end);
  if (first == 0) {
    // The images have the layout of their first reader.
    values_.push_back({"input", cropped_input(graph), plan.stages.front().layout, -1, false, {}, nullptr, nullptr});
  } else {
    const Stage& before = stages[first - 1];
    values_.push_back({before.name,
                       output_of(before.spec),
                       plan.stages[first - 1].layout,
                       -1,
                       before.backward,
                       {},
                       nullptr,
                       nullptr});
  }
  std::vector<std::size_t> outputs;  // of the stages from `first` on
  while (first + outputs.size() < end) {
    const std::size_t s = first + outputs.size();
    const Stage& stage = stages[s];
    Step step;
    step.name = step.last = stage.name;
    step.specs = {stage.spec};
    step.parameters = stage.parameters;
    step.statistics = stage.statistics;
    step.backward = stage.backward;
    step.kernels = plan.stages[s].kernels;
    const auto read = [&](const StageInput& input) {
      DDP_ASSERT(input.stage + 1 >= static_cast<int>(first));
      const auto before = static_cast<std::size_t>(input.stage + 1) - first;  // 0: the input
      step.inputs.push_back(in_layout(before == 0 ? 0 : outputs[before - 1], plan.stages[s].layout, s));
    };
    for (const StageInput& input : stage.inputs) read(input);
    if (config_.join) join(stages, plan, s, step);
    // No stage reads what lies between joined ones.
    const std::size_t count = step.specs.size();
    const Stage& last = stages[s + count - 1];
    for (std::size_t i = 1; count > 1 && i < last.inputs.size(); ++i) read(last.inputs[i]);
    step.stages = {static_cast<std::int64_t>(s), static_cast<std::int64_t>(s + count)};
    const std::size_t output = add_step(std::move(step), plan.stages[s].layout);
    outputs.resize(outputs.size() + count, output);
  }
  if (has_loss_ && !writes_vectors(stages[end - 1].spec, values_.back().layout)) {
    in_layout(values_.size() - 1, kLayoutOfReorderedLogits, end - 1);
  }
  for (std::size_t v = 0; v + 1 < values_.size(); ++v) DDP_ASSERT(!values_[v].readers.empty());
}

void Network::plan_packing() {
  finished_after_.resize(steps_.size());
  const auto count = static_cast<int>(steps_.size());
  for (int last = count - 1; last >= 0;) {
    int first = last;
    std::int64_t bytes = 0;
    const auto add = [&] {
      const std::optional<PackedShape> packed = steps_[static_cast<std::size_t>(first)].traits.packed_form;
      if (packed && packed->packs_gradient()) bytes += packed->weights() * static_cast<std::int64_t>(sizeof(float));
    };
    for (add(); bytes > 0 && bytes < kPackedBytes && first > 0; add()) --first;
    for (int i = first; i <= last; ++i) finished_after_[static_cast<std::size_t>(i)] = first;
    last = first - 1;
  }
}

std::size_t Network::elements_of(const Value& value) const {
  return static_cast<std::size_t>(stored_elements(config_.batch, value.shape, value.layout));
}

std::string Network::describe() const {
  const auto shape = [](const Shape& s) { return fmt::format("{}x{}x{}", s.channels, s.height, s.width); };
  std::size_t widest = 10;
  for (const Step& step : steps_) widest = std::max(widest, step.name.size());
  std::string text;
  for (const Step& step : steps_) {
    const OpSpec& first = step.specs.front();
    text += fmt::format("{:<{}} {:<10} {:>11} -> {:<11} {:<9} {}\n", step.name, widest, kind_of(first),
                        shape(input_of(first)), shape(output_of(step.specs.back())),
                        to_string(values_[step.output].layout), step.kernels);
  }
  return text;
}

OpTraffic Network::traffic_of(int index, const StageWork& work) const {
  const Step& step = steps_[static_cast<std::size_t>(index)];
  OpTraffic traffic = step.traits.traffic.value_or(OpTraffic{{1, work.forward_bytes}, {1, work.backward_bytes}});
  if (!step.backward) traffic.backward = {};
  if (!step.backward || !has_input_gradient(step.specs.front())) return traffic;
  if (adds_in_place(index)) {
    traffic.backward += {0, static_cast<double>(bytes_of(values_[step.inputs.front()]))};
    if (traffic.backward_adding) traffic.backward = *traffic.backward_adding;
  }
  for (std::size_t k = 0; k < step.inputs.size(); ++k) {
    const Value& value = values_[step.inputs[k]];
    // The kernel that adds reads both and writes one of them.
    if (value.producer >= 0 && writes_aside(index, k)) {
      traffic.backward += {1, 3 * static_cast<double>(bytes_of(value))};
    }
  }
  return traffic;
}

std::vector<StageWork> Network::work() const {
  std::vector<StageWork> all;
  for (const Step& step : steps_) {
    double inputs = 0;
    double read_again = 0;  // by backward
    for (std::size_t which = 0; which < step.inputs.size(); ++which) {
      const auto bytes = static_cast<double>(bytes_of(values_[step.inputs[which]]));
      inputs += bytes;
      if (step.traits.reads_input(which)) read_again += bytes;
    }
    const auto output = static_cast<double>(bytes_of(values_[step.output]));
    double parameters = 0;
    for (const int p : step.parameters) {
      parameters += sizeof(float) * static_cast<double>(parameters_[static_cast<std::size_t>(p)].elements());
    }
    const bool input_gradient = has_input_gradient(step.specs.front());
    double flops = 0;
    for (const OpSpec& spec : step.specs) flops += 2 * forward_multiply_adds(spec);
    all.push_back({.name = step.name,
                   .kind = kind_of(step.specs.front()),
                   .layout = values_[step.output].layout,
                   .forward_flops = flops,
                   .backward_flops = step.backward ? flops * (input_gradient ? 2 : 1) : 0,
                   .forward_bytes = inputs + output + parameters,
                   // Parameters are read, and their gradients written.
                   .backward_bytes = !step.backward
                                         ? 0
                                         : output + read_again + (step.traits.backward_reads_y ? output : 0) +
                                               (input_gradient ? inputs : 0) + 2 * parameters,
                   .stages = step.stages});
    all.back().traffic = traffic_of(static_cast<int>(&step - steps_.data()), all.back());
  }
  add_packing(all);
  return all;
}

// Forward by the kernel that loads the images; a kernel at the end of each of the ranges that are finished together.
void Network::add_packing(std::vector<StageWork>& all) const {
  bool any = false;
  bool in_range = false;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const std::optional<PackedShape> packed = steps_[i].traits.packed_form;
    if (packed) {
      const double bytes = sizeof(float) * static_cast<double>(packed->weights()) +
                           static_cast<double>(ddp::bytes_of(backend_.ops().traits().activation_element)) *
                               static_cast<double>(packed->elements());
      all[i].traffic.forward.bytes += bytes;
      if (packed->packs_gradient()) all[i].traffic.backward.bytes += bytes;
      any = true;
      in_range = in_range || packed->packs_gradient();
    }
    if (finished_after_[i] != static_cast<int>(i)) continue;
    if (in_range) all[i].traffic.backward.kernels += 1;
    in_range = false;
  }
  if (any && !first_part()) all.front().traffic.forward.kernels += 1;
}

std::string Network::place_of_output(const Step& step) {
  if (step.last == step.name) return fmt::format("the output of layer '{}'", step.name);
  return fmt::format("the output of layers '{}' to '{}'", step.name, step.last);
}

void Network::show(bool backward, std::string_view where, const Value& value, ConstActivations values) const {
  if (!observer_ || values == nullptr || active_ == 0) return;
  observer_({backward, std::string(where), values, value.shape, value.layout, active_, config_.batch});
}

void Network::show_gradients(const Step& step, const BackwardArguments& arguments) const {
  if (!observer_) return;
  for (std::size_t p = 0; p < step.parameters.size(); ++p) {
    const Parameter& parameter = parameters_[static_cast<std::size_t>(step.parameters[p])];
    const ConstActivations values = static_cast<const float*>(arguments.parameter_gradients[p]);
    observer_({true, fmt::format("the gradient of '{}'", parameter.name), values, {1, 1, parameter.elements()}});
  }
  for (std::size_t input = 0; input < step.inputs.size(); ++input) {
    const Value& value = values_[step.inputs[input]];
    show(true, fmt::format("the gradient that layer '{}' passes to '{}'", step.name, value.name), value,
         arguments.input_gradients[input]);
  }
}

ArgumentList<ConstActivations> Network::inputs_of(const Step& step) {
  return lists_.inputs.fill(step.inputs, [&](std::size_t input) { return values_[input].y; });
}

void Network::forward(Pass pass, const ModelState& state, const Samples& samples, const LossOutput& output) {
  DDP_ASSERT(samples.count <= config_.batch);
  active_ = samples.count;
  keys_ = samples.keys;
  sums_ = pass == Pass::training ? state.sums : nullptr;
  exchange_ = pass == Pass::training ? state.exchange : nullptr;
  // Only read.
  const std::span<const WeightPacking> weights =
      packings(const_cast<float*>(state.parameters), &Step::packed, 0, static_cast<int>(steps_.size()) - 1);
  if (first_part()) {
    const InputArguments images{samples.pixels, samples.rows, samples.edits, samples.step, weights};
    input_->forward({.y = values_.front().y, .active = active_, .images = &images});
  } else {
    DDP_ASSERT(samples.step.columns.empty());
    backend_.math().convert_weights(weights, PackingDirection::pack);
  }
  show(false, "the input", values_.front(), values_.front().y);
  const Value& logits = values_.back();
  LossArguments loss{loss_spec_,
                     samples.labels,
                     logits.dy,
                     output.gradient_scale,
                     output.loss_sum,
                     output.correct,
                     samples.other_labels,
                     samples.label_weights,
                     output.loss_scale};
  for (Step& step : steps_) {
    ForwardArguments arguments;
    arguments.inputs = inputs_of(step);
    arguments.y = values_[step.output].y;
    arguments.parameters =
        lists_.parameters.fill(step.parameters, [&](int p) { return state.parameters + offset_of(p); });
    if (step.statistics >= 0) arguments.statistics = state.statistics + step.statistics;
    arguments.saved = step.saved;
    arguments.workspace = step.forward_workspace;
    arguments.active = active_;
    arguments.keys = keys_;
    arguments.training = pass == Pass::training;
    arguments.sums = sums_;
    arguments.exchange = exchange_;
    arguments.packed = step.packed;
    if (has_loss_ && &step == &steps_.back()) arguments.loss = &loss;
    const auto index = static_cast<std::size_t>(&step - steps_.data());
    if (step_watch_) step_watch_(index, false, true);
    step.op->forward(arguments);
    if (step_watch_) step_watch_(index, false, false);
    heartbeat();
    if (observer_) show(false, place_of_output(step), values_[step.output], arguments.y);
  }
  if (!has_loss_) return;
  if (!loss.done) {
    loss_->forward({.inputs = {logits.y}, .active = active_, .training = pass == Pass::training, .loss = &loss});
  }
  if (pass == Pass::training) show(true, "the gradient of the logits", logits, logits.dy);
}

void Network::backward_step(int index, const float* parameters, float* gradient) {
  Step& step = steps_[static_cast<std::size_t>(index)];
  BackwardArguments arguments;
  arguments.inputs = inputs_of(step);
  arguments.y = values_[step.output].y;
  arguments.dy = values_[step.output].dy;
  arguments.input_gradients = lists_.input_gradients.fill(step.aside, [&](const Activations& aside) {
    const auto input = static_cast<std::size_t>(&aside - step.aside.data());
    return aside != nullptr ? aside : values_[step.inputs[input]].dy;
  });
  arguments.add_to_dx = adds_in_place(index);
  arguments.parameters = lists_.parameters.fill(step.parameters, [&](int p) { return parameters + offset_of(p); });
  arguments.parameter_gradients =
      lists_.parameter_gradients.fill(step.parameters, [&](int p) { return gradient + offset_of(p); });
  arguments.saved = step.saved;
  arguments.workspace = step.backward_workspace;
  arguments.active = active_;
  arguments.keys = keys_;
  arguments.sums = sums_;
  arguments.exchange = exchange_;
  arguments.packed = step.packed;
  // An observer is shown the gradient at once.
  arguments.packed_gradient = observer_ ? nullptr : step.packed_gradient;
  step.op->backward(arguments);
  heartbeat();
  show_gradients(step, arguments);
  for (std::size_t input = 0; input < step.inputs.size(); ++input) {
    const Value& value = values_[step.inputs[input]];
    if (step.aside[input] == nullptr || value.dy == nullptr) continue;
    backend_.math().add(value.dy, step.aside[input], elements_of(value));
  }
}

// The packed weights or gradients of steps `first` to `last`, and their places in a flat buffer.
std::span<const WeightPacking> Network::packings(float* plain, std::byte* Step::*packed, int first, int last) {
  packings_.clear();
  for (int i = first; i <= last; ++i) {
    const Step& step = steps_[static_cast<std::size_t>(i)];
    if (step.*packed == nullptr) continue;
    packings_.push_back({plain + offset_of(step.parameters.front()), step.*packed, *step.traits.packed_form});
  }
  return packings_;
}

// After the backward pass of steps `first` to `last`: their gradients in plain layout.
void Network::finish_gradients(int first, int last, float* gradient) {
  if (!observer_)
    backend_.math().convert_weights(packings(gradient, &Step::packed_gradient, first, last), PackingDirection::unpack);
  for (int i = first; i <= last; ++i) {
    const Step& step = steps_[static_cast<std::size_t>(i)];
    if (!step.backward) continue;
    for (const int p : step.parameters) {
      // Parameters that are not trained have zero gradients, which would otherwise contribute to norms.
      const Parameter& parameter = parameters_[static_cast<std::size_t>(p)];
      if (!parameter.fixed && !parameter.frozen) continue;
      backend_.math().fill_zero(gradient + offset_of(p),
                                static_cast<std::size_t>(parameter.elements()) * sizeof(float));
    }
  }
}

std::span<std::byte> Network::moved(const Value& value, bool gradient, std::int64_t samples) const {
  if (gradient && !value.has_gradient) return {};
  const Activations place = gradient ? value.dy : value.y;
  const auto elements = static_cast<std::size_t>(stored_elements(samples, value.shape, value.layout));
  return {static_cast<std::byte*>(place.data()), elements * ddp::bytes_of(place.element())};
}

// Operators read all samples that they are compiled for; those beyond `samples` must not be what memory happens to hold.
std::span<std::byte> Network::prepared(const Value& value, bool gradient, std::int64_t samples) {
  const std::span<std::byte> bytes = moved(value, gradient, samples);
  if (bytes.empty()) return bytes;
  if (const std::size_t rest = bytes_of(value) - bytes.size(); rest > 0) {
    backend_.math().fill_zero(bytes.data() + bytes.size(), rest);
  }
  return bytes;
}

std::span<std::byte> Network::incoming_gradient(std::int64_t samples) const {
  DDP_ASSERT(!first_part());
  return moved(values_.front(), true, samples);
}

std::span<std::byte> Network::outgoing(std::int64_t samples) const {
  DDP_ASSERT(!has_loss_);
  return moved(values_.back(), false, samples);
}

std::span<std::byte> Network::prepare_incoming(std::int64_t samples) {
  DDP_ASSERT(!first_part());
  return prepared(values_.front(), false, samples);
}

std::span<std::byte> Network::prepare_outgoing_gradient(std::int64_t samples) {
  DDP_ASSERT(!has_loss_);
  return prepared(values_.back(), true, samples);
}

void Network::backward(const float* parameters, float* gradient, const Ready& ready) {
  int unfinished = static_cast<int>(steps_.size()) - 1;  // the last step whose gradients are not final
  for (auto i = static_cast<int>(steps_.size()); i-- > 0;) {
    if (step_watch_) step_watch_(static_cast<std::size_t>(i), true, true);
    if (steps_[static_cast<std::size_t>(i)].backward) backward_step(i, parameters, gradient);
    if (step_watch_) step_watch_(static_cast<std::size_t>(i), true, false);
    if (finished_after_[static_cast<std::size_t>(i)] != i) continue;
    finish_gradients(i, unfinished, gradient);
    for (int s = unfinished; s >= i; --s) {
      const Step& step = steps_[static_cast<std::size_t>(s)];
      if (!step.parameters.empty()) ready(offset_of(step.parameters.front()));
    }
    unfinished = i - 1;
  }
}

}  // namespace ddp
