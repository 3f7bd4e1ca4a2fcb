// The operators of a backend: which are supported, and how they are made.
//
//   const KernelChoice choice = backend.chooser().choose(spec, Layout::plain, Layout::lanes16, ChoiceMode::timed);
//   std::unique_ptr<Op> op = backend.ops().make_op(spec, Layout::plain, Layout::lanes16, choice.kernels);
//   const Element element = backend.ops().traits().activation_element;
#pragma once

#include <memory>
#include <string>

#include "backend/op.h"
#include "backend/op_joiner.h"
#include "backend/update/matrix_update.h"

namespace ddp {

class KernelChooser;

// What does not change while a backend exists.
struct BackendTraits {
  // A line for the log header, e.g. "CPU, AVX-512, 1 thread".
  std::string description;
  // Everything besides shapes that kernels and timings depend on: a key for plan caches. It contains a hash of the
  // kernels' sources, so that a new build takes no plan of an older one.
  std::string fingerprint;
  // What determines the bits of results besides the plan, e.g. "avx512 kernels and oneDNN 2.6.3".
  std::string arithmetic;
  // The element type of activations and their gradients. Parameters and their gradients are always fp32.
  Element activation_element = Element::fp32;
  // Whether batch normalisation can absorb the bias of the preceding operator (BatchNormSpec::input_bias).
  bool takes_bias_into_norm = false;
};

class OpFactory : public OpJoiner, public MatrixUpdateFactory {
 public:
  virtual const BackendTraits& traits() const = 0;
  // Whether an operator supports layout `x` for its input and `y` for its output.
  virtual bool supports(const OpSpec& spec, Layout x, Layout y) const = 0;
  // Builds the operator with the kernels of a choice; throws Error(preflight) for kernels unknown on this machine.
  virtual std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) = 0;
  // Which kernels are the fastest: backend/choose/kernel_chooser.h.
  virtual KernelChooser& chooser() = 0;
};

}  // namespace ddp
