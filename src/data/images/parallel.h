// Work on every index of a range, on several threads.
//
//   std::vector<std::size_t> squares(100);
//   for_each_index(squares.size(), /*threads=*/2, [&](std::size_t i) { squares[i] = i * i; });
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>

#include "base/threads.h"

namespace ddp {

// Runs `work(i)` for 0 <= i < count on several threads and rethrows an exception of one of them.
template <class Work>
void for_each_index(std::size_t count, int threads, const Work& work) {
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  std::atomic<bool> failed = false;
  const auto loop = [&] {
    try {
      for (std::size_t i = next++; i < count && !failed; i = next++) work(i);
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  };
  run_parts(threads, [&](int /*part*/) { loop(); });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ddp
