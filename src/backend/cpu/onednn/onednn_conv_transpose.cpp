// Transposed convolutions by oneDNN, which calls them deconvolutions.
#include <algorithm>

#include "backend/cpu/onednn/onednn.h"
#include "backend/cpu/onednn/primitives.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

using dnnl::memory;
using onednn::BoundPrimitive;
using onednn::Reorder;
using Tag = memory::format_tag;

constexpr auto kDeconvolution = dnnl::algorithm::deconvolution_direct;

// The dimensions in oneDNN's form; its weights are [outputs][inputs], PyTorch's [inputs][outputs].
struct TransposedDims {
  memory::dims x, w, b, y, strides, dilates, pad_begin, pad_end;
  Tag weights = Tag::iohw;

  explicit TransposedDims(const ConvTransposeSpec& s)
      : x{s.batch, s.input.channels, s.input.height, s.input.width},
        w{s.output_channels, s.input.channels, s.window.height, s.window.width},
        b{s.output_channels},
        y{s.batch, s.output_channels, s.output().height, s.output().width},
        strides{s.window.stride.vertical, s.window.stride.horizontal},
        dilates{s.window.dilation.vertical - 1, s.window.dilation.horizontal - 1},
        pad_begin{s.window.padding.top, s.window.padding.left},
        pad_end{s.window.padding.bottom - s.output_padding.vertical,
                s.window.padding.right - s.output_padding.horizontal} {
    if (s.groups == 1) return;
    w = {s.groups, s.output_channels / s.groups, s.input.channels / s.groups, s.window.height, s.window.width};
    weights = Tag::giohw;
  }
  memory::desc x_desc() const { return onednn::floats(x, Tag::nhwc); }
  memory::desc y_desc() const { return onednn::floats(y, Tag::nhwc); }
  memory::desc w_desc() const { return onednn::floats(w, Tag::any); }
};

class OneDnnConvTranspose final : public Op {
 public:
  explicit OneDnnConvTranspose(const ConvTransposeSpec& spec) : spec_(spec), dims_(spec) {
    const memory::desc bias = spec.bias ? onednn::floats(dims_.b, Tag::a) : memory::desc();
    const auto attributes = onednn::user_scratchpad();
    const auto forward = onednn::describe<dnnl::deconvolution_forward>(
        attributes, dnnl::prop_kind::forward_training, kDeconvolution, dims_.x_desc(), dims_.w_desc(), bias,
        dims_.y_desc(), dims_.strides, dims_.dilates, dims_.pad_begin, dims_.pad_end);
    forward_ =
        bound<dnnl::deconvolution_forward>(forward, forward.src_desc(), forward.weights_desc(), forward.dst_desc(),
                                           spec.bias, DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS);
    forward_w_ = Copy(plain_weights(), forward.weights_desc(), forward_space_);
    forward_scratch_ = scratchpad(forward, forward_space_);
    const auto weights = onednn::describe_backward<dnnl::deconvolution_backward_weights>(
        forward, attributes, kDeconvolution, dims_.x_desc(), dims_.w_desc(), bias, dims_.y_desc(), dims_.strides,
        dims_.dilates, dims_.pad_begin, dims_.pad_end);
    weights_ = bound<dnnl::deconvolution_backward_weights>(
        weights, weights.src_desc(), weights.diff_weights_desc(), weights.diff_dst_desc(), spec.bias, DNNL_ARG_SRC,
        DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_BIAS);
    weights_dw_ = Copy(weights.diff_weights_desc(), plain_weights(), weights_space_);
    weights_scratch_ = scratchpad(weights, weights_space_);
    if (!spec.input_gradient) return;
    const auto data = onednn::describe_backward<dnnl::deconvolution_backward_data>(
        forward, attributes, kDeconvolution, dims_.x_desc(), dims_.w_desc(), dims_.y_desc(), dims_.strides,
        dims_.dilates, dims_.pad_begin, dims_.pad_end);
    data_ =
        bound<dnnl::deconvolution_backward_data>(data, data.diff_src_desc(), data.weights_desc(), data.diff_dst_desc(),
                                                 false, DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, 0);
    data_w_ = Copy(plain_weights(), data.weights_desc(), data_space_);
    data_scratch_ = scratchpad(data, data_space_);
  }

  // The directions run one after the other.
  OpTraits traits() const override {
    return {.workspace_bytes = std::max({forward_space_.bytes(), weights_space_.bytes(), data_space_.bytes()}),
            .backward_reads_inputs = {0}};
  }

  void forward(const ForwardArguments& a) override {
    forward_.point(DNNL_ARG_SRC, a.x().fp32());
    forward_.point(DNNL_ARG_WEIGHTS, forward_w_.reorder.apply(a.parameters[0], forward_w_.part.in(a.workspace)));
    if (spec_.bias) forward_.point(DNNL_ARG_BIAS, a.parameters[1]);
    forward_.point(DNNL_ARG_DST, a.y.fp32());
    forward_.point(DNNL_ARG_SCRATCHPAD, forward_scratch_.in(a.workspace));
    forward_.run("transposed convolution forward");
  }

