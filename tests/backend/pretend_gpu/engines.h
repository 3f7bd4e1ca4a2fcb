// What tests know of the stand-in for cuDNN.
#pragma once

#include <cstdint>

namespace ddp::pretend {

// The engine that is the fastest because it does nothing: no run may choose it by time.
std::int64_t wrong_engine();

// Engines of which plans can be made that do not run: 16 fails when it is executed, 17 when its work is done, 18 takes
// the GPU with it. As long as this object lives, `engine` is proposed before all others.
class ProposeFirst {
 public:
  explicit ProposeFirst(std::int64_t engine);
  ProposeFirst(const ProposeFirst&) = delete;
  ProposeFirst& operator=(const ProposeFirst&) = delete;
  ~ProposeFirst();
};

}  // namespace ddp::pretend
