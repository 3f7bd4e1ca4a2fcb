#include "backend/cpu/trial.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "backend/memory.h"
#include "backend/workspace.h"
#include "base/clock.h"
#include "base/random.h"

namespace ddp {
namespace {

constexpr int kRounds = 4;

// Memory for one operator filled with small random values.
class Trial {
 public:
  Trial(const OpSpec& spec, Layout x, Layout y, const Op& op) : random_(1, 0) {
    const std::int64_t batch = batch_of(spec);
    const std::int64_t in = stored_elements(batch, input_of(spec), x);
    const std::int64_t out = stored_elements(batch, output_of(spec), y);
    const std::int64_t second = inputs_of(spec) == 2 ? in : 0;
    const std::int64_t weights = parameter_elements(spec, 0);
    const std::int64_t biases = parameter_elements(spec, 1);
    Workspace space;
    const auto floats = [&](std::int64_t count) { return Values{space.add<float>(count), count}; };
    const Values data = floats(in);
    const Values data2 = floats(second);
    const Values result = floats(out);
    const Values weight = floats(weights);
    const Values bias = floats(biases);
    const Values dx = floats(in);
    const Values dx2 = floats(second);
    const Values dy = floats(out);
    const Values dw = floats(weights);
    const Values db = floats(biases);
    const Values statistics = floats(statistic_elements(spec));
    const auto keys = space.add<std::uint64_t>(batch);
    const auto saved = space.add<std::byte>(static_cast<std::int64_t>(op.saved_bytes()));
    const auto scratch = space.add<std::byte>(static_cast<std::int64_t>(op.workspace_bytes()));
    memory_ = allocate_on_host(space.bytes(), "the timing of kernels");
    for (const Values& values : {data, data2, weight, bias, dy}) fill(values);
    forward_ = {.x = at(data),
                .y = at(result),
                .parameters = {at(weight), at(bias)},
                .saved = saved.in(memory_.data()),
                .workspace = scratch.in(memory_.data()),
                .active = batch,
                .x2 = at(data2),
                .statistics = at(statistics),
                .keys = keys.in(memory_.data())};
    backward_ = {.x = at(data),
                 .y = at(result),
                 .dy = at(dy),
                 .dx = at(dx),
                 .parameters = {at(weight), at(bias)},
                 .parameter_gradients = {at(dw), at(db)},
                 .saved = saved.in(memory_.data()),
                 .workspace = scratch.in(memory_.data()),
                 .active = batch,
                 .dx2 = at(dx2),
                 .keys = keys.in(memory_.data())};
  }

  double forward_seconds(Op& op) const {
    return fastest([&] { op.forward(forward_); });
  }
  double backward_seconds(Op& op) const {
    return fastest([&] { op.backward(backward_); });
  }

 private:
  struct Values {
    Workspace::Part<float> part;
    std::int64_t count;
  };

  float* at(const Values& values) const { return values.part.in(memory_.data()); }
  void fill(const Values& values) {
    std::generate_n(at(values), values.count, [&] { return random_.uniform(-0.5F, 0.5F); });
  }

  static double fastest(const std::function<void()>& run) {
    run();
    double best = std::numeric_limits<double>::max();
    for (int round = 0; round < kRounds; ++round) {
      const double begin = now();
      run();
      best = std::min(best, now() - begin);
    }
    return best;
  }

  Random random_;
  Memory memory_;
  ForwardArguments forward_;
  BackwardArguments backward_;
};

}  // namespace

Timing time_op(const OpSpec& spec, Layout x, Layout y, Op& op) {
  const Trial trial(spec, x, y, op);
  const double forward = trial.forward_seconds(op);
  return {forward, trial.backward_seconds(op)};
}

}  // namespace ddp
