#include "backend/cuda/candidates/op_trial.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cuda/candidates/op_set.h"
#include "backend/cuda/candidates/timing.h"
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/device/check.h"
#include "backend/cuda/device/recording.h"
#include "backend/cuda/joined/joined.h"
#include "backend/cuda/update/update.h"
#include "base/error.h"
#include "base/log.h"

namespace ddp::cuda {
namespace {

// Tolerances relative to the largest element of the result, and of a gradient, which are larger, since rounding decides
// which gradients pass an activation. Of those that do not, a few in a thousand, each changes the sums that it is in.
struct Tolerances {
  float result;
  float gradient;
};
constexpr Tolerances kJoined = {0.03F, 0.15F};
constexpr double kMostApart = 0.02;  // of all elements
// Tolerances of one operator in fp32 or tf32, where a library's factors have 11 bits.
constexpr Tolerances tolerances_of(Precision precision) {
  return precision == Precision::tf32 ? Tolerances{5e-3F, 2e-2F} : Tolerances{1e-4F, 1e-3F};
}

// Memory that no kernel has written holds NaN.
Memory unwritten(const DeviceContext& device, const CudaContext& context, Element element, std::int64_t count) {
  Memory memory = device.memory().allocate(static_cast<std::size_t>(count) * bytes_of(element), kTrialPurpose);
  if (memory.bytes() > 0) DDP_CUDA(cudaMemsetAsync(memory.data(), 0xFF, memory.bytes(), context.stream));
  return memory;
}

// The parameters of operators behind one another, and what they leave there.
struct Parameters {
  std::vector<std::int64_t> counts;
  std::vector<Memory> values, gradients;
  Memory statistics;

  Parameters(const DeviceContext& device, const CudaContext& context, std::span<const OpSpec> specs)
      : counts(parameter_sizes(specs)) {
    std::int64_t statistics_count = 0;
    for (const OpSpec& spec : specs) statistics_count += statistic_elements(spec);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      values.push_back(filled(device, context, Element::fp32, counts[i], static_cast<std::uint32_t>(i)));
      gradients.push_back(unwritten(device, context, Element::fp32, counts[i]));
    }
    statistics = filled(device, context, Element::fp32, statistics_count);
  }
};

// An operator with all memory that it needs, but for the tensors at its ends.
class RunnableOp {
 public:
  // `op` must outlive this object.
  RunnableOp(const DeviceContext& device, const CudaContext& context, std::span<const OpSpec> specs, Op& op)
      : context_(context),
        op_(op),
        parameters_(device, context, specs),
        saved_(device.memory().allocate(op.traits().saved_bytes, kTrialPurpose)),
        workspace_(device.memory().allocate(op.traits().workspace_bytes, kTrialPurpose)),
        keys_(device.memory().allocate(static_cast<std::size_t>(batch_of(specs.front())) * sizeof(std::uint64_t),
                                       kTrialPurpose)) {
    forward_.active = backward_.active = batch_of(specs.front());
    forward_.statistics = parameters_.statistics.at<float>(0);
    forward_.keys = backward_.keys = keys_.at<std::uint64_t>(0);
    forward_.saved = backward_.saved = saved_.data();
    forward_.workspace = backward_.workspace = workspace_.data();
    for (const Memory& gradient : parameters_.gradients) gradient_places_.push_back(gradient.at<float>(0));
    backward_.parameter_gradients = ArgumentList<float*>(std::span<float* const>(gradient_places_));
    take(parameters_, 0);
    pack(device);
  }

  // Uses the values of some of another operator's parameters, from number `first` on, and leaves gradients in the plain form.
  void share(const Parameters& others, std::size_t first) {
    take(others, first);
    backward_.packed_gradient = nullptr;
    if (const std::optional<PackedShape> form = op_.traits().packed_form) {
      pack_weights(context_.stream, forward_.parameters[0], context_.element(), packed_.data(), *form);
    }
  }
  const Parameters& parameters() const { return parameters_; }

