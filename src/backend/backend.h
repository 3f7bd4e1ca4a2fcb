// A backend is one device: it makes operators, says which of its kernels are the fastest, and owns memory and the order
// of work.
//
//   std::unique_ptr<Backend> backend = make_cpu_backend();
//   KernelChoice choice = backend->choose(spec, Layout::plain, Layout::lanes16, ChoiceMode::timed);
//   Memory memory = backend->allocate(bytes, "the activations");
//
// Note [Order of work]
// Operators, copies and the functions below under "work" are carried out one after the other in the order of the calls.
// On the CPU a call returns when its work is done; on a GPU it only enqueues, and synchronize() waits. All their
// pointers are device memory but where "host" is said. So the same code drives both, as long as the host looks at
// results only after synchronize().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/flat_update.h"
#include "backend/loss.h"
#include "backend/memory.h"
#include "backend/op.h"

namespace ddp {

// Which kernels an operator uses, and what a step of it (forward and backward) costs.
struct KernelChoice {
  std::string kernels;  // e.g. "forward=lanes.5x2x2 data=lanes.10x1x2 weights=lanes.5x5"; "" where there is one only
  double seconds = 0;
};

enum class ChoiceMode {
  timed,  // run the candidates and take the fastest
  fixed,  // by a rule of shapes alone: the same on every machine with the same instruction set
};

// Work that was recorded once and is enqueued again as a whole, on the memory that it was recorded with.
class Recording {
 public:
  Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

// Places that mark() takes: 0 to kMarks - 1.
inline constexpr std::size_t kMarks = 16;

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  // A line for the header, e.g. "CPU, AVX-512, 1 thread".
  virtual std::string description() const = 0;
  // What kernels and timings depend on besides shapes: a key for caches of plans.
  virtual std::string fingerprint() const = 0;
  // What decides the bits of results besides the plan, e.g. "avx512 kernels and oneDNN 2.6.3".
  virtual std::string arithmetic() const = 0;

  // --- Operators.

  // Whether an operator can take its input in layout `x` and give its output in layout `y`.
  virtual bool supports(const OpSpec& spec, Layout x, Layout y) const = 0;
  virtual KernelChoice choose(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) = 0;
  // Builds the operator with the kernels of a choice; throws Error(preflight) for kernels unknown on this machine.
  virtual std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) = 0;
  // Whether batch normalisation can take over the bias of the operator before it (BatchNormSpec::input_bias).
  virtual bool takes_bias_into_norm() const { return false; }
  // Bytes of an element of an activation or its gradient: 4 (fp32) or 2 (bf16). Operators, input and loss take pointers
  // to float and read such elements behind them. Parameters and their gradients are always fp32.
  virtual std::size_t activation_bytes() const { return sizeof(float); }

  // --- Memory.

  // Whether the host may read and write device memory, and work is done when a call returns.
  virtual bool on_host() const = 0;
  // Device memory of zeros. Throws Error(out_of_memory) that names `purpose`, a plural such as "the activations".
  virtual Memory allocate(std::size_t bytes, const std::string& purpose) = 0;
  // Host memory of zeros from and to which copies are the fastest.
  virtual Memory allocate_for_transfer(std::size_t bytes, const std::string& purpose) = 0;
  // Bytes of device memory that allocate() can still give; 0: unknown.
  virtual std::size_t available_bytes() const { return 0; }

  // --- Work, see Note [Order of work].

  // Host memory to the device and back. The host's memory must stay as it is until synchronize().
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  virtual void fill_zero(void* device, std::size_t bytes) = 0;

  // Bytes to floats, into spec.layout; the samples from `count` to the stored batch become zero.
  virtual void load_input(const InputSpec& spec, const InputArguments& arguments) = 0;
  virtual void softmax_cross_entropy(const LossSpec& spec, const LossArguments& arguments) = 0;

  // sum[i] += addend[i].
  virtual void add(float* sum, const float* addend, std::size_t count) = 0;
  // The same for `count` elements of activations (activation_bytes()).
  virtual void add_activations(float* sum, const float* addend, std::size_t count) = 0;
  // Each value rounded to bfloat16, and back.
  virtual void to_bf16(Bf16* to, const float* from, std::size_t count) = 0;
  virtual void from_bf16(float* to, const Bf16* from, std::size_t count) = 0;
  // *broken = 1 if any of the values or of the sums is infinite or NaN, else 0.
  virtual void find_broken(const float* values, std::size_t count, const double* sums, std::size_t sum_count,
                           double* broken) = 0;
  // One step of an optimizer on all parameters.
  virtual void update(const UpdateArguments& arguments) = 0;

  // Marks this place in the order of work, for seconds_between(). A place may be marked again.
  virtual void mark(std::size_t place) = 0;

  // --- Waiting.

  virtual void synchronize() = 0;
  // The device's seconds between two places that were marked, after synchronize().
  virtual double seconds_between(std::size_t from, std::size_t to) const = 0;
  // Records the work that `enqueue` enqueues, without doing it; null where the backend cannot.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& enqueue) = 0;
  // The handle that libraries of the device's maker take for the order of work, e.g. a cudaStream_t.
  virtual void* native_stream() { return nullptr; }
};

// The backend of CPU cores: oneDNN and kernels of our own. Uses as many threads as OpenMP is set to. In the calling
// thread, in OpenMP's and in all that they start later, denormal numbers are zero from here on.
std::unique_ptr<Backend> make_cpu_backend();

}  // namespace ddp
