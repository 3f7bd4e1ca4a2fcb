// Names that the examples in the headers of job use.
#pragma once

#include <cstddef>
#include <span>

#include "job/hangs/pulse_board.h"

namespace ddp::job_examples {

extern char** argv;
extern PulseBoard& board;
extern const Pulse pulse;
extern const std::span<const std::byte> received;
void send(std::span<const std::byte> message, int to);

}  // namespace ddp::job_examples
