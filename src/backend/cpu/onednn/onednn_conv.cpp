#include <algorithm>
#include <optional>
#include <string_view>
#include <type_traits>

#include "backend/arithmetic.h"
#include "backend/cpu/onednn/onednn.h"
#include "backend/cpu/onednn/primitives.h"
#include "backend/cpu/pool/pool.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

using dnnl::memory;
using onednn::BoundPrimitive;
using onednn::Reorder;
using Tag = memory::format_tag;

constexpr std::string_view kLinear = "linear";

// The dimensions of a convolution in oneDNN's form: of a linear layer with a row for each position, if the format is that.
struct Dims {
  memory::dims x, w, b, y, strides, dilates, pad_begin, pad_end;

  Tag weights = Tag::oihw;  // PyTorch's order
  Tag activations = Tag::nhwc;

  Dims(const ConvSpec& s, const std::string& format)
      : x{s.batch, s.input.channels, s.input.height, s.input.width},
        w{s.output_channels, s.input.channels, s.window.height, s.window.width},
        b{s.output_channels},
        y{s.batch, s.output_channels, s.convolved().height, s.convolved().width},
        strides{s.window.stride.vertical, s.window.stride.horizontal},
        dilates{s.window.dilation.vertical - 1, s.window.dilation.horizontal - 1},
        pad_begin{s.window.padding.top, s.window.padding.left},
        pad_end{s.window.padding.bottom, s.window.padding.right} {
    if (format == kLinear) {
      const std::int64_t positions = s.batch * s.input.height * s.input.width;
      x = {positions, s.input.channels};
      w = {s.output_channels, s.input.channels};
      y = {positions, s.output_channels};
      weights = activations = Tag::ab;
    }
    if (s.groups == 1) return;
    w = {s.groups, s.output_channels / s.groups, s.input.channels / s.groups, s.window.height, s.window.width};
    weights = Tag::goihw;
  }
};

dnnl::algorithm algorithm_of(const std::string& name) {
  return name == "winograd" ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct;
}

Tag activation_tag(const std::string& name) { return name == "nhwc" ? Tag::nhwc : Tag::any; }

// A tensor of activations or of the weights that they are multiplied by.
memory::desc values_of(Element element, const memory::dims& dims, Tag tag) {
  return {dims, element == Element::bf16 ? memory::data_type::bf16 : memory::data_type::f32, tag};
}

// The forward direction in a format, with its ReLU (`fused`) or, as a hint for backward, without; `use` takes the
// description, whose type depends on the format.
template <class Use>
auto with_forward(const ConvSpec& s, const std::string& format, Element element, bool fused, Use use) {
  const Dims d(s, format);
  const auto values = [=](const memory::dims& dims, Tag tag) { return values_of(element, dims, tag); };
  dnnl::primitive_attr attributes = onednn::user_scratchpad();
  if (s.relu && fused) onednn::append_relu(attributes);
  const memory::desc bias = s.bias ? onednn::floats(d.b, Tag::a) : memory::desc();
  constexpr auto kTraining = dnnl::prop_kind::forward_training;
  if (format == kLinear) {
    return use(onednn::describe<dnnl::inner_product_forward>(attributes, kTraining, values(d.x, Tag::ab),
                                                             values(d.w, Tag::any), bias, values(d.y, Tag::ab)));
  }
  const Tag tag = activation_tag(format);
  return use(onednn::describe<dnnl::convolution_forward>(attributes, kTraining, algorithm_of(format), values(d.x, tag),
                                                         values(d.w, Tag::any), bias, values(d.y, tag), d.strides,
                                                         d.dilates, d.pad_begin, d.pad_end));
}

template <class Description>
constexpr bool is_linear =
    std::is_same_v<std::remove_cvref_t<Description>, dnnl::inner_product_forward::primitive_desc>;

// One direction: its primitive, the surrounding reorders and their offsets in the workspace.
struct Side {
  Reorder reorder;
  Workspace::Part<std::byte> part;

  Side() = default;
  Side(const memory::desc& from, const memory::desc& to, const memory::desc& internal, Workspace& workspace)
      : reorder(from, to),
        part(workspace.add<std::byte>(reorder.needed() ? static_cast<std::int64_t>(internal.get_size()) : 0)) {}
};

class OneDnnConv final : public Op {
 public:
  OneDnnConv(const ConvSpec& spec, const OneDnnConvFormats& formats, Element element) : spec_(spec), element_(element) {
    build_forward(formats.forward);
    build_weights(formats.weights);
    if (spec.input_gradient) build_data(formats.data);
  }

