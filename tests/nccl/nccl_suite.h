// Requirements for sums that overlap backward, as functions that all ranks call: buckets are reduced during backward,
// join() blocks exactly what it must, and a step can be captured. Run on threads and under mpirun.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace ddp::testing {

struct NcclCase {
  std::string name;
  void (*body)(Communicator&);
};

const std::vector<NcclCase>& nccl_cases();

inline std::ostream& operator<<(std::ostream& out, const NcclCase& c) { return out << c.name; }

}  // namespace ddp::testing
