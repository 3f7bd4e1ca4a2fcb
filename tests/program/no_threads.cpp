// Loaded before the C library (LD_PRELOAD), permits a process only N threads at a time beside its first one, as a limit of
// processes and threads does.
//
//   DDP_MOST_THREADS=5 LD_PRELOAD=libno_threads.so ddp_train ...
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include <atomic>

namespace {

std::atomic<long> alive{0};

struct Thread {
  void* (*start)(void*);
  void* argument;
};

struct Counted {
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  // Also where a thread ends by pthread_exit(), which unwinds the stack.
  ~Counted() { --alive; }
};

void* run(void* given) {
  const Counted counted;
  const Thread thread = *static_cast<Thread*>(given);
  delete static_cast<Thread*>(given);
  return thread.start(thread.argument);
}

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                              void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  const char* const most = getenv("DDP_MOST_THREADS");
  if (++alive > (most != nullptr ? atol(most) : 1'000'000)) {
    --alive;
    return EAGAIN;
  }
  auto* const given = new Thread{start, argument};
  const int error = create(thread, attributes, run, given);
  if (error != 0) {
    --alive;
    delete given;
  }
  return error;
}
