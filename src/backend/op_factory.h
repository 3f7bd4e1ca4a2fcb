// The operators of a backend: which are supported, which of their kernels are fastest, and the two ends of a network.
//
//   KernelChoice choice = backend.ops().choose(spec, Layout::plain, Layout::lanes16, ChoiceMode::timed);
//   std::unique_ptr<Op> op = backend.ops().make_op(spec, Layout::plain, Layout::lanes16, choice.kernels);
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "backend/loss.h"
#include "backend/op.h"
#include "backend/op_joiner.h"
#include "backend/update/matrix_update.h"

namespace ddp {

// The kernels of an operator, and the time of one forward and backward pass.
struct KernelChoice {
  std::string kernels;  // e.g. "forward=lanes.5x2x2 data=lanes.10x1x2 weights=lanes.5x5"; "" if there is only one
  double seconds = 0;
};

enum class ChoiceMode {
  timed,     // run the candidates and choose the fastest
  expected,  // those that a cost model expects to be the fastest: the same on every machine with the same instruction set
  fixed,     // likewise, but without algorithms that round differently
};

class OpFactory : public OpJoiner, public MatrixUpdateFactory {
 public:
  // A line for the log header, e.g. "CPU, AVX-512, 1 thread".
  virtual std::string description() const = 0;
  // Everything besides shapes that kernels and timings depend on: a key for plan caches. It contains a hash of the
  // kernels' sources, so that a new build takes no plan of an older one.
  virtual std::string fingerprint() const = 0;
  // What determines the bits of results besides the plan, e.g. "avx512 kernels and oneDNN 2.6.3".
  virtual std::string arithmetic() const = 0;

  // The spec whose timing stands for that of `spec`: a batch may be timed with fewer samples. Specs with the same one
  // have the same kernels, and times in proportion to their batches.
  virtual OpSpec timed_spec(const OpSpec& spec) const { return spec; }

  // Whether an operator supports layout `x` for its input and `y` for its output.
  virtual bool supports(const OpSpec& spec, Layout x, Layout y) const = 0;
  virtual KernelChoice choose(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) = 0;
  // Builds the operator with the kernels of a choice; throws Error(preflight) for kernels unknown on this machine.
  virtual std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) = 0;
  // Whether batch normalisation can absorb the bias of the preceding operator (BatchNormSpec::input_bias).
  virtual bool takes_bias_into_norm() const { return false; }
  // The element type of activations and their gradients. Parameters and their gradients are always fp32.
  virtual Element activation_element() const { return Element::fp32; }

  // Converts bytes to activations in spec.layout; the samples from `count` to the stored batch become zero.
  virtual void load_input(const InputSpec& spec, const InputArguments& arguments) = 0;
  virtual void softmax_cross_entropy(const LossSpec& spec, const LossArguments& arguments) = 0;
};

}  // namespace ddp
