// Operators with one or two own kernels per direction.
#include "backend/cuda/device/check.h"
#include "backend/cuda/pointwise/pointwise.h"
#include "backend/workspace.h"

namespace ddp::cuda {
namespace {

class CudaActivation final : public Op {
 public:
  CudaActivation(const CudaContext& context, const ActivationSpec& spec)
      : context_(context), activation_(spec.activation), count_(spec.batch * spec.shape.elements()) {}

  OpTraits traits() const override { return {.backward_reads_y = activation_ != Activation::none, .in_place = true}; }

  void forward(const ForwardArguments& a) override {
    activation_forward(context_.stream, context_.element(), activation_, a.x().data(), a.y.data(), count_);
  }
  void backward(const BackwardArguments& a) override {
    activation_backward(context_.stream, context_.element(), activation_, a.y.data(), a.dy.data(), a.dx().data(),
                        nullptr, count_);
  }

 private:
  const CudaContext& context_;
  Activation activation_;
  std::int64_t count_;
};

class CudaAdd final : public Op {
 public:
  CudaAdd(const CudaContext& context, const AddSpec& spec)
      : context_(context), activation_(spec.activation), count_(spec.batch * spec.shape.elements()) {}

  OpTraits traits() const override { return {.backward_reads_y = activation_ != Activation::none, .in_place = true}; }

  void forward(const ForwardArguments& a) override {
    add_activations(context_.stream, context_.element(), activation_, a.x().data(), a.inputs[1].data(), a.y.data(),
                    count_);
  }
  void backward(const BackwardArguments& a) override {
    activation_backward(context_.stream, context_.element(), activation_, a.y.data(), a.dy.data(), a.dx().data(),
                        a.input_gradients[1].data(), count_);
  }

 private:
  const CudaContext& context_;
  Activation activation_;
  std::int64_t count_;
};

class CudaDropout final : public Op {
 public:
  CudaDropout(const CudaContext& context, const DropoutSpec& spec, Layout layout)
      : context_(context), spec_(spec), layout_(layout) {}

  OpTraits traits() const override { return {.in_place = true}; }

  void forward(const ForwardArguments& a) override {
    drop(a.training ? a.active : 0, a.keys, a.x().data(), a.y.data());
  }
  void backward(const BackwardArguments& a) override { drop(a.active, a.keys, a.dy.data(), a.dx().data()); }

 private:
  void drop(std::int64_t samples, const std::uint64_t* keys, const void* from, void* to) const {
    dropout(context_.stream, context_.element(), spec_, layout_, samples, keys, from, to);
  }

  const CudaContext& context_;
  DropoutSpec spec_;
  Layout layout_;
};

class CudaReorder final : public Op {
 public:
  CudaReorder(const CudaContext& context, const ReorderSpec& spec, Layout from, Layout to)
      : context_(context), spec_(spec), from_(from), to_(to) {}

  void forward(const ForwardArguments& a) override { move(a.x().data(), from_, a.y.data(), to_); }
  void backward(const BackwardArguments& a) override { move(a.dy.data(), to_, a.dx().data(), from_); }

 private:
  void move(const void* source, Layout from, void* target, Layout to) const {
    const std::int64_t positions = spec_.shape.height * spec_.shape.width;
    const std::int64_t channels = spec_.shape.channels;
    if (from == to || positions == 1 || channels == 1) {
      const auto count = static_cast<std::size_t>(spec_.batch * spec_.shape.elements());
      DDP_CUDA(cudaMemcpyAsync(target, source, count * bytes_of(context_.element()), cudaMemcpyDeviceToDevice,
                               context_.stream));
      return;
    }
    const bool from_nhwc = from == Layout::nhwc;
    transpose_samples(context_.stream, context_.element(), source, target, spec_.batch,
                      from_nhwc ? positions : channels, from_nhwc ? channels : positions);
  }

  const CudaContext& context_;
  ReorderSpec spec_;
  Layout from_;
  Layout to_;
};

// Only the reader interprets the order.
class CudaChannelsLast final : public Op {
 public:
  CudaChannelsLast(const CudaContext& context, const ChannelsLastSpec& spec)
      : context_(context),
        bytes_(static_cast<std::size_t>(spec.batch * spec.input.elements()) * bytes_of(context.element())) {}

  OpTraits traits() const override { return {.in_place = true}; }
  void forward(const ForwardArguments& a) override { move(a.x().data(), a.y.data()); }
  void backward(const BackwardArguments& a) override { move(a.dy.data(), a.dx().data()); }

 private:
  void move(const void* from, void* to) const {
    if (from != to) DDP_CUDA(cudaMemcpyAsync(to, from, bytes_, cudaMemcpyDeviceToDevice, context_.stream));
  }

  const CudaContext& context_;
  std::size_t bytes_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_channels_last(const CudaContext& context, const ChannelsLastSpec& spec) {
  return std::make_unique<CudaChannelsLast>(context, spec);
}

std::unique_ptr<Op> make_cuda_activation(const CudaContext& context, const ActivationSpec& spec) {
  return std::make_unique<CudaActivation>(context, spec);
}

std::unique_ptr<Op> make_cuda_add(const CudaContext& context, const AddSpec& spec) {
  return std::make_unique<CudaAdd>(context, spec);
}

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const DropoutSpec& spec, Layout layout) {
  return std::make_unique<CudaDropout>(context, spec, layout);
}

std::unique_ptr<Op> make_cuda_reorder(const CudaContext& context, const ReorderSpec& spec, Layout from, Layout to) {
  return std::make_unique<CudaReorder>(context, spec, from, to);
}

}  // namespace ddp::cuda
