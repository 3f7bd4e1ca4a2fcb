#include "model/network.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/heartbeat.h"
#include "model/joins.h"

namespace ddp {
namespace {

// Of plain gradients that are converted at once; see Note [Packed weights].
constexpr std::int64_t kPackedBytes = std::int64_t{8} << 20U;

bool has_input_gradient(const OpSpec& spec) {
  return std::visit(
      [](const auto& s) {
        if constexpr (requires { s.input_gradient; }) return s.input_gradient;
        return true;
      },
      spec);
}

}  // namespace

Network::Network(Backend& backend, const Graph& graph, const NetworkConfig& config, const LayoutPlan& plan)
    : backend_(backend), parameters_(graph.parameters()), flat_elements_(graph.flat_elements()), config_(config) {
  build_steps(graph, plan);
  plan_packing();
  packings_.reserve(steps_.size());
  const Value& images = values_.front();
  input_ = {config.batch, config.image, images.shape,         images.layout,
            config.scale, config.shift, config.edits_reflect, config.fill};
  loss_ = {config.batch, graph.classes(), values_.back().layout, config.label_smoothing};
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
  for (const std::size_t input : step.inputs) values_[input].readers.push_back(index);
  step.output = values_.size();
  values_.push_back({step.last, output_of(step.specs.back()), out, index, {}, nullptr, nullptr});
  steps_.push_back(std::move(step));
  return values_.size() - 1;
}

// The value converted to another layout; readers with the same layout share the conversion.
std::size_t Network::in_layout(std::size_t value, Layout layout) {
  if (values_[value].layout == layout) return value;
  for (const int reader : values_[value].readers) {
    const Step& step = steps_[static_cast<std::size_t>(reader)];
    if (std::holds_alternative<ReorderSpec>(step.specs.front()) && values_[step.output].layout == layout)
      return step.output;
  }
  Step step;
  step.name = step.last = "reorder";
  step.specs = {ReorderSpec{config_.batch, values_[value].shape}};
  step.inputs = {value};
  step.backward = has_gradient(values_[value]);
  return add_step(std::move(step), layout);
}

// Makes one operator of the stages from `first` on, if the backend has one for some and the plan gives all the same layout;
// otherwise the step is left as it is.
void Network::join(const std::vector<Stage>& stages, const LayoutPlan& plan, std::size_t first, Step& step) const {
  const Layout layout = plan.stages[first].layout;
  const std::size_t count = joined_stages(backend_.ops(), stages, first, layout);
  for (std::size_t s = first + 1; s < first + count; ++s) {
    if (plan.stages[s].layout != layout) return;
  }
  if (count == 1) return;
  step.specs = specs_of(stages, first, count);
  for (std::size_t s = first + 1; s < first + count; ++s) {
    step.parameters.insert(step.parameters.end(), stages[s].parameters.begin(), stages[s].parameters.end());
    step.backward = step.backward || stages[s].backward;
  }
  step.op = backend_.ops().join(step.specs, layout);
  step.last = stages[first + count - 1].name;
  step.kernels = "joined";
}

void Network::build_steps(const Graph& graph, const LayoutPlan& plan) {
  const std::vector<Stage> stages = make_stages(graph, config_.batch, backend_.ops().takes_bias_into_norm());
  DDP_ASSERT(stages.size() == plan.stages.size());
  // The images have the layout of their first reader.
  values_.push_back({"input", cropped_input(graph), plan.stages.front().layout, -1, {}, nullptr, nullptr});
  std::vector<std::size_t> outputs;  // of the stages
  while (outputs.size() < stages.size()) {
    const std::size_t s = outputs.size();
    const Stage& stage = stages[s];
    Step step;
    step.name = step.last = stage.name;
    step.specs = {stage.spec};
    step.parameters = stage.parameters;
    step.statistics = stage.statistics;
    step.backward = stage.backward;
    step.kernels = plan.stages[s].kernels;
    for (const StageInput& input : stage.inputs) {
      const std::size_t value = input.stage < 0 ? 0 : outputs[static_cast<std::size_t>(input.stage)];
      step.inputs.push_back(in_layout(value, plan.stages[s].layout));
    }
    if (config_.join) join(stages, plan, s, step);
    // No stage reads what lies between joined ones.
    const std::size_t count = step.specs.size();
    outputs.resize(s + count, add_step(std::move(step), plan.stages[s].layout));
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
      const std::optional<PackedShape> packed = steps_[static_cast<std::size_t>(first)].op->packed_form();
      if (packed) bytes += packed->elements() * static_cast<std::int64_t>(sizeof(float));
    };
    for (add(); bytes > 0 && bytes < kPackedBytes && first > 0; add()) --first;
    for (int i = first; i <= last; ++i) finished_after_[static_cast<std::size_t>(i)] = first;
    last = first - 1;
  }
}

