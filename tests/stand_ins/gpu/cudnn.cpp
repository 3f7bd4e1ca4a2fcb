// A stand-in for cuDNN's graph API, limited to a single convolution: it computes from the definition, using only the
// attributes that are set, and rejects inconsistent ones.
//
// It proposes these engines, in this order:
//   11  has knobs, one of them with a negative value
//   14  does nothing and is therefore the fastest
//   15  is proposed, but its plans cannot be built
//   12  has the note for tensor cores
//   13  has the note for nondeterminism
//   10  as a fallback, without a workspace
// preceded by one of 16 to 24 (engines.h) if a test requests it.
#include <cudnn.h>
#include <cudnn_backend.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "stand_ins/cuda/runtime.h"
#include "stand_ins/gpu/elements.h"
#include "stand_ins/gpu/engines.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace {

using ddp::stand_in::read_element;
using ddp::stand_in::write_element;

constexpr std::int64_t kWorkspace = 4096;
constexpr std::int64_t kWrong = 14;
constexpr std::int64_t kUnbuildable = 15;
constexpr std::int64_t kFailsAtOnce = 16;
constexpr std::int64_t kFailsLater = 17;
constexpr std::int64_t kBreaksGpu = 18;
constexpr std::int64_t kFft = 19;
constexpr std::int64_t kWinograd = 20;
constexpr std::int64_t kRough = 21;
constexpr std::int64_t kBorder = 22;
constexpr std::int64_t kInfinite = 23;
constexpr std::int64_t kOverwrites = 24;

std::vector<std::int64_t> proposed_first;
bool nothing_else = false;

struct Desc {
  cudnnBackendDescriptorType_t type;
  bool final = false;
  std::map<int, std::vector<unsigned char>> values;
  std::map<int, std::vector<std::shared_ptr<Desc>>> children;

  template <class T>
  std::vector<T> list(int name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<T> result(found->second.size() / sizeof(T));
    std::memcpy(result.data(), found->second.data(), result.size() * sizeof(T));
    return result;
  }
  template <class T>
  void put(int name, const std::vector<T>& list) {
    values[name].resize(list.size() * sizeof(T));
    std::memcpy(values[name].data(), list.data(), list.size() * sizeof(T));
  }
  const Desc& child(int name) const { return *children.at(name).at(0); }
  std::int64_t integer(int name) const { return list<std::int64_t>(name).at(0); }
};

// What a cudnnBackendDescriptor_t points to.
struct Handle {
  std::shared_ptr<Desc> desc;
};

std::shared_ptr<Desc>& desc_of(void* descriptor) { return static_cast<Handle*>(descriptor)->desc; }

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
      return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    default:
      return 4;  // an enumeration
  }
}

struct Direction {
  int convolution, x, w, y, alpha, beta, result;
};

Direction direction_of(const Desc& operation) {
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              2};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              0};
    default:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              1};
  }
}

ddp::Element element_of(cudnnDataType_t type) {
  if (type == CUDNN_DATA_HALF) return ddp::Element::fp16;
  return type == CUDNN_DATA_BFLOAT16 ? ddp::Element::bf16 : ddp::Element::fp32;
}

struct Tensor {
  std::int64_t id = 0;
  ddp::Element type = ddp::Element::fp32;
  std::vector<std::int64_t> sizes, strides;

  explicit Tensor(const Desc& desc)
      : id(desc.integer(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
        type(element_of(desc.list<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE).at(0))),
        sizes(desc.list<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides(desc.list<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES)) {}
  std::size_t at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
    return static_cast<std::size_t>(a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]);
  }
  std::size_t count() const { return static_cast<std::size_t>(sizes[0] * sizes[1] * sizes[2] * sizes[3]); }
};

struct Convolution {
  std::array<Tensor, 3> tensors;  // x, w, y
  std::size_t result;
  std::vector<std::int64_t> before, after, strides, dilations;
  double alpha, beta;

  explicit Convolution(const Desc& op)
      : tensors{Tensor(op.child(direction_of(op).x)), Tensor(op.child(direction_of(op).w)),
                Tensor(op.child(direction_of(op).y))},
        result(static_cast<std::size_t>(direction_of(op).result)),
        // Like cuDNN, reads the first four bytes whatever the type with which the factor was set.
        alpha(op.list<float>(direction_of(op).alpha).at(0)),
        beta(op.list<float>(direction_of(op).beta).at(0)) {
    const Desc& conv = op.child(direction_of(op).convolution);
    before = conv.list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    after = conv.list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    strides = conv.list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    dilations = conv.list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  }

