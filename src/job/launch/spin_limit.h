// Limits how long waiting threads of OpenMP spin.
//
//   limit_openmp_spinning(argv);   // first of all in main()
#pragma once

namespace ddp {

// libgomp's threads spin for some ten milliseconds before they sleep. With more threads than cores on a host that makes a step
// twenty times as long, whereas a tenth of a millisecond costs other runs nothing. libgomp reads its environment before main(), so
// the program sets GOMP_SPINCOUNT and executes itself again, with the same process ID. Does nothing if that variable or
// OMP_WAIT_POLICY is set, or if it fails.
void limit_openmp_spinning(char** argv) noexcept;

}  // namespace ddp
