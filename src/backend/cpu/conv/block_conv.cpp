#include "backend/cpu/conv/block_conv.h"

#include <algorithm>

#include "backend/cpu/device/planes.h"

namespace ddp {
namespace {

std::int64_t active_in(std::int64_t active, std::int64_t first, std::int64_t count) {
  return std::clamp<std::int64_t>(active - first * kLanes, 0, count * kLanes);
}

// Masks of pooling: four of 16 bits for 16 results.
std::byte* masks_of(std::byte* saved, std::int64_t results) {
  constexpr std::int64_t kResults = 4;
  return saved == nullptr ? saved : saved + results / kResults * static_cast<std::int64_t>(sizeof(std::uint16_t));
}

}  // namespace

ConstActivations later(ConstActivations from, std::int64_t elements) {
  if (from == nullptr) return from;
  const std::int64_t bytes = elements * static_cast<std::int64_t>(bytes_of(from.element()));
  return {static_cast<const std::byte*>(from.data()) + bytes, from.element()};
}

Activations later(Activations from, std::int64_t elements) {
  if (from == nullptr) return from;
  const std::int64_t bytes = elements * static_cast<std::int64_t>(bytes_of(from.element()));
  return {static_cast<std::byte*>(from.data()) + bytes, from.element()};
}

ForwardArguments part_of(const ForwardArguments& a, const ConvSpec& spec, std::int64_t first, std::int64_t count) {
  const std::int64_t y = first * kLanes * spec.output().elements();
  ForwardArguments part = a;
  part.inputs = {later(a.x(), first * kLanes * spec.input.elements())};
  part.y = later(a.y, y);
  part.saved = masks_of(a.saved, y);
  part.active = active_in(a.active, first, count);
  return part;
}

BackwardArguments part_of(const BackwardArguments& a, const ConvSpec& spec, std::int64_t first, std::int64_t count) {
  const std::int64_t x = first * kLanes * spec.input.elements();
  const std::int64_t y = first * kLanes * spec.output().elements();
  BackwardArguments part = a;
  part.inputs = {later(a.x(), x)};
  part.y = later(a.y, y);
  part.dy = later(a.dy, y);
  part.input_gradients = {later(a.dx(), x)};
  part.saved = masks_of(a.saved, y);
  part.active = active_in(a.active, first, count);
  return part;
}

OpTraits BlockConv::traits() const {
  const auto results = static_cast<std::size_t>(sample_blocks(spec_.batch) * spec_.output().elements());
  return {.saved_bytes = spec_.average_pool ? results * 4 * sizeof(std::uint16_t) : 0,
          .workspace_bytes = workspace_bytes_,
          .backward_reads_inputs = {0},
          .backward_reads_y = spec_.relu && !spec_.average_pool};
}

void BlockConv::clear_gradients(const BackwardArguments& a) const {
  std::fill_n(a.parameter_gradients[0], spec_.weights(), 0.0F);
  if (spec_.bias) std::fill_n(a.parameter_gradients[1], spec_.output_channels, 0.0F);
}

void BlockConv::forward(const ForwardArguments& a) {
  begin_forward(a);
  forward_part(a);
}

void BlockConv::backward(const BackwardArguments& a) {
  const std::int64_t blocks = sample_blocks(a.active);
  if (blocks == 0) clear_gradients(a);
  begin_backward(a);
  const std::int64_t together = backward_blocks();
  for (std::int64_t first = 0; first < blocks; first += together) {
    const std::int64_t count = std::min(together, blocks - first);
    backward_part(part_of(a, spec_, first, count), first == 0, first + count == blocks);
  }
  if (!spec_.input_gradient) return;
  if (a.dx().element() == Element::bf16) {
    clear_rest(a.dx().bf16(), a.active, spec_.batch, spec_.input, Layout::lanes16);
  } else {
    clear_rest(a.dx().fp32(), a.active, spec_.batch, spec_.input, Layout::lanes16);
  }
}

}  // namespace ddp
