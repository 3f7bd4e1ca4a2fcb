// The weight gradient of a convolution in lanes16 by direct tiles, which sum over lanes, or outer tiles, which have channels in the
// lanes: piece by piece, small enough for the cache and large enough for the sums. Value: of activations; floats, or Bf16, of which
// kernels multiply pairs of samples.
//
//   DirectGradient<float> gradient(spec, tiles.weights, threads);          // see direction.h
#pragma once

#include "backend/cpu/conv/tiles/direct_conv.h"

namespace ddp {

template <class Value>
class DirectGradient final : public ConvGradient {
 public:
  // `data`: computes the data gradient in add_both(). `blocks`: of a piece; 0: as gradient_pieces() says.
  DirectGradient(const ConvSpec& spec, const WeightTile& tile, int threads, const DirectConv<Value>* data = nullptr,
                 std::int64_t blocks = 0);

  std::int64_t memory_elements() const override;
  std::int64_t blocks_together() const override;
  void add(ConstActivations x, ConstActivations dpre, const GradientBlocks& blocks) const override;
  // For convolutions of single pixels: add() and data->run(dpre, dx, data_blocks) in one thread, where the rows that are copied for
  // one serve the other as well, so that memory is read once.
  void add_both(ConstActivations x, ConstActivations dpre, const GradientBlocks& blocks, Activations dx,
                const ConvBlocks& data_blocks) const requires std::is_same_v<Value, float>;

 private:
  // Rows [begin, end) of some blocks from `block` on; `sets` if it is the first of all.
  struct Piece {
    std::int64_t block, blocks;
    int begin, end;
    bool sets;
    float* dw;
    float* memory;

    int rows() const { return end - begin; }
  };
  // The rows of a piece: values from one block, group of channels and channel to the next; the last in vectors.
  struct Rows {
    const Value* first;
    std::int64_t block, group, plane;
  };
  Rows x_rows(const Value* x, const Piece& piece, int row) const;
  template <class Gradient>
  void add_pieces(const Value* x, const GradientBlocks& blocks, Gradient rows_of) const;
  void add_piece(const Value* x, const Rows& dy, const Piece& piece) const;
  void add_outer_piece(const Value* x, const Rows& dy, const Piece& piece) const;
  template <class T, class F>
  const T* copy_images(const Piece& piece, std::int64_t size, F copy) const;
  template <class F>
  void each_tile(int columns, int rows, F f) const;

  lanes::ConvShape exchanged(int rows, std::int64_t plane) const;
  std::int64_t images_elements() const;
  std::int64_t group_parameters() const { return spec_.weights() / spec_.groups; }

  ConvSpec spec_;
  lanes::ConvShape shape_;
  int threads_;
  const DirectConv<Value>* data_;
  const lanes::WeightsTile* direct_ = nullptr;  // or
  const lanes::OuterTile* outer_ = nullptr;
  bool copies_x_;
  bool exchanged_;  // the outer tile has output channels in the lanes
  std::int64_t width_ = 0;
  GradientPieces pieces_;
  std::int64_t x_block_, x_group_, dy_block_, dy_group_;  // values
};

}  // namespace ddp
