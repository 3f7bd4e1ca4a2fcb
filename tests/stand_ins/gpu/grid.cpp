#include "stand_ins/gpu/grid.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

namespace ddp::stand_in {
namespace {

constexpr std::size_t kStack = std::size_t{128} << 10U;
constexpr unsigned kWarp = 32;

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "stand-in GPU: %s\n", why);
  std::abort();
}

enum class State { ready, at_block_barrier, at_warp_barrier, done };

// Where a fiber or the scheduler resumes. Unlike swapcontext(), a jump costs no system call, and unlike longjmp() no search for
// cleanup handlers.
struct Place {
  void* registers[5];

  // Returns when another leave_for() resumes this place.
  [[gnu::noinline]] void leave_for(Place& other) {
    if (__builtin_setjmp(registers) == 0) other.resume();
  }
  // A function of its own, as GCC allows only one of the two in a function.
  [[noreturn, gnu::noinline]] void resume() { __builtin_longjmp(registers, 1); }
};

// Runs threads of successive blocks on the same stack.
struct Fiber {
  std::unique_ptr<std::byte[]> stack;
  Place here{};
  State state = State::done;
  uint3 place{};
  bool odd = false;  // the number of its exchanges
};

}  // namespace

// Schedules the threads of one block at a time.
class Block {
 public:
  // Returns true if any thread reached a barrier.
  bool run(dim3 threads, const std::function<void()>& thread);

  void wait(State where) {
    barriers_ = true;
    fibers_[running_].state = where;
    fibers_[running_].here.leave_for(scheduler_);
  }
  // Called when a thread ends; the fiber then runs a thread of the next block.
  void wait_for_next() {
    fibers_[running_].state = State::done;
    fibers_[running_].here.leave_for(scheduler_);
  }
  const Warp& hand_in(const void* data, std::size_t bytes);
  unsigned lane() const { return static_cast<unsigned>(running_ % kWarp); }

 private:
  static void enter();
  void begin(Fiber& fiber);
  bool release();

  std::vector<Fiber> fibers_;
  // Twice, so that a thread may hand in the next value while others read the one before.
  std::vector<std::array<Warp, 2>> warps_;
  std::size_t count_ = 0;
  std::size_t running_ = 0;
  Place scheduler_{};
  const std::function<void()>* thread_ = nullptr;
  bool barriers_ = false;
};

namespace {

thread_local Block* current = nullptr;
// Draws orders of threads and blocks: a test needs orders that differ, not good random numbers.
thread_local std::minstd_rand generator{std::random_device{}()};

}  // namespace

void Block::enter() {
  Block* block = current;
  for (;;) {
    (*block->thread_)();
    block->wait_for_next();
  }
}

// Starts the fiber on its own stack.
void Block::begin(Fiber& fiber) {
  fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
  ucontext_t context{};
  if (getcontext(&context) != 0) give_up("getcontext failed");
  context.uc_stack.ss_sp = fiber.stack.get();
  context.uc_stack.ss_size = kStack;
  context.uc_link = nullptr;
  makecontext(&context, &Block::enter, 0);
  if (__builtin_setjmp(scheduler_.registers) == 0) static_cast<void>(setcontext(&context));
}

// Resumes threads whose barrier is complete; threads that have ended do not count.
bool Block::release() {
  const auto all_at = [&](std::size_t begin, std::size_t end, State where) {
    bool any = false;
    for (std::size_t i = begin; i < end; ++i) {
      if (fibers_[i].state != where && fibers_[i].state != State::done) return false;
      any |= fibers_[i].state == where;
    }
    return any;
  };
  const auto let_go = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (fibers_[i].state != State::done) fibers_[i].state = State::ready;
    }
  };
  bool released = false;
  for (std::size_t begin = 0; begin < count_; begin += kWarp) {
    const std::size_t end = std::min(begin + kWarp, count_);
    if (!all_at(begin, end, State::at_warp_barrier)) continue;
    let_go(begin, end);
    released = true;
  }
  if (all_at(0, count_, State::at_block_barrier)) {
    let_go(0, count_);
    released = true;
  }
  return released;
}

