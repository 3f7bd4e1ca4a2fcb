// The GPU memory that this process may hold and what it does hold.
//
//   auto budget = std::make_shared<MemoryBudget>(total, 0.4, 0);
//   budget->take(bytes, "the activations");     // throws Error(out_of_memory) beyond the cap
//   budget->give_back(bytes);
//   budget->set_reserve(runtime_reserve(counted, gone, budget->held()));
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>

namespace ddp::cuda {

// What CUDA's context, the code of libraries and NCCL take besides our allocations; a user's cap applies to the total.
// It is measured. This value is used before the measurement, and as an upper bound if memory of other processes cannot
// be told apart.
inline constexpr std::size_t kRuntimeReserve = std::size_t{1} << 30U;
// The part of it for kernels that are loaded at their first launch, after the measurement.
inline constexpr std::size_t kLaterReserve = std::size_t{128} << 20U;

// The measured reserve, from the driver's count for this process, or else from the GPU memory in use by all processes,
// which is an upper bound; `held` bytes of either are our own allocations.
std::size_t runtime_reserve(std::optional<std::size_t> counted, std::size_t gone, std::size_t held);

class MemoryBudget {
 public:
  // `fraction` of `total`, at most `limit` unless that is 0. A process that has the GPU to itself needs no reserve.
  MemoryBudget(std::size_t total, double fraction, std::size_t limit);

  // Bytes left to CUDA and libraries, initially kRuntimeReserve.
  void set_reserve(std::size_t bytes) { reserve_ = bytes; }
  // Whether the user's settings leave a part of the GPU to other processes; only then is there a reserve.
  bool capped() const { return allowed_ < total_; }

  std::size_t cap() const;  // bytes that can be allocated
  std::size_t held() const { return held_; }
  std::size_t allocations() const { return allocations_; }
  std::size_t left() const;

  // Throws Error(out_of_memory) that names `purpose`, a plural such as "the activations", and the numbers.
  void take(std::size_t bytes, const std::string& purpose);
  void give_back(std::size_t bytes) { held_ -= bytes; }

  // The error for an allocation that is within the budget but fails on the GPU.
  [[noreturn]] void refused_by_gpu(std::size_t bytes, const std::string& purpose, std::size_t free) const;

 private:
  std::size_t total_;
  std::size_t allowed_;  // what the user's settings allow
  std::atomic<std::size_t> reserve_ = kRuntimeReserve;
  std::atomic<std::size_t> held_ = 0;
  std::atomic<std::size_t> allocations_ = 0;
};

}  // namespace ddp::cuda
