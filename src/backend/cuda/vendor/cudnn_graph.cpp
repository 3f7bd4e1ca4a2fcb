#include "backend/cuda/vendor/cudnn_graph.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "backend/cuda/device/check.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

constexpr const char* kDepthwise = "own.depthwise";

constexpr std::int64_t kX = 1;
constexpr std::int64_t kW = 2;
constexpr std::int64_t kY = 3;

cudnnDataType_t type_of(Precision precision) {
  if (precision == Precision::fp16) return CUDNN_DATA_HALF;
  return precision == Precision::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

// Strides of [n][h][w][c] in memory, in cuDNN's order of dimensions.
Descriptor channels_last(std::int64_t id, cudnnDataType_t type, std::int64_t n, std::int64_t c, std::int64_t h,
                         std::int64_t w) {
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w})
      .set(CUDNN_ATTR_TENSOR_STRIDES, {h * w * c, 1, w * c, c})
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {id})
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {std::int64_t{kAlignment}})
      .finalize();
  return tensor;
}

Descriptor describe_convolution(const ConvSpec& s) {
  Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2})
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {s.window.padding.top, s.window.padding.left})
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {s.window.padding.bottom, s.window.padding.right})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {s.window.dilation.vertical, s.window.dilation.horizontal})
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {s.window.stride.vertical, s.window.stride.horizontal})
      .finalize();
  return convolution;
}

// The corresponding attributes of each direction.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};

OperationNames names_of(ConvDirection direction) {
  switch (direction) {
    case ConvDirection::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvDirection::data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvDirection::weights:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

Descriptor describe_operation(const ConvProblem& problem, const Descriptor& convolution, const Descriptor& x,
                              const Descriptor& w, const Descriptor& y) {
  const OperationNames names = names_of(problem.direction);
  Descriptor operation(names.type);
  operation.set(names.convolution, convolution)
      .set(names.x, x)
      .set(names.w, w)
      .set(names.y, y)
      .set(names.alpha, 1.0F)  // as float: cuDNN 9.19 takes a double and reads its first half, which is zero
      .set(names.beta, problem.add ? 1.0F : 0.0F)
      .finalize();
  return operation;
}

Descriptor describe_graph(const Descriptor& operation, const PlanTarget& target) {
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  if (target.handle != nullptr) {
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  }
  graph.finalize();
  return graph;
}

Descriptor describe_config(const ConvGraph& graph, const EngineChoice& choice) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.graph()).set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {choice.engine});
  if (graph.target().handle == nullptr) engine.set(CUDNN_ATTR_ENGINE_DEVICEPROP, *graph.target().described);
  engine.finalize();
  std::vector<Descriptor> knobs;
  for (const auto& [type, value] : choice.knobs) {
    Descriptor knob(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    const auto knob_type = static_cast<cudnnBackendKnobType_t>(type);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob_type)
        .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, {value})
        .finalize();
    knobs.push_back(std::move(knob));
  }
  Descriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!knobs.empty()) config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
  config.finalize();
  return config;
}

Descriptor describe_plan(const ConvGraph& graph, const Descriptor& config) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (graph.target().handle != nullptr) {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &graph.target().handle);
  } else {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *graph.target().described);
  }
  plan.finalize();
  return plan;
}

// Runs `build`; a configuration that cuDNN does not support is a preflight error, not an internal one.
template <class Build>
auto planned(const EngineChoice& choice, Build build) {
  try {
    return build();
  } catch (const Error& error) {
    if (error.code() != ExitCode::internal) throw;
    throw Error(ExitCode::preflight, fmt::format("cuDNN has no kernel '{}' for this convolution on this GPU ({})",
                                                 choice.text(), error.what()));
  }
}

std::int64_t number_in(std::string_view text, const std::string& whole) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size(), ExitCode::preflight,
        "'{}' is not a kernel of cuDNN, such as cudnn.28 or cudnn.67,13:32", whole);
  return value;
}

}  // namespace

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  DDP_CUDNN(cudnnBackendCreateDescriptor(type, &descriptor));
  descriptor_.reset(descriptor);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                            const void* values) {
  DDP_CUDNN(cudnnBackendSetAttribute(get(), name, type, count, values));
  return *this;
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, std::initializer_list<std::int64_t> values) {
  return set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), std::data(values));
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  cudnnBackendDescriptor_t raw = value.get();
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, std::span<const Descriptor> values) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& value : values) raw.push_back(value.get());
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(raw.size()), raw.data());
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, float value) {
  return set(name, CUDNN_TYPE_FLOAT, 1, &value);
}

// Changes the object behind the handle.
// NOLINTNEXTLINE(readability-make-member-function-const)
void Descriptor::finalize() { DDP_CUDNN(cudnnBackendFinalize(get())); }

void Descriptor::read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t capacity,
                      std::int64_t* count, void* values) const {
  DDP_CUDNN(cudnnBackendGetAttribute(get(), name, type, capacity, count, values));
}

std::int64_t Descriptor::integer(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0;
  std::int64_t count = 0;
  read(name, CUDNN_TYPE_INT64, 1, &count, &value);
  DDP_ASSERT(count == 1);
  return value;
}

std::vector<Descriptor> Descriptor::children(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                             std::int64_t most) const {
  std::int64_t count = most;
  if (most == 0) read(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr);
  std::vector<Descriptor> values;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) raw.push_back(values.emplace_back(type).get());
  if (count > 0) read(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raw.data());
  values.erase(values.begin() + count, values.end());
  return values;
}

Descriptor describe_gpu(const std::string& json) {
  Descriptor gpu(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  gpu.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(json.size()),
          json.data())
      .finalize();
  return gpu;
}

