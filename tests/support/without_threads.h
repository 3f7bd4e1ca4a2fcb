// Runs part of a test in a child process where no further thread can be started, as at a limit of processes and threads.
//
//   EXPECT_EQ(without_threads([] { EXPECT_THROW(std::thread([] {}), std::system_error); }), 0);
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>

#include "support/child.h"

namespace ddp {

// Returns 0 if all expectations of `body` were met. What is missing is address space for stacks, since RLIMIT_NPROC does not
// apply to root.
template <class Body>
int without_threads(Body&& body) {
  return run_in_child([&] {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, std::size_t{1} << 46U);
    if (::pthread_setattr_default_np(&attributes) != 0) throw std::runtime_error("cannot set the size of stacks");
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  });
}

}  // namespace ddp
