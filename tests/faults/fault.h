// Faults on request, for tests of what happens when something goes wrong: the environment variable DDP_FAULTS of
// ddp_train_faults lists them.
//
//   DDP_FAULTS='stop rank=1 step=3 place=backward; full-disk rank=0 path=checkpoints' mpirun ... ddp_train_faults ...
//
//   kill, stop           the process gets SIGKILL or SIGSTOP
//   throw                an exception that no code expects
//   out-of-memory        an allocation fails
//   sleep                the thread sleeps for `seconds`, by default for ever
//   leave                this rank alone leaves the loop and waits for the others
//   die                  after `seconds` the process is replaced by one that sleeps: its launcher does not notice the death
//   nan                  `value` (nan) in place of a weight, the first pixel of images that are white all over, the loss
//                        scale or the learning rate
//   full-disk, no-disk   writing fails with ENOSPC or EIO
//   slow-disk            writing and syncing take `seconds` longer
//   short-write          only half of the bytes are written at a time
//   lost-rename          renaming reports success and does nothing
//   drop, delay          a message is lost, or sent `seconds` later
//
// Conditions, all optional: rank=N; step=N, from 1; place=P: a phase as in the table of a hang (data, forward, backward,
// reduction, update, evaluation, checkpoint, end, set-up), `loader` in its threads, or for nan one of weight, image, loss-scale,
// learning-rate; path=TEXT: in the path of the file; count=N: how often, by default once, 0 without end.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddp::faults {

struct Fault {
  double seconds = 0;
  double value = 0;
};

// The fault of this kind that is due at this place, now, on this rank; `path` is that of a file. Each call counts.
std::optional<Fault> due(std::string_view kind, std::string_view place, const std::string& path = "");

// Whether any fault of this kind is wanted at all.
bool wanted(std::string_view kind);

// Sleeps for so long; 0: for ever.
void sleep_for(double seconds);

}  // namespace ddp::faults
