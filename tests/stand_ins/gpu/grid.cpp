#include "stand_ins/gpu/grid.h"

#include <ucontext.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
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

// Where a fiber or the scheduler resumes. Unlike swapcontext(), a longjmp costs no system call.
struct Place {
  std::jmp_buf registers;

  // Returns when another leave_for() resumes this place.
  [[gnu::noinline]] void leave_for(Place& other) {
    if (_setjmp(registers) == 0) _longjmp(other.registers, 1);
  }
};

// Runs threads of successive blocks on the same stack.
struct Fiber {
  std::unique_ptr<std::byte[]> stack;
  Place here{};
  State state = State::done;
  uint3 place{};
  std::uint64_t handed_in = 0;
  const void* pointed_to = nullptr;
};

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
  Fiber& running() { return fibers_[running_]; }
  Fiber& in_warp(unsigned lane) { return fibers_.at(running_ / kWarp * kWarp + lane); }
  unsigned lane() const { return static_cast<unsigned>(running_ % kWarp); }

 private:
  static void enter();
  void begin(Fiber& fiber);
  bool release();

  std::vector<Fiber> fibers_;
  std::size_t count_ = 0;
  std::size_t running_ = 0;
  Place scheduler_{};
  const std::function<void()>* thread_ = nullptr;
  bool barriers_ = false;
};

thread_local Block* current = nullptr;

std::mt19937& generator() {
  static thread_local std::mt19937 engine{std::random_device{}()};
  return engine;
}

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
  if (_setjmp(scheduler_.registers) == 0) static_cast<void>(setcontext(&context));
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
  thread_ = &thread;
  barriers_ = false;
  current = this;
  for (std::size_t i = 0; i < count_; ++i) {
    const auto index = static_cast<unsigned>(i);
    fibers_[i].state = State::ready;
    fibers_[i].place = {index % threads.x, index / threads.x % threads.y, index / threads.x / threads.y};
  }
  std::vector<std::size_t> order(count_);
  std::iota(order.begin(), order.end(), 0);
  for (;;) {
    std::shuffle(order.begin(), order.end(), generator());
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
  std::shuffle(order.begin() + 1, order.end(), generator());
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

std::uint64_t exchange(std::uint64_t value, unsigned partner) {
  if (current == nullptr) give_up("an exchange that only some blocks have");
  current->running().handed_in = value;
  current->wait(State::at_warp_barrier);
  const std::uint64_t result = current->in_warp(partner).handed_in;
  current->wait(State::at_warp_barrier);
  return result;
}

void with_warp(const void* mine, const std::function<void(const Warp& all)>& read) {
  if (current == nullptr) give_up("an exchange that only some blocks have");
  current->running().pointed_to = mine;
  current->wait(State::at_warp_barrier);
  Warp all{};
  for (unsigned i = 0; i < kWarp; ++i) all.at(i) = current->in_warp(i).pointed_to;
  read(all);
  current->wait(State::at_warp_barrier);
}

}  // namespace ddp::stand_in
