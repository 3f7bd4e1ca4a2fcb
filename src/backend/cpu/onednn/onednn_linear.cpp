#include <algorithm>

#include "backend/cpu/onednn/onednn.h"
#include "backend/cpu/onednn/primitives.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

using dnnl::memory;
using onednn::BoundPrimitive;
using Tag = memory::format_tag;

// All formats are plain, so that parameters and gradients are used in place.
class OneDnnLinear final : public Op {
 public:
  explicit OneDnnLinear(const LinearSpec& spec) : spec_(spec) {
    const memory::desc x = onednn::floats({spec.batch, spec.inputs}, Tag::ab);
    const memory::desc w = onednn::floats({spec.outputs, spec.inputs}, Tag::ab);
    const memory::desc b = spec.bias ? onednn::floats({spec.outputs}, Tag::a) : memory::desc();
    const memory::desc y = onednn::floats({spec.batch, spec.outputs}, Tag::ab);
    dnnl::primitive_attr attributes = onednn::user_scratchpad();
    if (spec.relu) onednn::append_relu(attributes);
    const auto describe_forward = [&](const dnnl::primitive_attr& with) {
      return onednn::describe<dnnl::inner_product_forward>(with, dnnl::prop_kind::forward_training, x, w, b, y);
    };
    const auto f = describe_forward(attributes);
    forward_ = BoundPrimitive(dnnl::inner_product_forward(f));
    bind(forward_,
         {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}, {DNNL_ARG_SCRATCHPAD, f.scratchpad_desc()}});
    if (spec.bias) forward_.bind(DNNL_ARG_BIAS, b);

    const auto hint = describe_forward(onednn::user_scratchpad());
    const auto bw =
        onednn::describe_backward<dnnl::inner_product_backward_weights>(hint, onednn::user_scratchpad(), x, w, b, y);
    weights_ = BoundPrimitive(dnnl::inner_product_backward_weights(bw));
    bind(weights_, {{DNNL_ARG_SRC, x},
                    {DNNL_ARG_DIFF_DST, y},
                    {DNNL_ARG_DIFF_WEIGHTS, w},
                    {DNNL_ARG_SCRATCHPAD, bw.scratchpad_desc()}});
    if (spec.bias) weights_.bind(DNNL_ARG_DIFF_BIAS, b);

    const auto bd =
        onednn::describe_backward<dnnl::inner_product_backward_data>(hint, onednn::user_scratchpad(), x, w, y);
    data_ = BoundPrimitive(dnnl::inner_product_backward_data(bd));
    bind(data_, {{DNNL_ARG_DIFF_SRC, x},
                 {DNNL_ARG_WEIGHTS, w},
                 {DNNL_ARG_DIFF_DST, y},
                 {DNNL_ARG_SCRATCHPAD, bd.scratchpad_desc()}});

    dpre_ = layout_.add<float>(spec.relu ? spec.batch * spec.outputs : 0);
    scratch_ = layout_.add<std::byte>(static_cast<std::int64_t>(
        std::max({f.scratchpad_desc().get_size(), bw.scratchpad_desc().get_size(), bd.scratchpad_desc().get_size()})));
  }

  OpTraits traits() const override {
    return {.workspace_bytes = layout_.bytes(), .backward_reads_inputs = {0}, .backward_reads_y = spec_.relu};
  }

  void forward(const ForwardArguments& a) override {
    forward_.point(DNNL_ARG_SRC, a.x().fp32());
    forward_.point(DNNL_ARG_WEIGHTS, a.parameters[0]);
    if (spec_.bias) forward_.point(DNNL_ARG_BIAS, a.parameters[1]);
    forward_.point(DNNL_ARG_DST, a.y.fp32());
    forward_.point(DNNL_ARG_SCRATCHPAD, scratch_.in(a.workspace));
    forward_.run("inner product forward");
  }

  void backward(const BackwardArguments& a) override {
    const float* dpre = a.dy.fp32();
    if (spec_.relu) {
      float* masked = dpre_.in(a.workspace);
      const std::int64_t count = spec_.batch * spec_.outputs;
      const float* const y = a.y.fp32();
      const float* const dy = a.dy.fp32();
#pragma omp parallel for simd schedule(static)
      for (std::int64_t i = 0; i < count; ++i) masked[i] = y[i] <= 0.0F ? 0.0F : dy[i];
      dpre = masked;
    }
    weights_.point(DNNL_ARG_SRC, a.x().fp32());
    weights_.point(DNNL_ARG_DIFF_DST, dpre);
    weights_.point(DNNL_ARG_DIFF_WEIGHTS, a.parameter_gradients[0]);
    if (spec_.bias) weights_.point(DNNL_ARG_DIFF_BIAS, a.parameter_gradients[1]);
    weights_.point(DNNL_ARG_SCRATCHPAD, scratch_.in(a.workspace));
    weights_.run("inner product weight gradient");
    if (!spec_.input_gradient) return;
    data_.point(DNNL_ARG_DIFF_SRC, a.dx().fp32());
    data_.point(DNNL_ARG_WEIGHTS, a.parameters[0]);
    data_.point(DNNL_ARG_DIFF_DST, dpre);
    data_.point(DNNL_ARG_SCRATCHPAD, scratch_.in(a.workspace));
    data_.run("inner product data gradient");
  }

 private:
  static void bind(BoundPrimitive& call, const std::unordered_map<int, memory::desc>& arguments) {
    for (const auto& [argument, descriptor] : arguments) call.bind(argument, descriptor);
  }

  LinearSpec spec_;
  BoundPrimitive forward_, weights_, data_;
  Workspace layout_;
  Workspace::Part<float> dpre_;
  Workspace::Part<std::byte> scratch_;
};

}  // namespace

std::unique_ptr<Op> make_onednn_linear(const LinearSpec& spec) {
  return onednn::checked("building an inner product", [&] { return std::make_unique<OneDnnLinear>(spec); });
}

}  // namespace ddp
