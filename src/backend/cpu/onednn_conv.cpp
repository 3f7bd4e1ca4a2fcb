#include <algorithm>
#include <optional>

#include "backend/arithmetic.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/operators.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

using dnnl::memory;
using onednn::BoundPrimitive;
using onednn::Reorder;
using Tag = memory::format_tag;

// The dimensions of a convolution in oneDNN's form.
struct Dims {
  memory::dims x, w, b, y, strides, dilates, pad_begin, pad_end;

  Tag weights = Tag::oihw;  // PyTorch's order

  explicit Dims(const ConvSpec& s)
      : x{s.batch, s.input.channels, s.input.height, s.input.width},
        w{s.output_channels, s.input.channels, s.window.height, s.window.width},
        b{s.output_channels},
        y{s.batch, s.output_channels, s.convolved().height, s.convolved().width},
        strides{s.window.stride.vertical, s.window.stride.horizontal},
        dilates{s.window.dilation.vertical - 1, s.window.dilation.horizontal - 1},
        pad_begin{s.window.padding.top, s.window.padding.left},
        pad_end{s.window.padding.bottom, s.window.padding.right} {
    if (s.groups == 1) return;
    w = {s.groups, s.output_channels / s.groups, s.input.channels / s.groups, s.window.height, s.window.width};
    weights = Tag::goihw;
  }
};

dnnl::algorithm algorithm_of(const std::string& name) {
  return name == "winograd" ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct;
}

Tag activation_tag(const std::string& name) { return name == "nhwc" ? Tag::nhwc : Tag::any; }

