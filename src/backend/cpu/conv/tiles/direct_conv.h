// A convolution in lanes16, or its data gradient, by direct tiles: bands of rows are copied to an image in the cache, from which
// kernels compute them. Value: of activations; floats, or Bf16, of which kernels multiply pairs of input channels.
//
//   DirectConv<float> forward(spec, ConvPass::forward, tiles.forward, threads);     // see direction.h
#pragma once

#include <vector>

#include "backend/cpu/conv/tiles/direction.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/conv/tiles/tile.h"

namespace ddp {

template <class Value>
class DirectConv final : public ConvDirection {
 public:
  DirectConv(const ConvSpec& spec, ConvPass pass, const ConvTile& tile, int threads);

  std::int64_t packed_elements() const override { return packed_size_ + rounded_size(); }
  std::int64_t scratch_elements() const override;
  void pack(const float* weights, float* packed) const override;
  void run(ConstActivations x, Activations y, const ConvBlocks& blocks) const override;

  // Rows [begin, end) of the results of a group of a block.
  struct Rows {
    std::int64_t block, group;
    int begin, end;
  };
  // The two parts of run(), for those who read the image as well: copies what the rows are computed from, and computes them.
  Band band(int begin, int end) const { return band_of(whole_, begin, end, single_rows_); }
  void copy(const Value* x, const Rows& rows, const Band& band, float* image) const;
  void compute(const Rows& rows, const Band& band, const float* image, Value* y, const ConvBlocks& blocks) const;

 private:
  // Floats that the weights take as Value, behind the packed ones.
  std::int64_t rounded_size() const;
  std::int64_t packed_group(const DataPhase& phase) const {
    return packed_weights(kernel_shape<Value>(phase.shape), tile_.channels);
  }
  std::int64_t place(const Rows& rows) const { return rows.block * spec_.groups + rows.group; }

  ConvSpec spec_;
  ConvPass pass_;
  lanes::ForwardTile tile_;
  int threads_;
  std::vector<DataPhase> phases_;  // forward: one, of the whole convolution
  lanes::ConvShape whole_;         // of all phases
  bool pooled_, single_rows_;
  bool in_place_;                   // rows are read where they are
  std::int64_t x_group_, y_group_;  // values of a block
  std::int64_t packed_size_ = 0;
};

}  // namespace ddp
