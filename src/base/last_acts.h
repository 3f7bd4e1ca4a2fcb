// What is to be done even where the process ends without destructors, as by MPI_Abort or _exit.
//
//   const LastAct unlock([] { std::remove("run.lock"); });   // while this object lives
//   perform_last_acts();                                     // right before the process ends, from any thread
#pragma once

#include <functional>

namespace ddp {

class LastAct {
 public:
  // `act` may run on any thread while the others go on, and throws nothing that matters.
  explicit LastAct(std::function<void()> act);
  ~LastAct();
  LastAct(const LastAct&) = delete;
  LastAct& operator=(const LastAct&) = delete;

 private:
  std::function<void()> act_;
  friend void perform_last_acts() noexcept;
};

// Each at most once, the newest first.
void perform_last_acts() noexcept;

}  // namespace ddp