  OpTraits traits() const override {
    return {.saved_bytes = spec_.average_pool ? convolved_bytes() : 0,
            .workspace_bytes = std::max(forward_space_.bytes(), backward_space_.bytes()),
            .backward_reads_inputs = {0},
            .backward_reads_y = spec_.relu && !spec_.average_pool};
  }

  void forward(const ForwardArguments& a) override {
    void* full = spec_.average_pool ? a.saved : a.y.data();
    forward_.point(DNNL_ARG_SRC, forward_x_.reorder.apply(a.x().data(), forward_x_.part.in(a.workspace)));
    forward_.point(DNNL_ARG_WEIGHTS, forward_w_.reorder.apply(a.parameters[0], forward_w_.part.in(a.workspace)));
    if (spec_.bias) forward_.point(DNNL_ARG_BIAS, a.parameters[1]);
    std::byte* internal = forward_y_.part.in(a.workspace);
    forward_.point(DNNL_ARG_DST, forward_y_.reorder.needed() ? internal : full);
    forward_.point(DNNL_ARG_SCRATCHPAD, forward_scratch_.in(a.workspace));
    forward_.run("convolution forward");
    (void)forward_y_.reorder.apply(internal, full);
    if (spec_.average_pool) {
      const Shape shape = spec_.convolved();
      average_pool2(static_cast<const float*>(full), a.y.fp32(), spec_.batch, shape.height, shape.width,
                    shape.channels);
    }
  }

  void backward(const BackwardArguments& a) override {
    const void* x = active_samples(a.x(), a.active, spec_.input, active_x_.in(a.workspace));
    const void* dpre =
        spec_.relu ? open_gradient(a) : active_samples(a.dy, a.active, spec_.output(), active_dy_.in(a.workspace));
    weights_.point(DNNL_ARG_SRC, weights_x_.reorder.apply(x, weights_x_.part.in(a.workspace)));
    weights_.point(DNNL_ARG_DIFF_DST, weights_dy_.reorder.apply(dpre, weights_dy_.part.in(a.workspace)));
    std::byte* internal = weights_dw_.part.in(a.workspace);
    weights_.point(DNNL_ARG_DIFF_WEIGHTS,
                   weights_dw_.reorder.needed() ? static_cast<void*>(internal) : a.parameter_gradients[0]);
    if (spec_.bias) weights_.point(DNNL_ARG_DIFF_BIAS, a.parameter_gradients[1]);
    weights_.point(DNNL_ARG_SCRATCHPAD, backward_scratch_.in(a.workspace));
    weights_.run("convolution weight gradient");
    (void)weights_dw_.reorder.apply(internal, a.parameter_gradients[0]);
    if (!spec_.input_gradient) return;
    data_.point(DNNL_ARG_DIFF_DST, data_dy_.reorder.apply(dpre, data_dy_.part.in(a.workspace)));
    data_.point(DNNL_ARG_WEIGHTS, data_w_.reorder.apply(a.parameters[0], data_w_.part.in(a.workspace)));
    internal = data_dx_.part.in(a.workspace);
    data_.point(DNNL_ARG_DIFF_SRC, data_dx_.reorder.needed() ? internal : a.dx().data());
    data_.point(DNNL_ARG_SCRATCHPAD, backward_scratch_.in(a.workspace));
    data_.run("convolution data gradient");
    (void)data_dx_.reorder.apply(internal, a.dx().data());
  }

 private:
  std::size_t convolved_bytes() const {
    return static_cast<std::size_t>(spec_.batch * spec_.convolved().elements()) * sizeof(float);
  }

  // In bf16 the samples that are not active may be anything, also NaN, which the sum over all must not see: a copy without
  // them, unless there are none.
  const void* active_samples(ConstActivations from, std::int64_t active, const Shape& shape, Bf16* copy) const {
    if (element_ == Element::fp32 || active == spec_.batch) return from.data();
    std::copy_n(from.bf16(), active * shape.elements(), copy);
    std::fill_n(copy + active * shape.elements(), (spec_.batch - active) * shape.elements(), Bf16{});
    return copy;
  }

  memory::desc values(const memory::dims& dims, Tag tag) const { return values_of(element_, dims, tag); }

  // The gradient before ReLU and pooling.
  const float* open_gradient(const BackwardArguments& a) const {
    float* dpre = dpre_.in(a.workspace);
    const Shape shape = spec_.convolved();
    if (spec_.average_pool) {
      const auto* full = static_cast<const float*>(static_cast<const void*>(a.saved));
      average_pool2_relu_backward(a.dy.fp32(), full, dpre, spec_.batch, shape.height, shape.width, shape.channels);
      return dpre;
    }
    const std::int64_t count = spec_.batch * shape.elements();
    const float* const y = a.y.fp32();
    const float* const dy = a.dy.fp32();
#pragma omp parallel for simd schedule(static)
    for (std::int64_t i = 0; i < count; ++i) dpre[i] = relu_gradient(y[i], dy[i]);
    return dpre;
  }

