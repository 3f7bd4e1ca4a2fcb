// Operators that are a kernel of our own in each direction.
#include "backend/cuda/check.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/operators.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

class CudaRelu final : public Op {
 public:
  CudaRelu(const CudaContext& context, const ReluSpec& spec)
      : context_(context), count_(spec.batch * spec.shape.elements()) {}

  bool backward_reads_y() const override { return true; }
  bool in_place() const override { return true; }

  void forward(const ForwardArguments& a) override {
    relu_forward(context_.stream, context_.element(), a.x, a.y, count_);
  }
  void backward(const BackwardArguments& a) override {
    relu_backward(context_.stream, context_.element(), a.y, a.dy, a.dx, count_);
  }

 private:
  const CudaContext& context_;
  std::int64_t count_;
};

class CudaPool final : public Op {
 public:
  CudaPool(const CudaContext& context, const PoolSpec& spec, Layout layout)
      : context_(context), spec_(spec), layout_(layout) {}

  bool backward_reads_x() const override { return spec_.kind == PoolSpec::Kind::maximum; }
  bool backward_reads_y() const override { return spec_.kind == PoolSpec::Kind::maximum; }

  void forward(const ForwardArguments& a) override {
    pool_forward(context_.stream, context_.element(), spec_, layout_, a.x, a.y);
  }
  void backward(const BackwardArguments& a) override {
    pool_backward(context_.stream, context_.element(), spec_, layout_, a.x, a.y, a.dy, a.dx);
  }

 private:
  const CudaContext& context_;
  PoolSpec spec_;
  Layout layout_;
};

class CudaReorder final : public Op {
 public:
  CudaReorder(const CudaContext& context, const ReorderSpec& spec, Layout from, Layout to)
      : context_(context), spec_(spec), from_(from), to_(to) {}

  void forward(const ForwardArguments& a) override { move(a.x, from_, a.y, to_); }
  void backward(const BackwardArguments& a) override { move(a.dy, to_, a.dx, from_); }

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

}  // namespace

std::unique_ptr<Op> make_cuda_relu(const CudaContext& context, const ReluSpec& spec) {
  return std::make_unique<CudaRelu>(context, spec);
}

std::unique_ptr<Op> make_cuda_pool(const CudaContext& context, const PoolSpec& spec, Layout layout) {
  return std::make_unique<CudaPool>(context, spec, layout);
}

std::unique_ptr<Op> make_cuda_reorder(const CudaContext& context, const ReorderSpec& spec, Layout from, Layout to) {
  return std::make_unique<CudaReorder>(context, spec, from, to);
}

}  // namespace ddp::cuda
