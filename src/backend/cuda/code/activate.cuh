// An activation selected at run time; all threads take the same branch.
#pragma once

#include "backend/arithmetic.h"
#include "backend/cuda/code/launch.cuh"
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

// The gradient before the activation, from its output.
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

// No activation, ReLU or ReLU6, given by the bounds of its output: a few instructions in memory-bound kernels.
struct Bounds {
  float low;
  float high;

  // NaNs propagate, as in arithmetic.h.
  __device__ float clamp(float x) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    // One instruction each, where comparisons and selections are two.
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(low));
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(high));
    return x;
#else
    return x < low ? low : x > high ? high : x;
#endif
  }
  // Whether the gradient passes, from the input or the output.
  __device__ bool pass(float x) const { return !(x <= low || x >= high); }
};
inline Bounds bounds_of(Activation activation) {
  const bool clipped = activation == Activation::relu || activation == Activation::relu6;
  return {clipped ? 0.0F : -HUGE_VALF, activation == Activation::relu6 ? 6.0F : HUGE_VALF};
}

}  // namespace ddp::cuda