  void build_forward(const std::string& format) {
    with_forward(spec_, format, element_, true, [&](const auto& d) {
      const Dims dims(spec_, format);
      forward_ = BoundPrimitive(dnnl::primitive(d.get()));
      forward_.bind(DNNL_ARG_SRC, d.src_desc());
      forward_.bind(DNNL_ARG_WEIGHTS, d.weights_desc());
      if (spec_.bias) forward_.bind(DNNL_ARG_BIAS, d.bias_desc());
      forward_.bind(DNNL_ARG_DST, d.dst_desc());
      forward_.bind(DNNL_ARG_SCRATCHPAD, d.scratchpad_desc());
      Workspace& space = forward_space_;
      forward_x_ = Side(values(dims.x, dims.activations), d.src_desc(), d.src_desc(), space);
      forward_w_ = Side(onednn::floats(dims.w, dims.weights), d.weights_desc(), d.weights_desc(), space);
      forward_y_ = Side(d.dst_desc(), values(dims.y, dims.activations), d.dst_desc(), space);
      forward_scratch_ = space.add<std::byte>(static_cast<std::int64_t>(d.scratchpad_desc().get_size()));
    });
  }

  void build_weights(const std::string& format) {
    with_forward(spec_, format, element_, false, [&](const auto& hint) {
      const Dims s(spec_, format);
      const memory::desc bias = spec_.bias ? onednn::floats(s.b, Tag::a) : memory::desc();
      const memory::desc dw = onednn::floats(s.w, Tag::any);
      if constexpr (is_linear<decltype(hint)>) {
        bind_weights(onednn::describe_backward<dnnl::inner_product_backward_weights>(
                         hint, onednn::user_scratchpad(), values(s.x, Tag::ab), dw, bias, values(s.y, Tag::ab)),
                     s);
      } else {
        const Tag tag = activation_tag(format);
        bind_weights(onednn::describe_backward<dnnl::convolution_backward_weights>(
                         hint, onednn::user_scratchpad(), algorithm_of(format), values(s.x, tag), dw, bias,
                         values(s.y, tag), s.strides, s.dilates, s.pad_begin, s.pad_end),
                     s);
      }
    });
  }

  template <class Description>
  void bind_weights(const Description& d, const Dims& s) {
    weights_ = BoundPrimitive(dnnl::primitive(d.get()));
    weights_.bind(DNNL_ARG_SRC, d.src_desc());
    weights_.bind(DNNL_ARG_DIFF_DST, d.diff_dst_desc());
    weights_.bind(DNNL_ARG_DIFF_WEIGHTS, d.diff_weights_desc());
    if (spec_.bias) weights_.bind(DNNL_ARG_DIFF_BIAS, d.diff_bias_desc());
    weights_.bind(DNNL_ARG_SCRATCHPAD, d.scratchpad_desc());
    Workspace& space = backward_space_;
    dpre_ = space.add<float>(spec_.relu ? spec_.batch * spec_.convolved().elements() : 0);
    if (element_ == Element::bf16) {
      active_x_ = space.add<Bf16>(spec_.batch * spec_.input.elements());
      active_dy_ = space.add<Bf16>(spec_.batch * spec_.output().elements());
    }
    weights_x_ = Side(values(s.x, s.activations), d.src_desc(), d.src_desc(), space);
    weights_dy_ = Side(values(s.y, s.activations), d.diff_dst_desc(), d.diff_dst_desc(), space);
    weights_dw_ = Side(d.diff_weights_desc(), onednn::floats(s.w, s.weights), d.diff_weights_desc(), space);
    scratch_bytes_ = d.scratchpad_desc().get_size();
    backward_scratch_ = space.add<std::byte>(static_cast<std::int64_t>(scratch_bytes_));
  }

  void build_data(const std::string& format) {
    with_forward(spec_, format, element_, false, [&](const auto& hint) {
      const Dims s(spec_, format);
      const memory::desc w = values(s.w, Tag::any);
      if constexpr (is_linear<decltype(hint)>) {
        bind_data(onednn::describe_backward<dnnl::inner_product_backward_data>(
                      hint, onednn::user_scratchpad(), values(s.x, Tag::ab), w, values(s.y, Tag::ab)),
                  s);
      } else {
        const Tag tag = activation_tag(format);
        bind_data(onednn::describe_backward<dnnl::convolution_backward_data>(
                      hint, onednn::user_scratchpad(), algorithm_of(format), values(s.x, tag), w, values(s.y, tag),
                      s.strides, s.dilates, s.pad_begin, s.pad_end),
                  s);
      }
    });
  }