std::string EngineChoice::text() const {
  if (depthwise) return kDepthwise;
  std::string text = fmt::format("cudnn.{}", engine);
  for (const auto& [type, value] : knobs) text += fmt::format(",{}:{}", type, value);
  return text;
}

EngineChoice EngineChoice::from_text(const std::string& text) {
  EngineChoice choice;
  choice.depthwise = text == kDepthwise;
  if (choice.depthwise) return choice;
  constexpr std::string_view kPrefix = "cudnn.";
  check(text.starts_with(kPrefix), ExitCode::preflight,
        "'{}' is not a convolution kernel, such as cudnn.28, cudnn.67,13:32 or {}", text, kDepthwise);
  std::string_view rest = std::string_view(text).substr(kPrefix.size());
  const auto next = [&rest] {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    return word;
  };
  choice.engine = number_in(next(), text);
  while (!rest.empty()) {
    const std::string_view word = next();
    const std::size_t colon = word.find(':');
    const std::string_view value = colon == std::string_view::npos ? std::string_view() : word.substr(colon + 1);
    choice.knobs.emplace_back(number_in(word.substr(0, colon), text), number_in(value, text));
  }
  return choice;
}

bool engine_allowed(const EngineNotes& notes, Precision precision, bool deterministic) {
  if (deterministic && notes.nondeterministic) return false;
  if (notes.reduced_sums || notes.rough_winograd) return false;
  if (precision != Precision::fp32) return true;
  return !notes.tensor_core && !notes.down_converts && !notes.fft && !notes.winograd_4x4;
}

ConvGraph::ConvGraph(const ConvProblem& problem, const PlanTarget& target)
    : target_(target),
      x_(channels_last(kX, type_of(problem.precision), problem.spec.batch, problem.spec.input.channels,
                       problem.spec.input.height, problem.spec.input.width)),
      // With fewer channels than x, cuDNN treats the convolution as grouped.
      w_(channels_last(kW, type_of(problem.precision), problem.spec.output_channels,
                       problem.spec.input.channels / problem.spec.groups, problem.spec.window.height,
                       problem.spec.window.width)),
      y_(channels_last(kY, type_of(problem.precision), problem.spec.batch, problem.spec.output_channels,
                       problem.spec.convolved().height, problem.spec.convolved().width)),
      convolution_(describe_convolution(problem.spec)),
      operation_(describe_operation(problem, convolution_, x_, w_, y_)),
      graph_(describe_graph(operation_, target)) {}

std::vector<Descriptor> ConvGraph::engine_configs(cudnnBackendHeurMode_t mode) const {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (target_.handle == nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target_.described);
  // A mode without proposals reports this as an error.
  if (cudnnBackendFinalize(heuristics.get()) != CUDNN_STATUS_SUCCESS) return {};
  return heuristics.children(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
}

EngineChoice choice_of(const Descriptor& engine_config) {
  const std::vector<Descriptor> engine =
      engine_config.children(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  DDP_ASSERT(engine.size() == 1);
  EngineChoice choice;
  choice.engine = engine[0].integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  for (const Descriptor& knob :
       // cuDNN does not report the number of knobs in advance.
       engine_config.children(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                              CUDNN_KNOB_TYPE_COUNTS)) {
    const auto type = knob.list<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE);
    DDP_ASSERT(type.size() == 1);
    choice.knobs.emplace_back(type[0], knob.integer(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  }
  return choice;
}

EngineNotes notes_of(const Descriptor& engine_config) {
  const std::vector<Descriptor> engine =
      engine_config.children(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  DDP_ASSERT(engine.size() == 1);
  const auto numerical =
      engine[0].list<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
  const auto behavior =
      engine[0].list<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
  const auto noted = [&](cudnnBackendNumericalNote_t note) {
    return std::find(numerical.begin(), numerical.end(), note) != numerical.end();
  };
  EngineNotes notes;
  notes.tensor_core = noted(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  notes.down_converts = noted(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  notes.reduced_sums = noted(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
  notes.nondeterministic = noted(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  notes.fft = noted(CUDNN_NUMERICAL_NOTE_FFT);
  notes.winograd_4x4 = noted(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4);
  notes.rough_winograd =
      noted(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) || noted(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
  notes.compiles =
      std::find(behavior.begin(), behavior.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behavior.end();
  return notes;
}

ConvPlan::ConvPlan(const ConvGraph& graph, Descriptor engine_config)
    : handle_(graph.target().handle),
      config_(std::move(engine_config)),
      choice_(choice_of(config_)),
      plan_(planned(choice_, [&] { return describe_plan(graph, config_); })),
      workspace_bytes_(static_cast<std::size_t>(plan_.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE))) {}

ConvPlan::ConvPlan(const ConvGraph& graph, const EngineChoice& choice)
    : ConvPlan(graph, planned(choice, [&] { return describe_config(graph, choice); })) {}

void ConvPlan::execute(const ConvPointers& pointers, void* workspace) {
  const bool same = pack_ != nullptr && packed_for_.x == pointers.x && packed_for_.w == pointers.w &&
                    packed_for_.y == pointers.y && packed_workspace_ == workspace;
  if (!same) {
    auto pack = std::make_unique<Descriptor>(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const std::array<const void*, 3> data = {pointers.x, pointers.w, pointers.y};
    pack->set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {kX, kW, kY})
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data.size(), data.data())
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
        .finalize();
    pack_ = std::move(pack);
    packed_for_ = pointers;
    packed_workspace_ = workspace;
  }
  DDP_CUDNN(cudnnBackendExecute(handle_, plan_.get(), pack_->get()));
}

}  // namespace ddp::cuda
