#include "backend/cpu/conv/tiles/direct_conv.h"

#include <omp.h>

#include "backend/cpu/device/values.h"
#include "backend/cpu/pointwise/elementwise_kernels.h"

namespace ddp {
namespace {

using lanes::ConvShape;

std::vector<DataPhase> phases_of(const ConvSpec& spec, ConvPass pass) {
  if (pass == ConvPass::data) return data_phases(spec);
  return {{.shape = forward_shape(spec), .tap_row = 0, .tap_column = 0, .begin = 0}};
}

// Rows of a convolution of single pixels in the planes as they are.
Band rows_in_place(const ConvShape& whole, int begin, int end) {
  Band band{whole, begin, 1};
  band.shape.out_h = end - begin;
  return band;
}

}  // namespace

template <class Value>
DirectConv<Value>::DirectConv(const ConvSpec& spec, ConvPass pass, const ConvTile& tile, int threads)
    : spec_(spec),
      pass_(pass),
      tile_(forward_tile(tile.index, std::is_same_v<Value, Bf16>)),
      threads_(threads),
      phases_(phases_of(spec, pass)),
      whole_(pass == ConvPass::forward ? phases_[0].shape : all_phases(phases_)),
      pooled_(pass == ConvPass::forward && spec.average_pool),
      single_rows_(tile_.rows == 1),
      in_place_(std::is_same_v<Value, float> && reads_in_place(spec)),
      x_group_(kLanes * (pass == ConvPass::forward ? spec.input : spec.convolved()).elements() / spec.groups),
      y_group_(kLanes * (pass == ConvPass::forward ? spec.output() : spec.input).elements() / spec.groups) {
  for (const DataPhase& phase : phases_) packed_size_ += spec.groups * packed_group(phase);
  packed_size_ = round_up(packed_size_, kLanes);
}

template <class Value>
std::int64_t DirectConv<Value>::rounded_size() const {
  return std::is_same_v<Value, float> ? 0 : (spec_.weights() + 1) / 2;
}

template <class Value>
std::int64_t DirectConv<Value>::scratch_elements() const {
  if (in_place_) return 0;
  const ConvShape shape = kernel_shape<Value>(whole_);
  return band_elements(band_of(shape, 0, band_rows(shape), false));
}

template <class Value>
void DirectConv<Value>::pack(const float* weights, float* packed) const {
  const Value* from = nullptr;
  if constexpr (std::is_same_v<Value, Bf16>) {
    auto* rounded = static_cast<Bf16*>(static_cast<void*>(packed + packed_size_));
    lanes::elementwise_kernels().to_bf16(spec_.weights(), weights, raw(rounded));
    from = rounded;
  } else {
    from = weights;
  }
  const std::int64_t group_parameters = spec_.weights() / spec_.groups;
  for (const DataPhase& phase : phases_) {
    const std::int64_t size = packed_group(phase);
#pragma omp parallel for schedule(static) num_threads(threads_) if (spec_.groups > 1)
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      const Value* of_group = from + g * group_parameters;
      if (pass_ == ConvPass::forward) {
        pack_forward(phase.shape, of_group, tile_.channels, packed + g * size);
      } else {
        pack_data(spec_, phase, of_group, tile_.channels, packed + g * size);
      }
    }
    packed += spec_.groups * size;
  }
}

template <class Value>
void DirectConv<Value>::copy(const Value* x, const Rows& rows, const Band& band, float* image) const {
  copy_band(whole_, band, x + place(rows) * x_group_, image);
}

template <class Value>
void DirectConv<Value>::compute(const Rows& rows, const Band& band, const float* image, Value* y,
                                const ConvBlocks& blocks) const {
  const bool forward = pass_ == ConvPass::forward;
  const std::int64_t begin = pooled_ ? rows.begin / 2 * (whole_.out_w / 2) : rows.begin * phases_[0].shape.out_row;
  const float* packed = blocks.packed;
  for (const DataPhase& phase : phases_) {
    const ConvShape shape = forward ? band.shape : shape_in(band, phase, rows.begin, rows.end);
    const std::int64_t at = place(rows) * y_group_ + kLanes * (phase.begin + begin);
    const std::int64_t size = packed_group(phase);
    // There are four 16-bit masks for 16 results.
    forward_kernel(tile_, shape.stride, pooled_)(
        kernel_shape<Value>(shape), image, packed + rows.group * size,
        blocks.bias == nullptr ? nullptr : blocks.bias + rows.group * shape.out_channels,
        lanes::least_result(forward && spec_.relu), y + at, pooled_ ? blocks.mask + at / 4 : nullptr, 0, shape.out_h);
    packed += spec_.groups * size;
  }
}

template <class Value>
void DirectConv<Value>::run(ConstActivations x, Activations y, const ConvBlocks& blocks) const {
  const Value* const from = values<Value>(x);
  auto* const to = values<Value>(y);
  each_band(kernel_shape<Value>(whole_), blocks.count, spec_.groups, threads_,
            [&](std::int64_t block, std::int64_t group, int begin, int end) {
              const Rows rows{block, group, begin, end};
              if constexpr (std::is_same_v<Value, float>) {
                if (in_place_) {
                  const std::int64_t offset = kLanes * begin * std::int64_t{whole_.in_w};
                  return compute(rows, rows_in_place(whole_, begin, end), from + place(rows) * x_group_ + offset, to,
                                 blocks);
                }
              }
              float* image = blocks.scratch + omp_get_thread_num() * blocks.scratch_size;
              const Band band = this->band(begin, end);
              copy(from, rows, band, image);
              compute(rows, band, image, to, blocks);
            });
}

template class DirectConv<Bf16>;
template class DirectConv<float>;

}  // namespace ddp
