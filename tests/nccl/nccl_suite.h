// What sums beside backward must be, as functions that all ranks call: that buckets are reduced while backward runs,
// that joins hold what they must, and that a step can be recorded. Run as threads and under mpirun.
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
