// A clock that advances only when a test sets it.
#pragma once

namespace ddp {

inline double stand_in_time = 0;
inline double read_stand_in_time() { return stand_in_time; }

}  // namespace ddp
