// The memory plan of a network: when each buffer is used, and its place in the arena.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "model/network.h"

namespace ddp {

// Whether a step adds the gradient of its only input to that of a later reader.
bool Network::adds_in_place(int step) const {
  const Step& s = steps_[static_cast<std::size_t>(step)];
  const Value& value = values_[s.inputs.front()];
  return s.inputs.size() == 1 && value.has_gradient && value.readers.back() != step && s.traits.adds_to_dx;
}

// Whether the gradient of a step's input goes to a temporary buffer, which is then added to an earlier one; that of the images,
// and of what no trained parameter influences, is never read.
bool Network::writes_aside(int step, std::size_t input) const {
  const std::vector<std::size_t>& inputs = steps_[static_cast<std::size_t>(step)].inputs;
  const Value& value = values_[inputs[input]];
  if (!value.has_gradient) return true;
  if (adds_in_place(step)) return false;
  const auto own = inputs.begin() + static_cast<std::ptrdiff_t>(input);
  const bool again = std::find(inputs.begin(), own, *own) != own;
  return value.readers.back() != step || again;
}

// The last time that a value's activation is read.
int Network::last_use_of(const Value& value) const {
  int last = &value == &values_.back() ? static_cast<int>(steps_.size()) : 0;
  for (const int reader : value.readers) {
    const Step& step = steps_[static_cast<std::size_t>(reader)];
    bool kept = false;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      kept = kept || (step.backward && &values_[step.inputs[i]] == &value && step.traits.reads_input(i));
    }
    last = std::max(last, kept ? backward_time(reader) : reader);
  }
  if (value.producer < 0) return last;
  const bool kept = value.has_gradient && steps_[static_cast<std::size_t>(value.producer)].traits.backward_reads_y;
  return std::max(last, kept ? backward_time(value.producer) : value.producer);
}

// Time: the steps' forward calls are 0..n-1, the loss is n unless the last step computes it, the backward calls of steps
// n-1..0 are n+1..2n. An
// elementwise step overwrites its first input if that is not read later, and its gradient overwrites that of its
// output. Nothing is kept for a backward call that computes nothing.
void Network::plan_memory() {
  MemoryPlanner planner;
  const auto count = static_cast<int>(steps_.size());
  std::vector<Buffers> values(values_.size());
  std::vector<Buffers> steps(steps_.size());
  // While the gradient of a part's input is sent, the next input is received.
  const int end = backward_time(0) + 1;
  const bool sends = values_[0].has_gradient;
  values[0].y = planner.add("input", bytes_of(values_[0]), 0, sends ? end : last_use_of(values_[0]));
  if (sends) {
    values[0].dy = planner.add("input.dy", bytes_of(values_[0]), backward_time(values_[0].readers.back()), end);
  }
  for (int i = 0; i < count; ++i) {
    const Step& step = steps_[static_cast<std::size_t>(i)];
    const Value& value = values_[step.output];
    Buffers& out = values[step.output];
    Buffers& own = steps[static_cast<std::size_t>(i)];
    own.aside.resize(step.inputs.size());
    const int backward = backward_time(i);
    const int dy_begin = value.readers.empty() ? count - 1 : backward_time(value.readers.back());
    const std::size_t input = step.inputs.front();
    const Value& from = values_[input];
    const bool in_place = step.traits.in_place && from.producer >= 0;
    if (in_place && last_use_of(from) == i) {
      out.y = values[input].y;
      planner.extend(out.y, i, last_use_of(value));
    } else {
      out.y = planner.add(step.name + ".y", bytes_of(value), i, last_use_of(value));
    }
    const std::optional<PackedShape> packed = step.traits.packed_form;
    const std::size_t packed_bytes = packed ? static_cast<std::size_t>(packed->elements()) *
                                                  ddp::bytes_of(backend_.ops().traits().activation_element)
                                            : 0;
    if (packed) own.packed = planner.add(step.name + ".packed weight", packed_bytes, 0, step.backward ? backward : i);
    if (!step.backward) {
      own.saved = planner.add(step.name + ".saved", step.traits.saved_bytes, i, i);
      own.forward_workspace = planner.add(step.name + ".forward workspace", step.traits.workspace_bytes, i, i);
      continue;
    }
    if (in_place && !writes_aside(i, 0) && !adds_in_place(i)) {
      out.dy = values[input].dy;
      planner.extend(out.dy, dy_begin, backward);
    } else {
      out.dy = planner.add(step.name + ".dy", bytes_of(value), dy_begin, backward);
    }
    own.saved = planner.add(step.name + ".saved", step.traits.saved_bytes, i, backward);
    if (packed && packed->packs_gradient()) {
      own.packed_gradient = planner.add(step.name + ".packed gradient", packed_bytes, backward,
                                        backward_time(finished_after_[static_cast<std::size_t>(i)]));
    }
    own.forward_workspace = planner.add(step.name + ".forward workspace", step.traits.workspace_bytes, i, i);
    own.backward_workspace =
        planner.add(step.name + ".backward workspace", step.traits.workspace_bytes, backward, backward);
    const bool input_gradient = has_input_gradient(step.specs.front());
    for (std::size_t k = 0; k < step.inputs.size(); ++k) {
      if (!input_gradient || !writes_aside(i, k)) continue;
      own.aside[k] = planner.add(step.name + ".dx", bytes_of(values_[step.inputs[k]]), backward, backward);
    }
  }
  memory_ = planner.plan();
  if (!config_.plan_only) place(values, steps);
}

void Network::place(const std::vector<Buffers>& values, const std::vector<Buffers>& steps) {
  const bool borrows = config_.lender != nullptr && config_.lender->arena_.bytes() >= memory_.arena_bytes;
  if (!borrows) arena_ = backend_.memory().allocate(memory_.arena_bytes, "the activations of this batch size");
  std::byte* const arena = borrows ? config_.lender->arena_.data() : arena_.data();
  const auto activations = [&](BufferId id) {
    return Activations(arena + memory_.offset(id), backend_.ops().traits().activation_element);
  };
  for (std::size_t v = 0; v < values.size(); ++v) {
    values_[v].y = activations(values[v].y);
    if (values_[v].has_gradient) values_[v].dy = activations(values[v].dy);
  }
  for (std::size_t s = 0; s < steps.size(); ++s) {
    Step& step = steps_[s];
    step.saved = arena + memory_.offset(steps[s].saved);
    step.forward_workspace = arena + memory_.offset(steps[s].forward_workspace);
    if (step.backward) step.backward_workspace = arena + memory_.offset(steps[s].backward_workspace);
    if (steps[s].packed) step.packed = arena + memory_.offset(*steps[s].packed);
    if (steps[s].packed_gradient) step.packed_gradient = arena + memory_.offset(*steps[s].packed_gradient);
    step.aside.resize(step.inputs.size());
    for (std::size_t input = 0; input < step.inputs.size(); ++input) {
      if (steps[s].aside[input]) step.aside[input] = activations(*steps[s].aside[input]);
    }
  }
}

}  // namespace ddp