  static void spoil(std::vector<double>& sums) {
    const double squares = std::inner_product(sums.begin(), sums.end(), sums.begin(), 0.0);
    const double typical = std::sqrt(squares / static_cast<double>(sums.size()));
    for (double& sum : sums) sum += 3e-4 * typical;
  }

  // As in cuDNN, weights with fewer channels than x mean a grouped convolution.
  std::int64_t groups() const { return tensors[0].sizes[1] / tensors[1].sizes[1]; }

  bool consistent() const {
    const auto& [x, w, y] = tensors;
    if (x.sizes[0] != y.sizes[0] || w.sizes[0] != y.sizes[1]) return false;
    if (w.sizes[1] == 0 || x.sizes[1] % w.sizes[1] != 0 || w.sizes[0] % groups() != 0) return false;
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t padded = x.sizes[i + 2] + before[i] + after[i];
      if (y.sizes[i + 2] != (padded - (w.sizes[i + 2] - 1) * dilations[i] - 1) / strides[i] + 1) return false;
    }
    return true;
  }

  // Calls f(place in memory, place in run()'s copy) for the elements of a tensor. Copies of images have the channel last, those of
  // weights the place in the window first, then [output][input] of each group, or forward [group][input][output], so that what
  // add_tap() adds to lies together.
  template <class F>
  void each_element(std::size_t which, F f) const {
    const Tensor& t = tensors.at(which);
    const std::int64_t inputs = tensors[1].sizes[1];
    const std::int64_t outputs = tensors[1].sizes[0] / groups();
    for (std::int64_t a = 0; a < t.sizes[0]; ++a) {
      for (std::int64_t b = 0; b < t.sizes[1]; ++b) {
        const std::int64_t inner = which != 1    ? b
                                   : result == 2 ? (a / outputs * inputs + b) * outputs + a % outputs
                                                 : a * inputs + b;
        const std::int64_t all = which != 1 ? t.sizes[1] : t.sizes[0] * t.sizes[1];
        const std::int64_t outer = which != 1 ? a : 0;
        for (std::int64_t c = 0; c < t.sizes[2]; ++c) {
          for (std::int64_t d = 0; d < t.sizes[3]; ++d) {
            f(t.at(a, b, c, d), static_cast<std::size_t>(((outer * t.sizes[2] + c) * t.sizes[3] + d) * all + inner));
          }
        }
      }
    }
  }

  // The products of one tap of the window at one pixel, of all groups.
  void add_tap(double* x, double* w, double* y) const {
    const auto inputs = static_cast<std::size_t>(tensors[1].sizes[1]);
    const auto outputs = static_cast<std::size_t>(tensors[1].sizes[0] / groups());
    for (std::int64_t g = 0; g < groups(); ++g, x += inputs, w += inputs * outputs, y += outputs) {
      if (result == 2) {
        for (std::size_t c = 0; c < inputs; ++c) ddp::stand_in::add_multiple(outputs, x[c], w + c * outputs, y);
        continue;
      }
      for (std::size_t k = 0; k < outputs; ++k) {
        double* const of_output = w + k * inputs;
        if (result == 0) {
          ddp::stand_in::add_multiple(inputs, y[k], of_output, x);
        } else {
          ddp::stand_in::add_multiple(inputs, y[k], x, of_output);
        }
      }
    }
  }

  void run(const std::array<void*, 3>& data, std::int64_t engine) const {
    const Tensor& x = tensors[0];
    const Tensor& w = tensors[1];
    const Tensor& y = tensors[2];
    std::array<std::vector<double>, 3> values;
    for (std::size_t t = 0; t < 3; ++t) {
      values.at(t).resize(tensors.at(t).count());
      if (t == result) continue;
      each_element(t, [&](std::size_t from, std::size_t to) {
        values.at(t)[to] = read_element(data.at(t), from, tensors.at(t).type);
      });
    }
    double* y_pixel = values[2].data();
    for (std::int64_t n = 0; n < y.sizes[0]; ++n) {
      for (std::int64_t i = 0; i < y.sizes[2]; ++i) {
        for (std::int64_t j = 0; j < y.sizes[3]; ++j, y_pixel += y.sizes[1]) {
          double* tap = values[1].data();
          for (std::int64_t r = 0; r < w.sizes[2]; ++r) {
            for (std::int64_t s = 0; s < w.sizes[3]; ++s, tap += w.sizes[0] * w.sizes[1]) {
              const std::int64_t row = i * strides[0] + r * dilations[0] - before[0];
              const std::int64_t column = j * strides[1] + s * dilations[1] - before[1];
              if (row < 0 || row >= x.sizes[2] - (engine == kBorder ? 1 : 0) || column < 0 || column >= x.sizes[3])
                continue;
              add_tap(values[0].data() + ((n * x.sizes[2] + row) * x.sizes[3] + column) * x.sizes[1], tap, y_pixel);
            }
          }
        }
      }
    }
    std::vector<double> sums(tensors.at(result).count());
    each_element(result, [&](std::size_t to, std::size_t from) { sums[to] = values.at(result)[from]; });
    if (engine == kRough) spoil(sums);
    if (engine == kInfinite) sums.back() = HUGE_VAL;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const ddp::Element type = tensors.at(result).type;
      const double old = beta == 0 || engine == kOverwrites ? 0 : beta * read_element(data.at(result), i, type);
      write_element(data.at(result), i, type, alpha * sums[i] + old);
    }
  }
};

