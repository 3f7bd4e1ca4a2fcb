// Actions that run even if the process ends without calling destructors, as with MPI_Abort or _exit.
//
//   const LastAct unlock([] { std::remove("run.lock"); });   // registered while this object exists
//   perform_last_acts();                                     // right before the process ends, from any thread
#pragma once

#include <functional>

namespace ddp {

class LastAct {
 public:
  // `act` may run on any thread while other threads keep running; its exceptions are ignored.
  explicit LastAct(std::function<void()> act);
  ~LastAct();
  LastAct(const LastAct&) = delete;
  LastAct& operator=(const LastAct&) = delete;

 private:
  std::function<void()> act_;
  friend void perform_last_acts() noexcept;
};

// Runs each action at most once, the newest first.
void perform_last_acts() noexcept;

}  // namespace ddp
