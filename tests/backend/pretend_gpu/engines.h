// What tests know of the stand-in for cuDNN.
#pragma once

#include <cstdint>

namespace ddp::pretend {

// The engine that is the fastest because it does nothing: no run may choose it by time.
std::int64_t wrong_engine();

}  // namespace ddp::pretend
