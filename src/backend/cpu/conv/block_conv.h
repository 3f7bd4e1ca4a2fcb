// Convolutions in lanes16 that are computed in parts, some blocks of 16 samples after others, so that what they read need not
// exist as a whole: operators that make it part by part have it in the cache (conv_norm_conv.cpp).
//
//   conv->begin_forward(arguments);
//   for (each part) conv->forward_part(part_of(arguments, spec, first, count));
//
// The results have the same bits as those of forward() and backward().
#pragma once

#include "backend/op.h"

namespace ddp {

class BlockConv : public Op {
 public:
  explicit BlockConv(const ConvSpec& spec) : spec_(spec) {}

  OpTraits traits() const final;
  void forward(const ForwardArguments& a) final;
  void backward(const BackwardArguments& a) final;

  const ConvSpec& spec() const { return spec_; }
  // Before the first part: packs the weights in the workspace, which stays as it is until after the last.
  virtual void begin_forward(const ForwardArguments& a) = 0;
  virtual void forward_part(const ForwardArguments& a) = 0;
  virtual void begin_backward(const BackwardArguments& a) = 0;
  virtual void backward_part(const BackwardArguments& a, bool is_first, bool is_last) = 0;
  // The blocks that are computed together: of forward passes for speed, of backward passes by the order of additions, where only
  // the last part has fewer.
  virtual std::int64_t forward_blocks() const = 0;
  virtual std::int64_t backward_blocks() const = 0;
  // The gradients without any sample.
  void clear_gradients(const BackwardArguments& a) const;

 protected:
  std::int64_t group_parameters() const { return spec_.weights() / spec_.groups; }
  std::int64_t x_block() const { return kLanes * spec_.input.elements(); }
  std::int64_t x_group() const { return x_block() / spec_.groups; }
  std::int64_t y_block() const { return kLanes * spec_.output().elements(); }
  // The values of the gradient before ReLU and pooling of a block.
  std::int64_t dpre_block() const { return kLanes * spec_.convolved().elements(); }
  std::int64_t dpre_group() const { return dpre_block() / spec_.groups; }

  ConvSpec spec_;
  std::size_t workspace_bytes_ = 0;  // set by the constructors of derived classes
};

// The activations from an element on; null stays null.
ConstActivations later(ConstActivations from, std::int64_t elements);
Activations later(Activations from, std::int64_t elements);
// The arguments for `count` blocks from `first` on.
ForwardArguments part_of(const ForwardArguments& a, const ConvSpec& spec, std::int64_t first, std::int64_t count);
BackwardArguments part_of(const BackwardArguments& a, const ConvSpec& spec, std::int64_t first, std::int64_t count);

}  // namespace ddp