  struct Ends {
    std::vector<ConstActivations> inputs;
    Activations y;
    ConstActivations dy;
    std::vector<Activations> input_gradients;
  };
  void forward(const Ends& ends) {
    ForwardArguments a = forward_;
    a.inputs = ArgumentList<ConstActivations>(std::span<const ConstActivations>(ends.inputs));
    a.y = ends.y;
    op_.forward(a);
  }
  void backward(const Ends& ends) {
    BackwardArguments a = backward_;
    a.inputs = ArgumentList<ConstActivations>(std::span<const ConstActivations>(ends.inputs));
    a.y = ends.y;
    a.dy = ends.dy;
    a.input_gradients = ArgumentList<Activations>(std::span<const Activations>(ends.input_gradients));
    op_.backward(a);
  }

 private:
  void take(const Parameters& from, std::size_t first) {
    places_.clear();
    for (std::size_t i = 0; i < parameters_.counts.size(); ++i) {
      places_.push_back(from.values.at(first + i).at<float>(0));
    }
    forward_.parameters = backward_.parameters = ArgumentList<const float*>(std::span<const float* const>(places_));
  }
  // As in a network, which packs the weights of all operators at once.
  void pack(const DeviceContext& device) {
    const std::optional<PackedShape> form = op_.traits().packed_form;
    if (!form) return;
    const std::size_t bytes = static_cast<std::size_t>(form->elements()) * bytes_of(context_.element());
    packed_ = device.memory().allocate(bytes, kTrialPurpose);
    if (form->packs_gradient()) packed_gradient_ = device.memory().allocate(bytes, kTrialPurpose);
    pack_weights(context_.stream, parameters_.values[0].at<float>(0), context_.element(), packed_.data(), *form);
    forward_.packed = backward_.packed = packed_.data();
    backward_.packed_gradient = packed_gradient_.data();
  }
  const CudaContext& context_;
  Op& op_;
  Parameters parameters_;
  std::vector<const float*> places_;  // of the parameters that are used
  std::vector<float*> gradient_places_;
  Memory saved_, workspace_, keys_, packed_, packed_gradient_;
  ForwardArguments forward_;
  BackwardArguments backward_;
};

// The tensors at the ends of an operator.
struct OuterTensors {
  Element element;
  std::vector<std::int64_t> in;  // elements of each input
  std::int64_t out;
  std::vector<Memory> inputs, input_gradients;
  Memory y, dy;

  OuterTensors(const DeviceContext& device, const CudaContext& context, std::span<const OpSpec> specs)
      : element(context.element()),
        out(batch_of(specs.front()) * output_of(specs.back()).elements()),
        y(unwritten(device, context, element, out)),
        dy(filled(device, context, element, out, 10)) {
    for (const Shape& shape : input_shapes(specs)) {
      in.push_back(batch_of(specs.front()) * shape.elements());
      inputs.push_back(filled(device, context, element, in.back(), 10 + static_cast<std::uint32_t>(in.size())));
      input_gradients.push_back(unwritten(device, context, element, in.back()));
    }
  }

  RunnableOp::Ends ends() const {
    RunnableOp::Ends all{{}, {y.data(), element}, ConstActivations(dy.data(), element), {}};
    for (const Memory& input : inputs) all.inputs.emplace_back(input.data(), element);
    for (const Memory& gradient : input_gradients) all.input_gradients.emplace_back(gradient.data(), element);
    return all;
  }
};

// The same computation by one operator for each spec.
class SeparateOps {
 public:
  // `kernels`: of the only operator, or empty.
  SeparateOps(const DeviceContext& device, const CudaContext& context, std::span<const OpSpec> specs,
              const Parameters& shared, std::string kernels) {
    std::size_t first = 0;
    for (const OpSpec& spec : specs) {
      const auto* conv = std::get_if<ConvSpec>(&spec);
      const bool expected = conv != nullptr && (kernels.empty() || specs.size() > 1);
      if (expected) kernels = to_text(expected_conv_kernels(context, *conv), conv->input_gradient);
      if (conv == nullptr) kernels.clear();
      ops_.push_back(make_cuda_op(context, spec, kJoinedLayout, kJoinedLayout, kernels));
      runs_.push_back(std::make_unique<RunnableOp>(device, context, std::span(&spec, 1), *ops_.back()));
      runs_.back()->share(shared, first);
      first += runs_.back()->parameters().counts.size();
      if (runs_.size() == specs.size()) return;
      const std::int64_t out = batch_of(spec) * output_of(spec).elements();
      values_.push_back(unwritten(device, context, context.element(), out));
      gradients_.push_back(unwritten(device, context, context.element(), out));
    }
  }

