// What the kernel counts of this process: time on cores, time of waiting for a core, memory.
//
//   const ProcessTimes before = process_times();
//   ...
//   process_times().core_wait - before.core_wait;   // seconds in which threads were ready to run, but had no core
#pragma once

namespace ddp {

// Zero where the kernel does not say.
struct ProcessTimes {
  double cpu = 0;        // of all threads that live
  double core_wait = 0;  // of all threads that live
  double memory = 0;     // the most resident memory so far, in bytes
};

ProcessTimes process_times();
// Seconds in which the calling thread was ready to run, but had no core; 0 where the kernel does not say.
double thread_core_wait();

}  // namespace ddp
