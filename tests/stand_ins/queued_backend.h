// A device made of the CPU's operators that keeps the order of a GPU's: calls only enqueue, and the work is done when
// the host waits. What a program reads too early is stale, what it overwrites too early is lost, as on a GPU.
//
//   QueuedBackend device;
//   device.upload(there, here, bytes);   // `here` must stay as it is
//   device.synchronize();                // now it is there
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace ddp {

class QueuedBackend final : public Backend {
 public:
  std::string description() const override { return "a queue before the CPU"; }
  std::string fingerprint() const override { return "queued " + cpu_->fingerprint(); }
  std::string arithmetic() const override { return cpu_->arithmetic(); }
  bool supports(const OpSpec& spec, Layout x, Layout y) const override { return cpu_->supports(spec, x, y); }
  KernelChoice choose(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) override {
    return cpu_->choose(spec, x, y, mode);
  }
  std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) override {
    return std::make_unique<QueuedOp>(*this, cpu_->make_op(spec, x, y, kernels));
  }

  bool on_host() const override { return false; }
  Memory allocate(std::size_t bytes, const std::string& purpose) override { return cpu_->allocate(bytes, purpose); }
  Memory allocate_for_transfer(std::size_t bytes, const std::string& purpose) override {
    return cpu_->allocate(bytes, purpose);
  }
  std::size_t available_bytes() const override { return std::size_t{1} << 40U; }

  void upload(void* device, const void* host, std::size_t bytes) override { copy(device, host, bytes); }
  void download(void* host, const void* device, std::size_t bytes) override { copy(host, device, bytes); }
  void fill_zero(void* device, std::size_t bytes) override {
    enqueue([=, this] { cpu_->fill_zero(device, bytes); });
  }
  void load_input(const InputSpec& spec, const InputArguments& arguments) override {
    enqueue([=, this] { cpu_->load_input(spec, arguments); });
  }
  void softmax_cross_entropy(const LossSpec& spec, const LossArguments& arguments) override {
    enqueue([=, this] { cpu_->softmax_cross_entropy(spec, arguments); });
  }
  void add(float* sum, const float* addend, std::size_t count) override {
    enqueue([=, this] { cpu_->add(sum, addend, count); });
  }
  void add_activations(float* sum, const float* addend, std::size_t count) override {
    enqueue([=, this] { cpu_->add_activations(sum, addend, count); });
  }
  void to_bf16(Bf16* to, const float* from, std::size_t count) override {
    enqueue([=, this] { cpu_->to_bf16(to, from, count); });
  }
  void from_bf16(float* to, const Bf16* from, std::size_t count) override {
    enqueue([=, this] { cpu_->from_bf16(to, from, count); });
  }
  void find_broken(const float* values, std::size_t count, const double* sums, std::size_t sum_count,
                   double* broken) override {
    enqueue([=, this] { cpu_->find_broken(values, count, sums, sum_count, broken); });
  }
  void update(const UpdateArguments& arguments) override {
    enqueue([=, this] { cpu_->update(arguments); });
  }
  void mark(std::size_t place) override {
    enqueue([=, this] { cpu_->mark(place); });
  }

  void synchronize() override {
    for (; !queue_.empty(); queue_.pop_front()) queue_.front()();
  }
  double seconds_between(std::size_t from, std::size_t to) const override { return cpu_->seconds_between(from, to); }
  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    auto recording = std::make_unique<QueuedRecording>(*this);
    recorded_ = &recording->work;
    work();
    recorded_ = nullptr;
    ++recordings;
    return recording;
  }

  int recordings = 0;
  int replays = 0;

 private:
  using Work = std::function<void()>;

  class QueuedOp final : public Op {
   public:
    QueuedOp(QueuedBackend& backend, std::shared_ptr<Op> op) : backend_(backend), op_(std::move(op)) {}
    std::size_t saved_bytes() const override { return op_->saved_bytes(); }
    std::size_t workspace_bytes() const override { return op_->workspace_bytes(); }
    bool backward_reads_x() const override { return op_->backward_reads_x(); }
    bool backward_reads_y() const override { return op_->backward_reads_y(); }
    bool in_place() const override { return op_->in_place(); }
    void forward(const ForwardArguments& arguments) override {
      backend_.enqueue([op = op_, arguments] { op->forward(arguments); });
    }
    void backward(const BackwardArguments& arguments) override {
      backend_.enqueue([op = op_, arguments] { op->backward(arguments); });
    }

   private:
    QueuedBackend& backend_;
    std::shared_ptr<Op> op_;
  };

  struct QueuedRecording final : Recording {
    explicit QueuedRecording(QueuedBackend& owner) : backend(owner) {}
    void replay() override {
      ++backend.replays;
      for (const Work& each : work) backend.enqueue(each);
    }
    QueuedBackend& backend;
    std::vector<Work> work;
  };

  void enqueue(Work work) {
    if (recorded_ != nullptr) {
      recorded_->push_back(std::move(work));
    } else {
      queue_.push_back(std::move(work));
    }
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    enqueue([=] {
      if (bytes > 0) std::memcpy(to, from, bytes);
    });
  }

  std::unique_ptr<Backend> cpu_ = make_cpu_backend();
  std::deque<Work> queue_;
  std::vector<Work>* recorded_ = nullptr;
};

}  // namespace ddp
