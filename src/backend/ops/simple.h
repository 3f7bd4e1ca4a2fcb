// What simple operators have in common: there is one way to compute each, in any layout that a backend has, the same on both
// sides. The header of such an operator says all that others must know of it, also how each backend makes it:
//
//   static_assert(SimpleSpec<GeluSpec> && LayerSpec<GeluSpec>);
//   const GeluSpec spec{.batch = 64, .shape = {384, 8, 8}};
//   std::unique_ptr<Op> op = make_cpu_op(spec, Layout::nhwc);
//
// In the spec:
//   kSimple    it is simple, and make_cpu_op() and cuda::make_cuda_op() are declared behind it; where one of them is missing,
//              that backend does not compile
//   kLayer     it is a layer of graphs too, see LayerSpec
//
// A backend takes such operators without knowing them.
#pragma once

#include <memory>

#include "backend/tensor.h"

namespace ddp {

class Op;

namespace cuda {
struct CudaContext;
}  // namespace cuda

template <class Spec>
concept SimpleSpec = requires {
  requires Spec::kSimple;
};

// A simple operator with one input and a result of the same shape, of which each position depends on the same position of the
// input alone, and without parameters: a graph's layer too (model/graph.h), which leaves batch and shape open.
template <class Spec>
concept LayerSpec = SimpleSpec<Spec> && requires {
  requires Spec::kLayer;
};

}  // namespace ddp