  // Reads the inputs and dy, and writes the other ends.
  void run(const RunnableOp::Ends& ends) {
    for (std::size_t i = 0; i < runs_.size(); ++i) runs_[i]->forward(ends_of(ends, i));
    for (std::size_t i = runs_.size(); i-- > 0;) runs_[i]->backward(ends_of(ends, i));
  }
  // Gradients of all operators, in order.
  std::vector<const Memory*> parameter_gradients() const {
    std::vector<const Memory*> all;
    for (const auto& run : runs_) {
      for (const Memory& gradient : run->parameters().gradients) all.push_back(&gradient);
    }
    return all;
  }

 private:
  // Only the last operator has the inputs beside the first.
  RunnableOp::Ends ends_of(const RunnableOp::Ends& ends, std::size_t i) const {
    RunnableOp::Ends own = ends;
    if (i > 0) {
      own.inputs.front() = ConstActivations(values_[i - 1].data(), ends.y.element());
      own.input_gradients.front() = {gradients_[i - 1].data(), ends.y.element()};
    }
    if (i + 1 < runs_.size()) {
      own.inputs.resize(1);
      own.input_gradients.resize(1);
      own.y = {values_[i].data(), ends.y.element()};
      own.dy = ConstActivations(gradients_[i].data(), ends.y.element());
    }
    return own;
  }

  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<std::unique_ptr<RunnableOp>> runs_;
  std::vector<Memory> values_, gradients_;  // what lies behind each operator but the last
};

// The share of elements that are farther apart than `tolerance` times the largest one of `expected`; 1 if any of `actual` is NaN.
double share_apart(const DeviceContext& device, const CudaContext& context, Element element, const Memory& actual,
                   const Memory& expected, std::int64_t count, float tolerance) {
  if (count == 0) return 0;
  const Memory result = device.memory().allocate(2 * sizeof(float), kTrialPurpose);
  const auto elements = static_cast<std::size_t>(count);
  compare(context.stream, element, expected.data(), actual.data(), elements, result.at<float>(0));
  std::array<float, 2> values{};
  device.queue().download(values.data(), result.data(), sizeof(values));
  device.queue().synchronize();
  const float limit = tolerance * values[1];
  if (values[0] <= limit) return 0;
  count_apart(context.stream, element, expected.data(), actual.data(), elements, limit, result.at<unsigned>(0));
  std::array<unsigned, 2> counts{};
  device.queue().download(counts.data(), result.data(), sizeof(counts));
  device.queue().synchronize();
  return counts[1] > 0 ? 1 : static_cast<double>(counts[0]) / static_cast<double>(count);
}

std::string names_of(std::span<const OpSpec> specs) {
  std::string text;
  for (const OpSpec& spec : specs) {
    const Shape shape = output_of(spec);
    text += fmt::format("{}{} to {}x{}x{}", text.empty() ? "" : ", ", kind_of(spec), shape.channels, shape.height,
                        shape.width);
  }
  return text;
}

// What differs; empty if nothing does.
std::string difference(const DeviceContext& device, const CudaContext& context, std::span<const OpSpec> specs, Op& op,
                       const std::string& kernels, const Tolerances& tolerances) {
  const OuterTensors joined(device, context, specs);
  RunnableOp run(device, context, specs, op);
  SeparateOps separate(device, context, specs, run.parameters(), kernels);
  const Element element = context.element();
  const Memory y = unwritten(device, context, element, joined.out);
  std::vector<Memory> input_gradients;
  RunnableOp::Ends others = joined.ends();
  others.y = {y.data(), element};
  for (std::size_t i = 0; i < joined.in.size(); ++i) {
    input_gradients.push_back(unwritten(device, context, element, joined.in[i]));
    others.input_gradients[i] = {input_gradients[i].data(), element};
  }
  run.forward(joined.ends());
  run.backward(joined.ends());
  separate.run(others);
  const auto differs = [&](Element of, const Memory& actual, const Memory& expected, std::int64_t count, float most) {
    return share_apart(device, context, of, actual, expected, count, most) > kMostApart;
  };
  if (differs(element, joined.y, y, joined.out, tolerances.result)) return "its result";
  for (std::size_t i = 0; i < joined.in.size(); ++i) {
    // No kernel writes the gradient of the first input where it is not needed.
    if (i == 0 && !has_input_gradient(specs.front())) continue;
    if (differs(element, joined.input_gradients[i], input_gradients[i], joined.in[i], tolerances.gradient)) {
      return i == 0 ? "the gradient of its input" : fmt::format("the gradient of its input {}", i);
    }
  }
  const std::vector<const Memory*> gradients = separate.parameter_gradients();
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (differs(Element::fp32, run.parameters().gradients[p], *gradients[p], run.parameters().counts[p],
                tolerances.gradient)) {
      return fmt::format("the gradient of its parameter {}", p);
    }
  }
  return "";
}

}  // namespace