dnnl::convolution_forward::primitive_desc describe_forward(const ConvSpec& s, const std::string& name) {
  const Dims d(s);
  dnnl::primitive_attr attributes = onednn::user_scratchpad();
  if (s.relu) onednn::append_relu(attributes);
  const Tag tag = activation_tag(name);
  const memory::desc bias = s.bias ? onednn::floats(d.b, Tag::a) : memory::desc();
  return onednn::describe<dnnl::convolution_forward>(
      attributes, dnnl::prop_kind::forward_training, algorithm_of(name), onednn::floats(d.x, tag),
      onednn::floats(d.w, Tag::any), bias, onednn::floats(d.y, tag), d.strides, d.dilates, d.pad_begin, d.pad_end);
}

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
  OneDnnConv(const ConvSpec& spec, const OneDnnConvFormats& formats) : spec_(spec) {
    const auto hint = describe_forward(spec, formats.forward);
    build_forward(hint);
    build_weights(formats.weights);
    if (spec.input_gradient) build_data(formats.data);
  }

  std::size_t saved_bytes() const override { return spec_.average_pool ? convolved_bytes() : 0; }
  std::size_t workspace_bytes() const override { return std::max(forward_space_.bytes(), backward_space_.bytes()); }
  bool backward_reads_x() const override { return true; }
  bool backward_reads_y() const override { return spec_.relu && !spec_.average_pool; }

  void forward(const ForwardArguments& a) override {
    auto* full = spec_.average_pool ? static_cast<float*>(static_cast<void*>(a.saved)) : a.y.fp32();
    forward_.point(DNNL_ARG_SRC, forward_x_.reorder.apply(a.x.fp32(), forward_x_.part.in(a.workspace)));
    forward_.point(DNNL_ARG_WEIGHTS, forward_w_.reorder.apply(a.parameters[0], forward_w_.part.in(a.workspace)));
    if (spec_.bias) forward_.point(DNNL_ARG_BIAS, a.parameters[1]);
    std::byte* internal = forward_y_.part.in(a.workspace);
    forward_.point(DNNL_ARG_DST, forward_y_.reorder.needed() ? static_cast<void*>(internal) : full);
    forward_.point(DNNL_ARG_SCRATCHPAD, forward_scratch_.in(a.workspace));
    forward_.run("convolution forward");
    (void)forward_y_.reorder.apply(internal, full);
    if (spec_.average_pool) {
      const Shape shape = spec_.convolved();
      average_pool2(full, a.y.fp32(), spec_.batch, shape.height, shape.width, shape.channels);
    }
  }

  void backward(const BackwardArguments& a) override {
    const float* dpre = open_gradient(a);
    weights_.point(DNNL_ARG_SRC, weights_x_.reorder.apply(a.x.fp32(), weights_x_.part.in(a.workspace)));
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
    data_.point(DNNL_ARG_DIFF_SRC, data_dx_.reorder.needed() ? static_cast<void*>(internal) : a.dx.fp32());
    data_.point(DNNL_ARG_SCRATCHPAD, backward_scratch_.in(a.workspace));
    data_.run("convolution data gradient");
    (void)data_dx_.reorder.apply(internal, a.dx.fp32());
  }

 private:
  std::size_t convolved_bytes() const {
    return static_cast<std::size_t>(spec_.batch * spec_.convolved().elements()) * sizeof(float);
  }

  // The gradient before ReLU and pooling.
  const float* open_gradient(const BackwardArguments& a) const {
    if (!spec_.relu) return a.dy.fp32();
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

  void build_forward(const dnnl::convolution_forward::primitive_desc& d) {
    const Dims dims(spec_);
    forward_ = BoundPrimitive(dnnl::convolution_forward(d));
    forward_.bind(DNNL_ARG_SRC, d.src_desc());
    forward_.bind(DNNL_ARG_WEIGHTS, d.weights_desc());
    if (spec_.bias) forward_.bind(DNNL_ARG_BIAS, d.bias_desc());
    forward_.bind(DNNL_ARG_DST, d.dst_desc());
    forward_.bind(DNNL_ARG_SCRATCHPAD, d.scratchpad_desc());
    Workspace& space = forward_space_;
    forward_x_ = Side(onednn::floats(dims.x, Tag::nhwc), d.src_desc(), d.src_desc(), space);
    forward_w_ = Side(onednn::floats(dims.w, dims.weights), d.weights_desc(), d.weights_desc(), space);
    forward_y_ = Side(d.dst_desc(), onednn::floats(dims.y, Tag::nhwc), d.dst_desc(), space);
    forward_scratch_ = space.add<std::byte>(static_cast<std::int64_t>(d.scratchpad_desc().get_size()));
  }

  void build_weights(const std::string& name) {
    const Dims s(spec_);
    const Tag tag = activation_tag(name);
    const memory::desc bias = spec_.bias ? onednn::floats(s.b, Tag::a) : memory::desc();
    const auto d = onednn::describe_backward<dnnl::convolution_backward_weights>(
        describe_forward(plain(), name), onednn::user_scratchpad(), algorithm_of(name), onednn::floats(s.x, tag),
        onednn::floats(s.w, Tag::any), bias, onednn::floats(s.y, tag), s.strides, s.dilates, s.pad_begin, s.pad_end);
    weights_ = BoundPrimitive(dnnl::convolution_backward_weights(d));
    weights_.bind(DNNL_ARG_SRC, d.src_desc());
    weights_.bind(DNNL_ARG_DIFF_DST, d.diff_dst_desc());
    weights_.bind(DNNL_ARG_DIFF_WEIGHTS, d.diff_weights_desc());
    if (spec_.bias) weights_.bind(DNNL_ARG_DIFF_BIAS, d.diff_bias_desc());
    weights_.bind(DNNL_ARG_SCRATCHPAD, d.scratchpad_desc());
    Workspace& space = backward_space_;
    dpre_ = space.add<float>(spec_.relu ? spec_.batch * spec_.convolved().elements() : 0);
    weights_x_ = Side(onednn::floats(s.x, Tag::nhwc), d.src_desc(), d.src_desc(), space);
    weights_dy_ = Side(onednn::floats(s.y, Tag::nhwc), d.diff_dst_desc(), d.diff_dst_desc(), space);
    weights_dw_ = Side(d.diff_weights_desc(), onednn::floats(s.w, s.weights), d.diff_weights_desc(), space);
    scratch_bytes_ = d.scratchpad_desc().get_size();
    backward_scratch_ = space.add<std::byte>(static_cast<std::int64_t>(scratch_bytes_));
  }

  void build_data(const std::string& name) {
    const Dims s(spec_);
    const Tag tag = activation_tag(name);
    const auto d = onednn::describe_backward<dnnl::convolution_backward_data>(
        describe_forward(plain(), name), onednn::user_scratchpad(), algorithm_of(name), onednn::floats(s.x, tag),
        onednn::floats(s.w, Tag::any), onednn::floats(s.y, tag), s.strides, s.dilates, s.pad_begin, s.pad_end);
    data_ = BoundPrimitive(dnnl::convolution_backward_data(d));
    data_.bind(DNNL_ARG_DIFF_SRC, d.diff_src_desc());
    data_.bind(DNNL_ARG_WEIGHTS, d.weights_desc());
    data_.bind(DNNL_ARG_DIFF_DST, d.diff_dst_desc());
    data_.bind(DNNL_ARG_SCRATCHPAD, d.scratchpad_desc());
    Workspace& space = backward_space_;
    data_dy_ = Side(onednn::floats(s.y, Tag::nhwc), d.diff_dst_desc(), d.diff_dst_desc(), space);
    data_w_ = Side(onednn::floats(s.w, s.weights), d.weights_desc(), d.weights_desc(), space);
    data_dx_ = Side(d.diff_src_desc(), onednn::floats(s.x, Tag::nhwc), d.diff_src_desc(), space);
    // The scratchpads of the two directions are never in use at the same time.
    if (d.scratchpad_desc().get_size() > scratch_bytes_) {
      backward_scratch_ = space.add<std::byte>(static_cast<std::int64_t>(d.scratchpad_desc().get_size()));
    }
  }

  // The convolution without post-ops, as a hint for the backward directions.
  ConvSpec plain() const {
    ConvSpec spec = spec_;
    spec.relu = false;
    spec.average_pool = false;
    return spec;
  }

  ConvSpec spec_;
  BoundPrimitive forward_, weights_, data_;
  Side forward_x_, forward_w_, forward_y_;
  Side weights_x_, weights_dy_, weights_dw_;
  Side data_dy_, data_w_, data_dx_;
  Workspace forward_space_, backward_space_;
  Workspace::Part<std::byte> forward_scratch_, backward_scratch_;
  Workspace::Part<float> dpre_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace

std::string to_text(const OneDnnConvFormats& f) {
  return fmt::format("forward=onednn.{} data=onednn.{} weights=onednn.{}", f.forward, f.data, f.weights);
}

OneDnnConvFormats onednn_formats_from_text(const std::string& kernels) {
  const auto word = [&](const std::string& key) {
    const std::string wanted = key + "=onednn.";
    const std::size_t at = kernels.find(wanted);
    check(at != std::string::npos, ExitCode::preflight, "the plan '{}' does not name a oneDNN kernel for '{}'", kernels,
          key);
    const std::size_t begin = at + wanted.size();
    return kernels.substr(begin, kernels.find(' ', begin) - begin);
  };
  return {word("forward"), word("data"), word("weights")};
}

std::unique_ptr<Op> make_onednn_conv(const ConvSpec& spec, const OneDnnConvFormats& formats) {
  // oneDNN 2.6.3 computes wrong data gradients with Winograd if the padding of opposite sides differs.
  const bool even =
      spec.window.padding.top == spec.window.padding.bottom && spec.window.padding.left == spec.window.padding.right;
  if (formats.data == "winograd" && spec.input_gradient && !even) return nullptr;
  try {
    return std::make_unique<OneDnnConv>(spec, formats);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return nullptr;
    throw Error(ExitCode::internal, fmt::format("oneDNN: building a convolution: {}", error.what()));
  }
}

}  // namespace ddp
