// How much of a card's memory this process may hold, and how much it holds.
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

// What CUDA's context, the code of libraries and NCCL take on a card besides what is allocated here; a cap that a user
// sets is for all of it. It is measured; this much is assumed before, and at most where that cannot be told apart
// from what other processes hold.
inline constexpr std::size_t kRuntimeReserve = std::size_t{1} << 30U;
// Of that, for kernels that are loaded when they first run, after it was measured.
inline constexpr std::size_t kLaterReserve = std::size_t{128} << 20U;

// The measured reserve: from what the driver counts for this process, or else from what is gone of the card by any
// process, which is the most that can be this one's; `held` of either are its allocations.
std::size_t runtime_reserve(std::optional<std::size_t> counted, std::size_t gone, std::size_t held);

class MemoryBudget {
 public:
  // `fraction` of `total`, at most `limit` where that is not 0. A process with a card to itself has no reserve.
  MemoryBudget(std::size_t total, double fraction, std::size_t limit);

  // What is to be left for CUDA and libraries, kRuntimeReserve at first.
  void set_reserve(std::size_t bytes) { reserve_ = bytes; }
  // Whether the user's words leave a part of the card to others: only then there is a reserve.
  bool capped() const { return allowed_ < total_; }

  std::size_t cap() const;  // bytes that can be allocated
  std::size_t held() const { return held_; }
  std::size_t allocations() const { return allocations_; }
  std::size_t left() const;

  // Throws Error(out_of_memory) that names `purpose`, a plural such as "the activations", and the numbers.
  void take(std::size_t bytes, const std::string& purpose);
  void give_back(std::size_t bytes) { held_ -= bytes; }

  // The error of a request that the budget allows and the card cannot give.
  [[noreturn]] void refused_by_card(std::size_t bytes, const std::string& purpose, std::size_t free) const;

 private:
  std::size_t total_;
  std::size_t allowed_;  // what the user's words come to
  std::atomic<std::size_t> reserve_ = kRuntimeReserve;
  std::atomic<std::size_t> held_ = 0;
  std::atomic<std::size_t> allocations_ = 0;
};

}  // namespace ddp::cuda
