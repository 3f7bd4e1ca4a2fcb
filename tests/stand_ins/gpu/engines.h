// What tests know of the stand-ins for a GPU and for cuDNN.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::stand_in {

// What CUDA and libraries take of the GPU beside what is allocated.
inline constexpr std::size_t kContextBytes = std::size_t{300} << 20U;

// The engine that is the fastest because it does nothing: no run may choose it.
std::int64_t wrong_engine();
// Engines that compute nearly right: values that are 3e-4 of a typical sum too large, which is too much in fp32 alone.
std::int64_t rough_engine();
// One that ignores the last row of the input, and one with a single infinity at the end of the result.
std::int64_t border_engine();
std::int64_t infinite_engine();

// Engines of which plans can be made that do not run: 16 fails when it is executed, 17 when its work is done, 18 takes
// the GPU with it. As long as this object lives, `engine` is proposed before all others, or instead of them.
class ProposeFirst {
 public:
  explicit ProposeFirst(std::int64_t engine, bool alone = false);
  ProposeFirst(const ProposeFirst&) = delete;
  ProposeFirst& operator=(const ProposeFirst&) = delete;
  ~ProposeFirst();
};

}  // namespace ddp::stand_in
