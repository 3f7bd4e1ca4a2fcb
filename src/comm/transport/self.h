// The communicator of a single-rank job: every collective returns immediately.
//
//   std::unique_ptr<Communicator> ranks = make_self_communicator();
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace ddp {

std::unique_ptr<Communicator> make_self_communicator();

}  // namespace ddp