std::size_t Network::elements_of(const Value& value) const {
  return static_cast<std::size_t>(stored_elements(config_.batch, value.shape, value.layout));
}

// Whether a step adds the gradient of its only input to that of a later reader.
bool Network::adds_in_place(int step) const {
  const Step& s = steps_[static_cast<std::size_t>(step)];
  const Value& value = values_[s.inputs.front()];
  return s.inputs.size() == 1 && has_gradient(value) && value.readers.back() != step && s.op->adds_to_dx();
}

// Whether the gradient of a step's input goes to a temporary buffer, which is then added to an earlier one; that of the images,
// and of what no trained parameter influences, is never read.
bool Network::writes_aside(int step, std::size_t input) const {
  const std::vector<std::size_t>& inputs = steps_[static_cast<std::size_t>(step)].inputs;
  const Value& value = values_[inputs[input]];
  if (!has_gradient(value)) return true;
  if (adds_in_place(step)) return false;
  const bool again = input > 0 && inputs[0] == inputs[input];
  return value.readers.back() != step || again;
}

// The last time that a value's activation is read.
int Network::last_use_of(const Value& value) const {
  int last = &value == &values_.back() ? static_cast<int>(steps_.size()) : 0;
  for (const int reader : value.readers) {
    const Step& step = steps_[static_cast<std::size_t>(reader)];
    const bool first_input = &values_[step.inputs.front()] == &value;
    const bool second_input = step.inputs.size() > 1 && &values_[step.inputs[1]] == &value;
    const bool kept = step.backward &&
                      ((first_input && step.op->backward_reads_x()) || (second_input && step.op->backward_reads_x2()));
    last = std::max(last, kept ? backward_time(reader) : reader);
  }
  if (value.producer < 0) return last;
  const bool kept = has_gradient(value) && steps_[static_cast<std::size_t>(value.producer)].op->backward_reads_y();
  return std::max(last, kept ? backward_time(value.producer) : value.producer);
}

// Time: the steps' forward calls are 0..n-1, the loss is n, the backward calls of steps n-1..0 are n+1..2n. An
// elementwise step overwrites its first input if that is not read later, and its gradient overwrites that of its
// output.
void Network::plan_memory() {
  MemoryPlanner planner;
  const auto count = static_cast<int>(steps_.size());
  std::vector<Buffers> values(values_.size());
  std::vector<Buffers> steps(steps_.size());
  values[0].y = planner.add("input", bytes_of(values_[0]), 0, last_use_of(values_[0]));
  for (int i = 0; i < count; ++i) {
    const Step& step = steps_[static_cast<std::size_t>(i)];
    const Value& value = values_[step.output];
    Buffers& out = values[step.output];
    Buffers& own = steps[static_cast<std::size_t>(i)];
    const int backward = backward_time(i);
    const int dy_begin = value.readers.empty() ? count : backward_time(value.readers.back());
    const std::size_t input = step.inputs.front();
    const Value& from = values_[input];
    const bool in_place = step.op->in_place() && from.producer >= 0;
    if (in_place && last_use_of(from) == i) {
      out.y = values[input].y;
      planner.extend(out.y, i, last_use_of(value));
    } else {
      out.y = planner.add(step.name + ".y", bytes_of(value), i, last_use_of(value));
    }
    const std::optional<PackedShape> packed = step.op->packed_form();
    const std::size_t packed_bytes =
        packed ? static_cast<std::size_t>(packed->elements()) * ddp::bytes_of(backend_.ops().activation_element()) : 0;
    if (packed) own.packed = planner.add(step.name + ".packed weight", packed_bytes, 0, step.backward ? backward : i);
    if (!step.backward) {
      own.saved = planner.add(step.name + ".saved", step.op->saved_bytes(), i, i);
      own.forward_workspace = planner.add(step.name + ".forward workspace", step.op->workspace_bytes(), i, i);
      continue;
    }
    if (in_place && !writes_aside(i, 0) && !adds_in_place(i)) {
      out.dy = values[input].dy;
      planner.extend(out.dy, dy_begin, backward);
    } else {
      out.dy = planner.add(step.name + ".dy", bytes_of(value), dy_begin, backward);
    }
    own.saved = planner.add(step.name + ".saved", step.op->saved_bytes(), i, backward);
    if (packed) {
      own.packed_gradient = planner.add(step.name + ".packed gradient", packed_bytes, backward,
                                        backward_time(finished_after_[static_cast<std::size_t>(i)]));
    }
    own.forward_workspace = planner.add(step.name + ".forward workspace", step.op->workspace_bytes(), i, i);
    own.backward_workspace =
        planner.add(step.name + ".backward workspace", step.op->workspace_bytes(), backward, backward);
    const bool input_gradient = has_input_gradient(step.specs.front());
    for (std::size_t k = 0; k < step.inputs.size(); ++k) {
      if (!input_gradient || !writes_aside(i, k)) continue;
      own.aside.at(k) = planner.add(step.name + ".dx", bytes_of(values_[step.inputs[k]]), backward, backward);
    }
  }
  memory_ = planner.plan();
  if (!config_.plan_only) place(values, steps);
}