  template <class Description>
  void bind_data(const Description& d, const Dims& s) {
    data_ = BoundPrimitive(dnnl::primitive(d.get()));
    data_.bind(DNNL_ARG_DIFF_SRC, d.diff_src_desc());
    data_.bind(DNNL_ARG_WEIGHTS, d.weights_desc());
    data_.bind(DNNL_ARG_DIFF_DST, d.diff_dst_desc());
    data_.bind(DNNL_ARG_SCRATCHPAD, d.scratchpad_desc());
    Workspace& space = backward_space_;
    data_dy_ = Side(values(s.y, s.activations), d.diff_dst_desc(), d.diff_dst_desc(), space);
    data_w_ = Side(onednn::floats(s.w, s.weights), d.weights_desc(), d.weights_desc(), space);
    data_dx_ = Side(d.diff_src_desc(), values(s.x, s.activations), d.diff_src_desc(), space);
    // The scratchpads of the two directions are never in use at the same time.
    if (d.scratchpad_desc().get_size() > scratch_bytes_) {
      backward_scratch_ = space.add<std::byte>(static_cast<std::int64_t>(d.scratchpad_desc().get_size()));
    }
  }

  ConvSpec spec_;
  Element element_;
  BoundPrimitive forward_, weights_, data_;
  Side forward_x_, forward_w_, forward_y_;
  Side weights_x_, weights_dy_, weights_dw_;
  Side data_dy_, data_w_, data_dx_;
  Workspace forward_space_, backward_space_;
  Workspace::Part<std::byte> forward_scratch_, backward_scratch_;
  Workspace::Part<float> dpre_;
  Workspace::Part<Bf16> active_x_, active_dy_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace

std::string to_text(const OneDnnConvFormats& f, Element element) {
  const char* library = element == Element::bf16 ? "onednn-bf16" : "onednn";
  return fmt::format("forward={0}.{1} data={0}.{2} weights={0}.{3}", library, f.forward, f.data, f.weights);
}

bool is_onednn_bf16_text(const std::string& kernels) { return kernels.starts_with("forward=onednn-bf16."); }

OneDnnConvFormats onednn_formats_from_text(const std::string& kernels) {
  const std::string library = is_onednn_bf16_text(kernels) ? "=onednn-bf16." : "=onednn.";
  const auto word = [&](const std::string& key) {
    const std::string wanted = key + library;
    const std::size_t at = kernels.find(wanted);
    check(at != std::string::npos, ExitCode::preflight, "the plan '{}' does not name a oneDNN kernel for '{}'", kernels,
          key);
    const std::size_t begin = at + wanted.size();
    return kernels.substr(begin, kernels.find(' ', begin) - begin);
  };
  return {word("forward"), word("data"), word("weights")};
}

namespace {

// Whether there are instructions for bf16: without them oneDNN computes bf16 much slower than fp32.
bool multiplies_bf16() {
  const auto has = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  return (has & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

}  // namespace

std::unique_ptr<Op> make_onednn_conv(const ConvSpec& spec, const OneDnnConvFormats& formats, Element element) {
  if (element == Element::bf16 && (spec.relu || spec.average_pool || !multiplies_bf16())) return nullptr;
  // oneDNN 2.6.3 computes wrong data gradients of 1x1 windows in bf16 from an odd number of channels.
  const bool odd = spec.output_channels / spec.groups % 2 == 1;
  if (element == Element::bf16 && odd && spec.input_gradient) return nullptr;
  const bool linear = formats.forward == kLinear || formats.data == kLinear || formats.weights == kLinear;
  if (linear && !(spec.window == square(1) && spec.groups == 1)) return nullptr;
  // oneDNN 2.6.3 computes wrong data gradients with Winograd if the padding of opposite sides differs.
  const bool even =
      spec.window.padding.top == spec.window.padding.bottom && spec.window.padding.left == spec.window.padding.right;
  if (formats.data == "winograd" && spec.input_gradient && !even) return nullptr;
  // With AVX2, oneDNN 2.6.3 computes wrong weight gradients of strided 1x1 windows in nhwc from fewer than 8 channels: its
  // threads' copies of the pixels overlap.
  const bool thin = spec.input.channels / spec.groups < 8;
  const bool skips = spec.window.elements() == 1 && !(spec.window.stride == 1);
  OneDnnConvFormats used = formats;
  if (thin && skips && used.weights == "nhwc") used.weights = "any";
  try {
    return std::make_unique<OneDnnConv>(spec, used, element);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return nullptr;
    throw Error(ExitCode::internal, fmt::format("oneDNN: building a convolution: {}", error.what()));
  }
}

}  // namespace ddp
