// Where this process is in its work, for reports about ranks that hang (job/hangs/hang_table.h).
//
//   note_step(7);
//   note_phase(WorkPhase::backward);
//   note_bucket(2);                     // the second gradient bucket; 0: none
//   const Position here = position();   // from any thread
//
// Each note is one relaxed store.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace ddp {

enum class WorkPhase : std::int32_t {
  set_up,
  data,  // waiting for the loader
  forward,
  backward,
  reduction,  // the sum of the gradients
  update,
  device,     // waiting for a GPU to compute the step
  diagnosis,  // of a step that was not finite
  evaluation,
  checkpoint,
  end,  // all steps are done
};

// "backward".
const char* phase_name(WorkPhase phase) noexcept;

void note_step(std::int64_t step) noexcept;
void note_phase(WorkPhase phase);
void note_bucket(std::int32_t bucket) noexcept;

struct Position {
  std::int64_t step = 0;  // from 1; 0 before the first
  WorkPhase phase = WorkPhase::set_up;
  std::int32_t bucket = 0;
};
Position position() noexcept;

// Where the position lies in the memory of this process, and the position that is read from there in another one's, as
// it is or was at the time when it stopped. Fails for a process of another user, and in some containers.
std::uint64_t position_address() noexcept;
std::optional<Position> position_in(pid_t process, std::uint64_t address) noexcept;

}  // namespace ddp
