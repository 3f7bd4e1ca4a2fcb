// How much of a card's memory this process may hold, and how much it holds.
//
//   auto budget = std::make_shared<MemoryBudget>(total, 0.4, 0);
//   budget->take(bytes, "the activations");     // throws Error(out_of_memory) beyond the cap
//   budget->give_back(bytes);
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

namespace ddp::cuda {

// What CUDA's context and the code of the libraries take on a card besides what is allocated here; a cap that a user
// sets is for all of it. An estimate with room to spare: about half is the context, and kernels load when first used.
inline constexpr std::size_t kRuntimeReserve = std::size_t{1} << 30U;

class MemoryBudget {
 public:
  // `fraction` of `total`, at most `limit` where that is not 0. A process with a card to itself has no reserve.
  MemoryBudget(std::size_t total, double fraction, std::size_t limit);

  std::size_t cap() const { return cap_; }  // bytes that can be allocated
  std::size_t held() const { return held_; }
  std::size_t allocations() const { return allocations_; }
  std::size_t left() const { return cap_ - held_; }

  // Throws Error(out_of_memory) that names `purpose`, a plural such as "the activations", and the numbers.
  void take(std::size_t bytes, const std::string& purpose);
  void give_back(std::size_t bytes) { held_ -= bytes; }

  // The error of a request that the budget allows and the card cannot give.
  [[noreturn]] void refused_by_card(std::size_t bytes, const std::string& purpose, std::size_t free) const;

 private:
  std::size_t total_;
  std::size_t allowed_;  // what the user's words come to
  std::size_t cap_;
  std::atomic<std::size_t> held_ = 0;
  std::atomic<std::size_t> allocations_ = 0;
};

}  // namespace ddp::cuda