void Network::place(const std::vector<Buffers>& values, const std::vector<Buffers>& steps) {
  const bool borrows = config_.lender != nullptr && config_.lender->arena_.bytes() >= memory_.arena_bytes;
  if (!borrows) arena_ = backend_.queue().allocate(memory_.arena_bytes, "the activations of this batch size");
  std::byte* const arena = borrows ? config_.lender->arena_.data() : arena_.data();
  const auto activations = [&](BufferId id) {
    return Activations(arena + memory_.offset(id), backend_.ops().activation_element());
  };
  for (std::size_t v = 0; v < values.size(); ++v) {
    values_[v].y = activations(values[v].y);
    if (has_gradient(values_[v])) values_[v].dy = activations(values[v].dy);
  }
  for (std::size_t s = 0; s < steps.size(); ++s) {
    Step& step = steps_[s];
    step.saved = arena + memory_.offset(steps[s].saved);
    step.forward_workspace = arena + memory_.offset(steps[s].forward_workspace);
    if (step.backward) step.backward_workspace = arena + memory_.offset(steps[s].backward_workspace);
    if (steps[s].packed) step.packed = arena + memory_.offset(*steps[s].packed);
    if (steps[s].packed_gradient) step.packed_gradient = arena + memory_.offset(*steps[s].packed_gradient);
    for (std::size_t input = 0; input < step.inputs.size(); ++input) {
      if (steps[s].aside.at(input)) step.aside.at(input) = activations(*steps[s].aside.at(input));
    }
  }
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
  OpTraffic traffic = step.op->traffic().value_or(OpTraffic{{1, work.forward_bytes}, {1, work.backward_bytes}});
  if (!has_input_gradient(step.specs.front())) return traffic;
  if (adds_in_place(index)) traffic.backward.bytes += static_cast<double>(bytes_of(values_[step.inputs.front()]));
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
    for (const std::size_t input : step.inputs) inputs += static_cast<double>(bytes_of(values_[input]));
    const auto output = static_cast<double>(bytes_of(values_[step.output]));
    double parameters = 0;
    for (const int p : step.parameters) {
      parameters += sizeof(float) * static_cast<double>(parameters_[static_cast<std::size_t>(p)].elements());
    }
    const bool input_gradient = has_input_gradient(step.specs.front());
    double flops = 0;
    for (const OpSpec& spec : step.specs) flops += 2 * forward_multiply_adds(spec);
    const double first = static_cast<double>(bytes_of(values_[step.inputs.front()]));
    all.push_back({.name = step.name,
                   .kind = kind_of(step.specs.front()),
                   .layout = values_[step.output].layout,
                   .forward_flops = flops,
                   .backward_flops = step.backward ? flops * (input_gradient ? 2 : 1) : 0,
                   .forward_bytes = inputs + output + parameters,
                   // Parameters are read, and their gradients written.
                   .backward_bytes = output + (step.op->backward_reads_x() ? first : 0) +
                                     (step.op->backward_reads_y() ? output : 0) + (input_gradient ? inputs : 0) +
                                     2 * parameters});
    all.back().traffic = traffic_of(static_cast<int>(&step - steps_.data()), all.back());
  }
  add_packing(all);
  return all;
}

// A kernel before the first step, and one at the end of each of the ranges that are finished together.
void Network::add_packing(std::vector<StageWork>& all) const {
  bool any = false;
  bool in_range = false;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const std::optional<PackedShape> packed = steps_[i].op->packed_form();
    if (packed) {
      const double bytes = static_cast<double>(packed->elements()) *
                           static_cast<double>(sizeof(float) + ddp::bytes_of(backend_.ops().activation_element()));
      all[i].traffic.forward.bytes += bytes;
      all[i].traffic.backward.bytes += bytes;
      any = in_range = true;
    }
    if (finished_after_[i] != static_cast<int>(i)) continue;
    if (in_range) all[i].traffic.backward.kernels += 1;
    in_range = false;
  }
  if (any) all.front().traffic.forward.kernels += 1;
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
    const ConstActivations values = static_cast<const float*>(arguments.parameter_gradients.at(p));
    observer_({true, fmt::format("the gradient of '{}'", parameter.name), values, {1, 1, parameter.elements()}});
  }
  for (std::size_t input = 0; input < step.inputs.size(); ++input) {
    const Value& value = values_[step.inputs[input]];
    show(true, fmt::format("the gradient that layer '{}' passes to '{}'", step.name, value.name), value,
         input == 0 ? arguments.dx : arguments.dx2);
  }
}

