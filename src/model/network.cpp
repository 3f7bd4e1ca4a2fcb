#include "model/network.h"

#include <algorithm>

#include "base/error.h"

namespace ddp {
namespace {

std::size_t bytes_of(const Backend& backend, std::int64_t batch, const Shape& shape, Layout layout) {
  return static_cast<std::size_t>(stored_elements(batch, shape, layout)) * backend.activation_bytes();
}

}  // namespace

Network::Network(Backend& backend, const Graph& graph, const NetworkConfig& config, const LayoutPlan& plan)
    : backend_(backend), parameters_(graph.parameters()), config_(config) {
  build_steps(backend, graph, plan);
  input_ = {config.batch, config.image, cropped_input(graph), steps_.front().in, config.scale, config.shift};
  loss_ = {config.batch, graph.classes(), steps_.back().out, config.label_smoothing};
  plan_memory();
}

void Network::build_steps(Backend& backend, const Graph& graph, const LayoutPlan& plan) {
  const std::vector<Stage> stages = make_stages(graph, config_.batch);
  DDP_ASSERT(stages.size() == plan.stages.size());
  const auto add = [&](std::string name, const OpSpec& spec, Layout in, Layout out, std::vector<int> parameters,
                       const std::string& kernels) {
    Step step;
    step.name = std::move(name);
    step.spec = spec;
    step.in = in;
    step.out = out;
    step.parameters = std::move(parameters);
    try {
      step.op = backend.make_op(spec, in, out, kernels);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("layer {}: {}", step.name, error.what()));
    }
    step.kernels = kernels;
    steps_.push_back(std::move(step));
  };
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Layout layout = plan.stages[s].layout;
    if (s > 0 && steps_.back().out != layout) {
      add("reorder", ReorderSpec{config_.batch, output_of(stages[s - 1].spec)}, steps_.back().out, layout, {}, "");
    }
    add(stages[s].name, stages[s].spec, layout, layout, stages[s].parameters, plan.stages[s].kernels);
  }
}

// Time: the steps' forward calls are 0..n-1, the loss is n, the backward calls of steps n-1..0 are n+1..2n.
void Network::plan_memory() {
  MemoryPlanner planner;
  const auto count = static_cast<int>(steps_.size());
  const auto backward_time = [count](int step) { return 2 * count - step; };
  struct Places {
    BufferId y, dy, saved, forward_workspace, backward_workspace;
  };
  std::vector<Places> places;
  const bool first_reads_x = steps_.front().op->backward_reads_x();
  const BufferId input = planner.add("input", bytes_of(backend_, config_.batch, input_.cropped, input_.layout), 0,
                                     first_reads_x ? backward_time(0) : 0);
  for (int i = 0; i < count; ++i) {
    const Step& step = steps_[static_cast<std::size_t>(i)];
    const std::size_t out = bytes_of(backend_, config_.batch, output_of(step.spec), step.out);
    const bool last = i + 1 == count;
    int y_end = last ? count : i + 1;
    if (!last && steps_[static_cast<std::size_t>(i) + 1].op->backward_reads_x()) {
      y_end = std::max(y_end, backward_time(i + 1));
    }
    if (step.op->backward_reads_y()) y_end = std::max(y_end, backward_time(i));
    const int dy_begin = last ? count : backward_time(i + 1);
    places.push_back({planner.add(step.name + ".y", out, i, y_end),
                      planner.add(step.name + ".dy", out, dy_begin, backward_time(i)),
                      planner.add(step.name + ".saved", step.op->saved_bytes(), i, backward_time(i)),
                      planner.add(step.name + ".forward workspace", step.op->workspace_bytes(), i, i),
                      planner.add(step.name + ".backward workspace", step.op->workspace_bytes(), backward_time(i),
                                  backward_time(i))});
  }
  memory_ = planner.plan();
  if (config_.plan_only) return;
  arena_ = backend_.allocate(memory_.arena_bytes, "the activations of this batch size");
  float* x = arena_.at<float>(memory_.offset(input));
  float* dx = nullptr;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    step.x = x;
    step.dx = dx;
    x = step.y = arena_.at<float>(memory_.offset(places[i].y));
    dx = step.dy = arena_.at<float>(memory_.offset(places[i].dy));
    step.saved = arena_.data() + memory_.offset(places[i].saved);
    step.forward_workspace = arena_.data() + memory_.offset(places[i].forward_workspace);
    step.backward_workspace = arena_.data() + memory_.offset(places[i].backward_workspace);
  }
}

std::int64_t Network::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.elements();
  return count;
}

std::string Network::describe() const {
  std::string text;
  for (const Step& step : steps_) {
    const Shape in = input_of(step.spec);
    const Shape out = output_of(step.spec);
    const auto shape = [](const Shape& s) { return fmt::format("{}x{}x{}", s.channels, s.height, s.width); };
    text += fmt::format("{:<10} {:<8} {:>10} -> {:<10} {:<9} {}\n", step.name, kind_of(step.spec), shape(in),
                        shape(out), to_string(step.out), step.kernels);
  }
  return text;
}

void Network::forward(const float* parameters, const Samples& samples, const LossOutput& output) {
  DDP_ASSERT(samples.count <= config_.batch);
  active_ = samples.count;
  backend_.load_input(input_, {samples.pixels, samples.rows, samples.count, steps_.front().x});
  for (Step& step : steps_) {
    ForwardArguments arguments{step.x, step.y, {}, step.saved, step.forward_workspace, active_};
    for (std::size_t p = 0; p < step.parameters.size(); ++p) {
      arguments.parameters.at(p) = parameters + parameters_[static_cast<std::size_t>(step.parameters[p])].offset;
    }
    step.op->forward(arguments);
  }
  backend_.softmax_cross_entropy(
      loss_, {steps_.back().y, samples.labels, active_, steps_.back().dy, output.gradient_scale, output.loss_sum,
              output.correct, samples.other_labels, samples.label_weights});
}

void Network::backward(const float* parameters, float* gradient, const Ready& ready) {
  for (std::size_t i = steps_.size(); i-- > 0;) {
    Step& step = steps_[i];
    BackwardArguments arguments{step.x, step.y, step.dy, step.dx, {}, {}, step.saved, step.backward_workspace, active_};
    for (std::size_t p = 0; p < step.parameters.size(); ++p) {
      const Parameter& parameter = parameters_[static_cast<std::size_t>(step.parameters[p])];
      arguments.parameters.at(p) = parameters + parameter.offset;
      arguments.parameter_gradients.at(p) = gradient + parameter.offset;
    }
    step.op->backward(arguments);
    if (!step.parameters.empty()) {
      ready(parameters_[static_cast<std::size_t>(step.parameters.front())].offset);
    }
  }
}

}  // namespace ddp
