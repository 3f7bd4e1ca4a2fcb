// Test interface of the GPU and cuDNN stand-ins.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::stand_in {

// Device memory used by CUDA and the libraries in addition to allocations.
inline constexpr std::size_t kContextBytes = std::size_t{300} << 20U;

// The engine that is the fastest because it does nothing; it must never be chosen.
std::int64_t wrong_engine();
// Computes values that are 3e-4 of a typical sum too large: outside the tolerance of fp32 only.
std::int64_t rough_engine();
// One ignores the last row of the input, the other ends its result with a single infinity.
std::int64_t border_engine();
std::int64_t infinite_engine();
// Overwrites a result to which it should add.
std::int64_t overwriting_engine();

// Some engines can be planned but fail: 16 when it is executed, 17 when its work completes, 18 breaks the GPU. While
// this object lives, `engine` is proposed before all others or, with `alone`, instead of them.
class ProposeFirst {
 public:
  explicit ProposeFirst(std::int64_t engine, bool alone = false);
  ProposeFirst(const ProposeFirst&) = delete;
  ProposeFirst& operator=(const ProposeFirst&) = delete;
  ~ProposeFirst();
};

}  // namespace ddp::stand_in
