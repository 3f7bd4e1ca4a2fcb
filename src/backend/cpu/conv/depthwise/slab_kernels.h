// Depthwise convolution of channels-last activations, of slabs: the values of 16 channels of a sample, [rows][columns][16], copied
// from [rows][columns][channels] with a border of zeros, so that windows at the edge are like all others and what is read
// repeatedly is contiguous in the cache.
//
//   const SlabKernels& kernels = lanes::slab_kernels();
//   kernels.copy({x, channels, 16, height, width, slab, row});
//   kernels.forward(task);
#pragma once

#include <cstdint>

namespace ddp::lanes {

// Copies up to 16 channels of an image to the inside of a slab; the other lanes become zero. Distances in floats.
struct SlabCopy {
  const float* from;
  std::int64_t channels;  // between neighbouring positions
  int count;              // the channels that are copied
  int height, width;
  float* to;         // aligned, the place of position (0, 0)
  std::int64_t row;  // between rows of the slab
};

// y = conv(x, w) + bias of the channels of a slab.
struct SlabConvolution {
  const float* x;    // the slab's vector where the window of the first result begins
  std::int64_t row;  // floats between its rows
  int rows_above;    // the rows of windows of the first result that lie above the image, and are not read
  int in_h;          // the rows of the image
  int stride;
  int kernel_h, kernel_w;
  const float* w;     // [kernel_h][kernel_w][16]
  const float* bias;  // [16]
  int out_h, out_w;
  float* y;  // not aligned
  std::int64_t y_row, y_column;
  int count;  // the channels that are written
};

// sums[kernel_h][kernel_w][16] = sum of x * dy over all results, and totals[16] = sum of dy.
struct SlabGradient {
  const float* x;
  std::int64_t row;
  int rows_above;
  int in_h;
  int stride;
  int kernel_h, kernel_w;
  const float* dy;  // the first result's gradient in a slab
  std::int64_t dy_row;
  int out_h, out_w;
  float* sums;
  float* totals;
};

struct SlabKernels {
  void (*copy)(const SlabCopy& task);
  void (*forward)(const SlabConvolution& task);
  void (*gradient)(const SlabGradient& task);
};

const SlabKernels& slab_kernels();

}  // namespace ddp::lanes
