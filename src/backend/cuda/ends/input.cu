// The first kernel of a pass. It does three things of which none depends on another: it copies what the step reads, packs the
// weights, and loads the images.
#include "backend/arithmetic.h"
#include "backend/cuda/code/copy_row.cuh"
#include "backend/cuda/code/divisor.cuh"
#include "backend/cuda/code/launch.cuh"
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/conv/packing.cuh"
#include "backend/cuda/ends/input.h"

namespace ddp::cuda {
namespace {

// Kernel parameters, passed by value.
struct Input {
  const std::uint8_t* pixels;
  const TableCursor* cursor;  // of the tables that rows and edits may be in; null: there are none
  const std::int32_t* rows;
  std::uint32_t row_stride;  // in the table; 0: they are in none
  std::uint32_t edit_stride;
  std::uint32_t packing_blocks;  // the first ones
  std::uint32_t copying_blocks;  // those behind them
  std::uint32_t active;          // elements of the active samples; those beyond become zero
  std::uint32_t elements;        // of all samples
  Divisor channels;
  Divisor height;  // of the cropped region
  Divisor width;
  std::uint32_t image_height;  // of the stored images
  std::uint32_t image_width;
  bool nhwc;
  const ImageEdit* edits;  // null: images are read as they are
  EditRules rules;
  std::uint8_t fill[kMostImageChannels];
  float scale[kMostImageChannels];
  float shift[kMostImageChannels];
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    load_input_kernel(const PreviousKernel previous, const __grid_constant__ PackedTensors<const float, T> weights,
                      const __grid_constant__ Columns columns, const __grid_constant__ Input in, T* x) {
  static_assert(sizeof weights + sizeof columns + sizeof in <= 4080, "of 4096 bytes of all parameters");
  std::uint32_t block = blockIdx.x;
  previous.wait();
  if (block < in.packing_blocks) {
    pack_of_block(weights);
    return;
  }
  const std::size_t table_row = row_at(in.cursor);
  block -= in.packing_blocks;
  if (block < in.copying_blocks) {
    columns.copy(table_row, block, in.copying_blocks);
    return;
  }
  block -= in.copying_blocks;
  const std::int32_t* rows = in.rows + table_row * in.row_stride;
  const ImageEdit* edits = in.edits + table_row * in.edit_stride;
  const std::size_t step = std::size_t{gridDim.x - in.packing_blocks - in.copying_blocks} * kThreads;
  for (std::size_t i = std::size_t{block} * kThreads + threadIdx.x; i < in.elements; i += step) {
    if (i >= in.active) {
      put(x, i, 0.0F);
      continue;
    }
    auto rest = static_cast<std::uint32_t>(i);
    const auto take = [&rest](const Divisor& size) {
      const Divided digit = size.divide(rest);
      rest = digit.quotient;
      return digit.remainder;
    };
    std::uint32_t channel = 0;
    if (in.nhwc) channel = take(in.channels);
    const std::uint32_t column = take(in.width);
    const std::uint32_t row = take(in.height);
    if (!in.nhwc) channel = take(in.channels);
    const std::size_t image = in.rows == nullptr ? rest : static_cast<std::size_t>(rows[rest]);
    const std::uint8_t* plane = in.pixels + (image * in.channels.number() + channel) * in.image_height * in.image_width;
    const std::uint8_t byte = in.edits == nullptr
                                  ? plane[static_cast<std::size_t>(row) * in.image_width + column]
                                  : edited_byte(plane, in.rules, edits[rest], static_cast<std::int32_t>(row),
                                                static_cast<std::int32_t>(column), in.fill[channel]);
    put(x, i, pixel_value(byte, in.scale[channel], in.shift[channel]));
  }
}

bool pack_at_once(std::span<const WeightPacking> weights) {
  return weights.size() <= kPackedAtOnce &&
         std::ranges::all_of(weights, [](const WeightPacking& each) { return takes_taps(each.shape); });
}

// Where values are copied from; nothing if no column goes there.
const TableColumn* column_to(const TableRow& row, const void* place) {
  const auto found = std::ranges::find(row.columns, place, &TableColumn::to);
  return place == nullptr || found == row.columns.end() ? nullptr : &*found;
}

Input input_of(const InputSpec& spec, Layout layout, std::int64_t active, const InputArguments& arguments) {
  const auto u32 = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  Input in{};
  in.pixels = arguments.pixels;
  in.cursor = arguments.step.cursor;
  in.rows = arguments.rows;
  if (const TableColumn* column = column_to(arguments.step, arguments.rows)) {
    in.rows = as<std::int32_t>(column->table);
    in.row_stride = u32(static_cast<std::int64_t>(column->stride / sizeof(std::int32_t)));
  }
  in.active = u32(active * spec.shape.elements());
  in.elements = u32(spec.batch * spec.shape.elements());
  in.channels = Divisor(u32(spec.shape.channels));
  in.height = Divisor(u32(spec.shape.height));
  in.width = Divisor(u32(spec.shape.width));
  in.image_height = u32(spec.image.height);
  in.image_width = u32(spec.image.width);
  in.nhwc = layout == Layout::nhwc;
  in.edits = arguments.edits;
  if (const TableColumn* column = column_to(arguments.step, arguments.edits)) {
    in.edits = as<ImageEdit>(column->table);
    in.edit_stride = u32(static_cast<std::int64_t>(column->stride / sizeof(ImageEdit)));
  }
  in.rules = {static_cast<std::int32_t>(spec.image.height), static_cast<std::int32_t>(spec.image.width),
              spec.edits_reflect};
  for (std::size_t c = 0; c < spec.scale.size(); ++c) {
    in.scale[c] = spec.scale[c];
    in.shift[c] = spec.shift[c];
    if (c < spec.fill.size()) in.fill[c] = spec.fill[c];
  }
  return in;
}

}  // namespace

void load_input(const CudaContext& context, const InputSpec& spec, Layout layout, const ForwardArguments& a) {
  const InputArguments& images = *a.images;
  Input in = input_of(spec, layout, a.active, images);
  const Columns columns(images.step.columns);
  const bool packs = pack_at_once(images.weights);
  if (!packs) pack_weights(context.stream, context.element(), images.weights);
  with_element(context.element(), [&](auto zero) {
    using T = decltype(zero);
    PackedLaunch<const float, T> weights;
    for (const WeightPacking& each : packs ? images.weights : std::span<const WeightPacking>()) weights.add(each);
    in.packing_blocks = weights.blocks;
    in.copying_blocks = columns.blocks();
    const unsigned blocks = in.packing_blocks + in.copying_blocks + blocks_for(in.elements);
    if (blocks == 0) return;
    launch(context.stream, blocks, kThreads, load_input_kernel<T>, weights.tensors, columns, in, as<T>(a.y.data()));
  });
}

}  // namespace ddp::cuda
