// A backend whose work is done by a stream of the stand-in for CUDA: memory, copies, sums and recordings, no operators.
//
//   auto backend = std::make_unique<StreamBackend>();
//   const auto sums = make_nccl_communicator(ranks, *backend);
#pragma once

#include "backend/backend.h"
#include "backend/cuda/handles.h"

namespace ddp::testing {

class StreamBackend final : public Backend {
 public:
  std::string description() const override { return "a stream"; }
  std::string fingerprint() const override { return "stream"; }
  std::string arithmetic() const override { return "stream"; }
  bool supports(const OpSpec& /*spec*/, Layout /*x*/, Layout /*y*/) const override { return false; }
  KernelChoice choose(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) override;
  std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) override;

  bool on_host() const override { return false; }
  Memory allocate(std::size_t bytes, const std::string& purpose) override;
  Memory allocate_for_transfer(std::size_t bytes, const std::string& purpose) override;

  void upload(void* device, const void* host, std::size_t bytes) override;
  void download(void* host, const void* device, std::size_t bytes) override;
  void fill_zero(void* device, std::size_t bytes) override;
  void load_input(const InputSpec& spec, const InputArguments& arguments) override;
  void softmax_cross_entropy(const LossSpec& spec, const LossArguments& arguments) override;
  void add(float* sum, const float* addend, std::size_t count) override;
  void add_activations(float* sum, const float* addend, std::size_t count) override { add(sum, addend, count); }
  void to_bf16(Bf16* to, const float* from, std::size_t count) override;
  void from_bf16(float* to, const Bf16* from, std::size_t count) override;
  void find_broken(const float* values, std::size_t count, const double* sums, std::size_t sum_count,
                   double* broken) override;
  void update(const UpdateArguments& arguments) override;
  void mark(std::size_t /*place*/) override {}

  void synchronize() override;
  double seconds_between(std::size_t /*from*/, std::size_t /*to*/) const override { return 0; }
  std::unique_ptr<Recording> record(const std::function<void()>& enqueue) override;
  void* native_stream() override { return stream_.get(); }
  cudaStream_t stream() const { return stream_.get(); }

 private:
  cuda::Stream stream_;
};

}  // namespace ddp::testing