  void backward(const BackwardArguments& a) override {
    std::byte* internal = weights_dw_.part.in(a.workspace);
    weights_.point(DNNL_ARG_SRC, a.x().fp32());
    weights_.point(DNNL_ARG_DIFF_DST, a.dy.fp32());
    weights_.point(DNNL_ARG_DIFF_WEIGHTS,
                   weights_dw_.reorder.needed() ? static_cast<void*>(internal) : a.parameter_gradients[0]);
    if (spec_.bias) weights_.point(DNNL_ARG_DIFF_BIAS, a.parameter_gradients[1]);
    weights_.point(DNNL_ARG_SCRATCHPAD, weights_scratch_.in(a.workspace));
    weights_.run("transposed convolution weight gradient");
    (void)weights_dw_.reorder.apply(internal, a.parameter_gradients[0]);
    if (!spec_.input_gradient) return;
    data_.point(DNNL_ARG_DIFF_DST, a.dy.fp32());
    data_.point(DNNL_ARG_WEIGHTS, data_w_.reorder.apply(a.parameters[0], data_w_.part.in(a.workspace)));
    data_.point(DNNL_ARG_DIFF_SRC, a.dx().fp32());
    data_.point(DNNL_ARG_SCRATCHPAD, data_scratch_.in(a.workspace));
    data_.run("transposed convolution data gradient");
  }

 private:
  // A copy of the weights, or of their gradient, in another format.
  struct Copy {
    Reorder reorder;
    Workspace::Part<std::byte> part;

    Copy() = default;
    Copy(const memory::desc& from, const memory::desc& to, Workspace& workspace)
        : reorder(from, to),
          part(workspace.add<std::byte>(
              reorder.needed() ? static_cast<std::int64_t>(std::max(from.get_size(), to.get_size())) : 0)) {}
  };

  memory::desc plain_weights() const { return onednn::floats(dims_.w, dims_.weights); }

  template <class Primitive, class Description>
  BoundPrimitive bound(const Description& d, const memory::desc& x, const memory::desc& w, const memory::desc& y,
                       bool bias, int x_argument, int w_argument, int y_argument, int bias_argument) const {
    BoundPrimitive primitive{Primitive(d)};
    primitive.bind(x_argument, x);
    primitive.bind(w_argument, w);
    primitive.bind(y_argument, y);
    if (bias) primitive.bind(bias_argument, onednn::floats(dims_.b, Tag::a));
    primitive.bind(DNNL_ARG_SCRATCHPAD, d.scratchpad_desc());
    return primitive;
  }

  template <class Description>
  static Workspace::Part<std::byte> scratchpad(const Description& d, Workspace& workspace) {
    return workspace.add<std::byte>(static_cast<std::int64_t>(d.scratchpad_desc().get_size()));
  }

  ConvTransposeSpec spec_;
  TransposedDims dims_;
  BoundPrimitive forward_, weights_, data_;
  Copy forward_w_, weights_dw_, data_w_;
  Workspace forward_space_, weights_space_, data_space_;
  Workspace::Part<std::byte> forward_scratch_, weights_scratch_, data_scratch_;
};

// With AVX2, oneDNN 2.6 leaves out products of the weight gradient of windows of one pixel whose result is padded. Here the
// padding belongs to a larger window instead, whose other weights are zero.
class WiderWindow final : public Op {
 public:
  explicit WiderWindow(const ConvTransposeSpec& spec)
      : weights_(spec.parameter_elements(0)),
        taps_((1 + spec.output_padding.vertical) * (1 + spec.output_padding.horizontal)),
        wider_(wider(spec)),
        parameters_(workspace_.add<float>(weights_ * taps_)),
        gradient_(workspace_.add<float>(weights_ * taps_)),
        inner_(workspace_.add<std::byte>(static_cast<std::int64_t>(wider_.traits().workspace_bytes))) {}

  static bool needed(const ConvTransposeSpec& spec) {
    const Pair2d& padding = spec.output_padding;
    return spec.window.height == 1 && spec.window.width == 1 && (padding.vertical > 0 || padding.horizontal > 0);
  }

  OpTraits traits() const override { return {.workspace_bytes = workspace_.bytes(), .backward_reads_inputs = {0}}; }

  void forward(const ForwardArguments& a) override {
    ForwardArguments inner = a;
    inner.parameters = {widened(a.parameters[0], a.workspace), a.parameters[1]};
    inner.workspace = inner_.in(a.workspace);
    wider_.forward(inner);
  }
  void backward(const BackwardArguments& a) override {
    BackwardArguments inner = a;
    inner.parameters = {widened(a.parameters[0], a.workspace), a.parameters[1]};
    inner.parameter_gradients = {gradient_.in(a.workspace), a.parameter_gradients[1]};
    inner.workspace = inner_.in(a.workspace);
    wider_.backward(inner);
    for (std::int64_t i = 0; i < weights_; ++i) {
      a.parameter_gradients[0][i] = inner.parameter_gradients[0][i * taps_];
    }
  }

 private:
  static ConvTransposeSpec wider(ConvTransposeSpec spec) {
    spec.window.height += spec.output_padding.vertical;
    spec.window.width += spec.output_padding.horizontal;
    spec.window.dilation = {1, 1};
    spec.output_padding = {0, 0};
    return spec;
  }
  const float* widened(const float* weights, std::byte* workspace) const {
    float* to = parameters_.in(workspace);
    std::fill_n(to, weights_ * taps_, 0.0F);
    for (std::int64_t i = 0; i < weights_; ++i) to[i * taps_] = weights[i];
    return to;
  }

  std::int64_t weights_, taps_;
  OneDnnConvTranspose wider_;
  Workspace workspace_;
  Workspace::Part<float> parameters_, gradient_;
  Workspace::Part<std::byte> inner_;
};

}  // namespace

std::unique_ptr<Op> make_onednn_conv_transpose(const ConvTransposeSpec& spec) {
  return onednn::checked("building a transposed convolution", [&]() -> std::unique_ptr<Op> {
    if (WiderWindow::needed(spec)) return std::make_unique<WiderWindow>(spec);
    return std::make_unique<OneDnnConvTranspose>(spec);
  });
}

}  // namespace ddp