bool Block::run(dim3 threads, const std::function<void()>& thread) {
  count_ = std::size_t{threads.x} * threads.y * threads.z;
  if (fibers_.size() < count_) fibers_.resize(count_);
  if (warps_.size() * kWarp < count_) warps_.resize((count_ + kWarp - 1) / kWarp);
  thread_ = &thread;
  barriers_ = false;
  current = this;
  for (std::size_t i = 0; i < count_; ++i) {
    const auto index = static_cast<unsigned>(i);
    fibers_[i].state = State::ready;
    fibers_[i].odd = false;
    fibers_[i].place = {index % threads.x, index / threads.x % threads.y, index / threads.x / threads.y};
  }
  std::vector<std::size_t> order(count_);
  std::iota(order.begin(), order.end(), 0);
  for (;;) {
    std::shuffle(order.begin(), order.end(), generator);
    for (const std::size_t i : order) {
      if (fibers_[i].state != State::ready) continue;
      running_ = i;
      threadIdx = fibers_[i].place;
      if (fibers_[i].stack == nullptr) {
        begin(fibers_[i]);
      } else {
        scheduler_.leave_for(fibers_[i].here);
      }
    }
    const auto done = [](const Fiber& fiber) { return fiber.state == State::done; };
    if (std::all_of(fibers_.begin(), fibers_.begin() + static_cast<std::ptrdiff_t>(count_), done)) break;
    if (!release()) give_up("threads wait for others that never come to the same barrier");
  }
  current = nullptr;
  return barriers_;
}

const Warp& Block::hand_in(const void* data, std::size_t bytes) {
  Fiber& fiber = fibers_[running_];
  Warp& warp = warps_[running_ / kWarp].at(fiber.odd ? 1 : 0);
  fiber.odd = !fiber.odd;
  std::memcpy(warp.places_.at(lane()).bytes, data, bytes);
  wait(State::at_warp_barrier);
  return warp;
}

namespace {

// Kernels without barriers need no fibers: each thread is a function call.
void run_plainly(dim3 threads, const std::function<void()>& thread) {
  for (unsigned z = 0; z < threads.z; ++z) {
    for (unsigned y = 0; y < threads.y; ++y) {
      for (unsigned x = 0; x < threads.x; ++x) {
        threadIdx = {x, y, z};
        thread();
      }
    }
  }
}

}  // namespace

void run_grid(dim3 blocks, dim3 threads, const std::function<void()>& thread) {
  static thread_local Block block;
  gridDim = blocks;
  blockDim = threads;
  bool barriers = true;
  std::vector<unsigned> order(std::size_t{blocks.x} * blocks.y * blocks.z);
  std::iota(order.begin(), order.end(), 0);
  // The first one, which is whole, tells whether the kernel has barriers.
  std::shuffle(order.begin() + 1, order.end(), generator);
  for (const unsigned i : order) {
    blockIdx = {i % blocks.x, i / blocks.x % blocks.y, i / blocks.x / blocks.y};
    if (barriers) {
      const bool had_barriers = block.run(threads, thread);
      if (i == 0) barriers = had_barriers;
    } else {
      run_plainly(threads, thread);
    }
  }
}

void block_barrier() {
  if (current == nullptr) give_up("a barrier that only some blocks have");
  current->wait(State::at_block_barrier);
}

unsigned lane() {
  if (current == nullptr) give_up("an exchange that only some blocks have");
  return current->lane();
}

const Warp& hand_in(const void* data, std::size_t bytes) {
  if (current == nullptr) give_up("an exchange that only some blocks have");
  return current->hand_in(data, bytes);
}

}  // namespace ddp::stand_in