std::shared_ptr<Desc> make_config(const std::shared_ptr<Desc>& graph, std::int64_t index,
                                  const std::vector<std::pair<int, std::int64_t>>& knobs) {
  auto engine = std::make_shared<Desc>(Desc{CUDNN_BACKEND_ENGINE_DESCRIPTOR, true, {}, {}});
  engine->put<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {index});
  engine->children[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = {graph};
  static const std::map<std::int64_t, cudnnBackendNumericalNote_t> notes = {
      {12, CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
      {13, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
      {kFft, CUDNN_NUMERICAL_NOTE_FFT},
      {kWinograd, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4}};
  if (notes.contains(index)) engine->put(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, std::vector{notes.at(index)});
  auto config = std::make_shared<Desc>(Desc{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, true, {}, {}});
  config->children[CUDNN_ATTR_ENGINECFG_ENGINE] = {engine};
  for (const auto& [type, value] : knobs) {
    auto knob = std::make_shared<Desc>(Desc{CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, true, {}, {}});
    knob->put<int>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, {type});
    knob->put<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, {value});
    config->children[CUDNN_ATTR_ENGINECFG_KNOB_CHOICES].push_back(knob);
  }
  return config;
}

// The knobs of each engine that exists.
const std::map<std::int64_t, std::vector<std::pair<int, std::int64_t>>>& engines() {
  static const std::map<std::int64_t, std::vector<std::pair<int, std::int64_t>>> all = {
      {10, {}},           {11, {{2, 3}, {13, -1}}}, {12, {}},
      {13, {}},           {kWrong, {{2, 1}}},       {kUnbuildable, {}},
      {kFailsAtOnce, {}}, {kFailsLater, {}},        {kBreaksGpu, {}},
      {kFft, {}},         {kWinograd, {}},          {kRough, {}},
      {kBorder, {}},      {kInfinite, {}},          {kOverwrites, {}}};
  return all;
}

cudnnStatus_t finalize(Desc& desc) {
  if (desc.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR &&
      !Convolution(desc.child(CUDNN_ATTR_OPERATIONGRAPH_OPS)).consistent()) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  if (desc.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    const auto& graph = desc.children.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).at(0);
    const auto mode = desc.list<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE).at(0);
    std::vector<std::int64_t> proposed = mode == CUDNN_HEUR_MODE_A
                                             ? std::vector<std::int64_t>{11, kWrong, kUnbuildable, 12, 13}
                                             : std::vector<std::int64_t>{11, 10};
    if (nothing_else) proposed.clear();
    proposed.insert(proposed.begin(), proposed_first.begin(), proposed_first.end());
    for (const std::int64_t engine : proposed) {
      desc.children[CUDNN_ATTR_ENGINEHEUR_RESULTS].push_back(make_config(graph, engine, engines().at(engine)));
    }
  }
  if (desc.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
    const std::int64_t index = desc.integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    if (!engines().contains(index)) return CUDNN_STATUS_NOT_SUPPORTED;
  }
  if (desc.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    const Desc& config = desc.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const std::int64_t engine = config.child(CUDNN_ATTR_ENGINECFG_ENGINE).integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    if (engine == kUnbuildable) return CUDNN_STATUS_NOT_SUPPORTED;
    desc.put<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, {engine == 10 ? 0 : kWorkspace});
  }
  desc.final = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_attribute(Desc& desc, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t count, const void* values) {
  if (desc.final) return CUDNN_STATUS_NOT_INITIALIZED;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* from = static_cast<const cudnnBackendDescriptor_t*>(values);
    desc.children[name].clear();
    for (std::int64_t i = 0; i < count; ++i) {
      if (!desc_of(from[i])->final) return CUDNN_STATUS_BAD_PARAM;
      desc.children[name].push_back(desc_of(from[i]));
    }
    return CUDNN_STATUS_SUCCESS;
  }
  const auto* from = static_cast<const unsigned char*>(values);
  desc.values[name] = {from, from + static_cast<std::size_t>(count) * bytes_of(type)};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_attribute(const Desc& desc, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t wanted, int64_t* count, void* values) {
  if (!desc.final) return CUDNN_STATUS_NOT_INITIALIZED;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto found = desc.children.find(name);
    const std::int64_t have = found == desc.children.end() ? 0 : static_cast<std::int64_t>(found->second.size());
    // Like cuDNN, does not report the number of knob choices in advance.
    const bool tells = wanted > 0 || name != CUDNN_ATTR_ENGINECFG_KNOB_CHOICES;
    *count = tells ? (wanted > 0 ? std::min(have, wanted) : have) : 0;
    for (std::int64_t i = 0; wanted > 0 && i < *count; ++i) {
      desc_of(static_cast<cudnnBackendDescriptor_t*>(values)[i]) = found->second[static_cast<std::size_t>(i)];
    }
    return CUDNN_STATUS_SUCCESS;
  }
  const auto found = desc.values.find(name);
  const std::size_t bytes = bytes_of(type);
  const std::int64_t have = found == desc.values.end() ? 0 : static_cast<std::int64_t>(found->second.size() / bytes);
  *count = wanted > 0 ? std::min(have, wanted) : have;
  if (wanted > 0 && *count > 0) std::memcpy(values, found->second.data(), static_cast<std::size_t>(*count) * bytes);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