Memory filled(const DeviceContext& device, const CudaContext& context, Element element, std::int64_t count,
              std::uint32_t seed) {
  Memory memory = device.memory().allocate(static_cast<std::size_t>(count) * bytes_of(element), kTrialPurpose);
  fill_random(context.stream, element, memory.data(), static_cast<std::size_t>(count), seed);
  return memory;
}

bool attempt(cudaStream_t stream, const std::string& name, const std::function<void()>& run) {
  try {
    run();
    DDP_CUDA(cudaStreamSynchronize(stream));
    return true;
  } catch (const Error& error) {
    // The first call may report the kernel's error again; an error of the second call is persistent.
    static_cast<void>(cudaStreamSynchronize(stream));
    static_cast<void>(cudaGetLastError());
    if (cudaStreamSynchronize(stream) != cudaSuccess) {
      throw Error(error.code(), fmt::format("the GPU was lost in a trial of {}: {}", name, error.what()));
    }
    log_warning("{} does not run on this GPU and is skipped ({})", name, error.what());
    return false;
  }
}

double op_seconds(const DeviceContext& device, const CudaContext& context, std::span<const OpSpec> specs, Op& op) {
  const OuterTensors tensors(device, context, specs);
  RunnableOp run(device, context, specs, op);
  const RunnableOp::Ends ends = tensors.ends();
  const double forward_seconds = fastest_seconds(context.stream, [&] { run.forward(ends); });
  return forward_seconds + fastest_seconds(context.stream, [&] { run.backward(ends); });
}

namespace {

// What an operator is compared with.
struct Comparison {
  std::string name;     // of the operator, for log lines
  std::string kernels;  // of the only operator; empty: those that cuDNN expects to be the fastest
  const char* with;
  Tolerances tolerances;
};

// Whether the operator runs and nothing differs; otherwise logs a line.
bool agrees(const DeviceContext& device, const CudaContext& context, std::span<const OpSpec> specs, Op& op,
            const Comparison& comparison) {
  std::string differs;
  const auto compare_them = [&] {
    try {
      differs = difference(device, context, specs, op, comparison.kernels, comparison.tolerances);
    } catch (const Error& error) {
      if (error.code() != ExitCode::out_of_memory) throw;
    }
  };
  if (!attempt(context.stream, comparison.name, compare_them)) return false;
  if (differs.empty()) return true;
  log_warning("{} is skipped: {} differs from that of {}", comparison.name, differs, comparison.with);
  return false;
}

}  // namespace

bool agrees_with_separate(const DeviceContext& device, const CudaContext& context, std::span<const OpSpec> specs,
                          Op& op) {
  return agrees(device, context, specs, op,
                {fmt::format("the operator that computes {} together", names_of(specs)), "", "separate ones", kJoined});
}

bool agrees_with_library(const DeviceContext& device, const CudaContext& context, OpSpec spec, const std::string& own,
                         const std::string& library) {
  // A library's linear layer takes vectors; images are the same values in another order.
  if (auto* linear = std::get_if<LinearSpec>(&spec)) linear->image = LinearSpec{}.image;
  const std::span<const OpSpec> one(&spec, 1);
  const std::unique_ptr<Op> op = make_cuda_op(context, spec, kJoinedLayout, kJoinedLayout, own);
  return agrees(device, context, one, *op,
                {fmt::format("our own operator '{}' of {}", own, names_of(one)), library, "the library's",
                 tolerances_of(context.precision)});
}

}  // namespace ddp::cuda
