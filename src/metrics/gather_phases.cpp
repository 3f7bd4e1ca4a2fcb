#include "metrics/gather_phases.h"

#include <cstddef>
#include <span>

namespace ddp {

std::vector<PhaseTotals> gather_phases(Communicator& communicator, const PhaseTotals& mine) {
  std::vector<PhaseTotals> all(communicator.rank() == 0 ? static_cast<std::size_t>(communicator.size()) : 0);
  communicator.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

}  // namespace ddp
