// An activation that is known when the kernel runs; all threads take the same branch.
#pragma once

#include "backend/arithmetic.h"
#include "backend/cuda/launch.cuh"
#include "backend/op.h"

namespace ddp::cuda {

__device__ inline float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::none:
      break;
    case Activation::relu:
      return relu(x);
    case Activation::relu6:
      return relu6(x);
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::tanh:
      return hyperbolic_tangent(x);
  }
  return x;
}

// The gradient before the activation, from its result.
__device__ inline float activation_gradient(Activation activation, float y, float dy) {
  switch (activation) {
    case Activation::none:
      break;
    case Activation::relu:
      return relu_gradient(y, dy);
    case Activation::relu6:
      return relu6_gradient(y, dy);
    case Activation::sigmoid:
      return sigmoid_gradient(y, dy);
    case Activation::tanh:
      return tanh_gradient(y, dy);
  }
  return dy;
}

}  // namespace ddp::cuda