namespace ddp::stand_in {

std::int64_t wrong_engine() { return kWrong; }

std::int64_t rough_engine() { return kRough; }
std::int64_t border_engine() { return kBorder; }
std::int64_t infinite_engine() { return kInfinite; }
std::int64_t overwriting_engine() { return kOverwrites; }

ProposeFirst::ProposeFirst(std::int64_t engine, bool alone) {
  proposed_first = {engine};
  nothing_else = alone;
}
ProposeFirst::~ProposeFirst() {
  proposed_first.clear();
  nothing_else = false;
}

}  // namespace ddp::stand_in

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = std::make_unique<cudnnContext>().release();
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  const std::unique_ptr<cudnnContext> owned(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t /*status*/) { return "an error of the stand-in cuDNN"; }
void cudnnGetLastErrorString(char* message, size_t size) {
  if (size > 0) message[0] = '\0';
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  auto desc = std::make_shared<Desc>(Desc{type, false, {}, {}});
  *descriptor = std::make_unique<Handle>(Handle{std::move(desc)}).release();
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  const std::unique_ptr<Handle> owned(static_cast<Handle*>(descriptor));
  return CUDNN_STATUS_SUCCESS;
}

// cuDNN's parameter names, because clang-tidy compares them.
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType, int64_t elementCount,
                                       const void* arrayOfElements) {
  return set_attribute(*desc_of(descriptor), attributeName, attributeType, elementCount, arrayOfElements);
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType, int64_t requestedElementCount,
                                       int64_t* elementCount, void* arrayOfElements) {
  return get_attribute(*desc_of(descriptor), attributeName, attributeType, requestedElementCount, elementCount,
                       arrayOfElements);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) { return finalize(*desc_of(descriptor)); }

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  const Desc& config = desc_of(plan)->child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Desc& engine = config.child(CUDNN_ATTR_ENGINECFG_ENGINE);
  const Convolution conv(engine.child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH).child(CUDNN_ATTR_OPERATIONGRAPH_OPS));
  const auto ids = desc_of(pack)->list<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = desc_of(pack)->list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  void* workspace = desc_of(pack)->list<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE).at(0);
  std::array<void*, 3> data{};
  for (std::size_t t = 0; t < 3; ++t) {
    const auto id = std::find(ids.begin(), ids.end(), conv.tensors.at(t).id);
    if (id == ids.end()) return CUDNN_STATUS_BAD_PARAM;
    data.at(t) = pointers.at(static_cast<std::size_t>(id - ids.begin()));
    if (reinterpret_cast<std::uintptr_t>(data.at(t)) % 16 != 0) return CUDNN_STATUS_BAD_PARAM;
  }
  const auto bytes = static_cast<std::size_t>(desc_of(plan)->integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  const std::int64_t index = engine.integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  if (index == kFailsAtOnce) return CUDNN_STATUS_EXECUTION_FAILED;
  if (index == kFailsLater || index == kBreaksGpu) {
    ddp::testing::enqueue(handle->stream, "failure", [index] {
      if (index == kBreaksGpu) ddp::testing::break_streams(cudaErrorIllegalAddress);
      if (index == kFailsLater) ddp::testing::report_once(cudaErrorLaunchOutOfResources);
    });
    return CUDNN_STATUS_SUCCESS;
  }
  const bool wrong = index == kWrong;
  ddp::testing::enqueue(handle->stream, "convolution", [=] {
    ddp::stand_in::spoil(workspace, bytes);
    if (!wrong) conv.run(data, index);
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
