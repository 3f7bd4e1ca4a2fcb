// A clock that goes only when a test sets it.
#pragma once

namespace ddp {

inline double fake_time = 0;
inline double read_fake_time() { return fake_time; }

}  // namespace ddp