void Network::forward(Pass pass, const ModelState& state, const Samples& samples, const LossOutput& output) {
  DDP_ASSERT(samples.count <= config_.batch);
  active_ = samples.count;
  keys_ = samples.keys;
  sums_ = pass == Pass::training ? state.sums : nullptr;
  exchange_ = pass == Pass::training ? state.exchange : nullptr;
  backend_.ops().load_input(input_, {samples.pixels, samples.rows, samples.count, values_.front().y, samples.edits});
  show(false, "the input", values_.front(), values_.front().y);
  // Only read.
  backend_.math().convert_weights(
      packings(const_cast<float*>(state.parameters), &Step::packed, 0, static_cast<int>(steps_.size()) - 1),
      PackingDirection::pack);
  for (Step& step : steps_) {
    ForwardArguments arguments;
    arguments.x = values_[step.inputs[0]].y;
    if (step.inputs.size() > 1) arguments.x2 = values_[step.inputs[1]].y;
    arguments.y = values_[step.output].y;
    for (std::size_t p = 0; p < step.parameters.size(); ++p) {
      arguments.parameters.at(p) = state.parameters + parameters_[static_cast<std::size_t>(step.parameters[p])].offset;
    }
    if (step.statistics >= 0) arguments.statistics = state.statistics + step.statistics;
    arguments.saved = step.saved;
    arguments.workspace = step.forward_workspace;
    arguments.active = active_;
    arguments.keys = keys_;
    arguments.training = pass == Pass::training;
    arguments.sums = sums_;
    arguments.exchange = exchange_;
    arguments.packed = step.packed;
    const auto index = static_cast<std::size_t>(&step - steps_.data());
    if (step_watch_) step_watch_(index, false, true);
    step.op->forward(arguments);
    if (step_watch_) step_watch_(index, false, false);
    heartbeat();
    if (observer_) show(false, place_of_output(step), values_[step.output], arguments.y);
  }
  const Value& logits = values_.back();
  LossSpec loss = loss_;
  // Label smoothing applies to training only, not to evaluation.
  if (pass == Pass::evaluation) loss.label_smoothing = 0;
  backend_.ops().softmax_cross_entropy(
      loss, {logits.y, samples.labels, active_, logits.dy, output.gradient_scale, output.loss_sum, output.correct,
             samples.other_labels, samples.label_weights});
  if (pass == Pass::training) show(true, "the gradient of the logits", logits, logits.dy);
}

void Network::backward_step(int index, const float* parameters, float* gradient) {
  Step& step = steps_[static_cast<std::size_t>(index)];
  const auto target = [&](std::size_t input) {
    return step.aside.at(input) != nullptr ? step.aside.at(input) : values_[step.inputs[input]].dy;
  };
  BackwardArguments arguments;
  arguments.x = values_[step.inputs[0]].y;
  arguments.y = values_[step.output].y;
  arguments.dy = values_[step.output].dy;
  arguments.dx = target(0);
  arguments.add_to_dx = adds_in_place(index);
  if (step.inputs.size() > 1) {
    arguments.x2 = values_[step.inputs[1]].y;
    arguments.dx2 = target(1);
  }
  for (std::size_t p = 0; p < step.parameters.size(); ++p) {
    const Parameter& parameter = parameters_[static_cast<std::size_t>(step.parameters[p])];
    arguments.parameters.at(p) = parameters + parameter.offset;
    arguments.parameter_gradients.at(p) = gradient + parameter.offset;
  }
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
    if (step.aside.at(input) == nullptr || value.dy == nullptr) continue;
    backend_.math().add_activations(value.dy, step.aside.at(input), elements_of(value));
  }
}

// The packed weights or gradients of steps `first` to `last`, and their places in a flat buffer.
std::span<const WeightPacking> Network::packings(float* plain, std::byte* Step::*packed, int first, int last) {
  packings_.clear();
  for (int i = first; i <= last; ++i) {
    const Step& step = steps_[static_cast<std::size_t>(i)];
    if (step.*packed == nullptr) continue;
    const Parameter& weight = parameters_[static_cast<std::size_t>(step.parameters.front())];
    packings_.push_back({plain + weight.offset, step.*packed, *step.op->packed_form()});
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
      backend_.math().fill_zero(gradient + parameter.offset,
                                static_cast<std::size_t>(parameter.elements()) * sizeof(float));
    }
  }
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
      if (!step.parameters.empty()) ready(parameters_[static_cast<std::size_t>(step.parameters.front())].offset);
    }
    unfinished = i - 1;
  }
}

}  // namespace ddp
