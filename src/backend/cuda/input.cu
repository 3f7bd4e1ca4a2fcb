#include "backend/arithmetic.h"
#include "backend/cuda/divisor.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace ddp::cuda {
namespace {

// Kernel parameters, passed by value.
struct Input {
  const std::uint8_t* pixels;
  const std::int32_t* rows;
  std::uint32_t active;    // elements of the active samples; those beyond become zero
  std::uint32_t elements;  // of all samples
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
__global__ void load_input_kernel(const PreviousKernel previous, const Input in, T* x) {
  previous.wait();
  for (std::size_t i = first_index(); i < in.elements; i += index_step()) {
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
    const std::size_t image = in.rows == nullptr ? rest : static_cast<std::size_t>(in.rows[rest]);
    const std::uint8_t* plane = in.pixels + (image * in.channels.number() + channel) * in.image_height * in.image_width;
    const std::uint8_t byte = in.edits == nullptr
                                  ? plane[static_cast<std::size_t>(row) * in.image_width + column]
                                  : edited_byte(plane, in.rules, in.edits[rest], static_cast<std::int32_t>(row),
                                                static_cast<std::int32_t>(column), in.fill[channel]);
    put(x, i, pixel_value(byte, in.scale[channel], in.shift[channel]));
  }
}

}  // namespace

void load_input(cudaStream_t stream, Element element, const InputSpec& spec, const InputArguments& arguments) {
  const std::int64_t elements = spec.batch * spec.cropped.elements();
  if (elements == 0) return;
  const auto u32 = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  Input in{};
  in.pixels = arguments.pixels;
  in.rows = arguments.rows;
  in.active = u32(arguments.count * spec.cropped.elements());
  in.elements = u32(elements);
  in.channels = Divisor(u32(spec.cropped.channels));
  in.height = Divisor(u32(spec.cropped.height));
  in.width = Divisor(u32(spec.cropped.width));
  in.image_height = u32(spec.image.height);
  in.image_width = u32(spec.image.width);
  in.nhwc = spec.layout == Layout::nhwc;
  in.edits = arguments.edits;
  in.rules = {static_cast<std::int32_t>(spec.image.height), static_cast<std::int32_t>(spec.image.width),
              spec.edits_reflect};
  for (std::size_t c = 0; c < spec.scale.size(); ++c) {
    in.scale[c] = spec.scale[c];
    in.shift[c] = spec.shift[c];
    if (c < spec.fill.size()) in.fill[c] = spec.fill[c];
  }
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(elements), kThreads, load_input_kernel<T>, in, as<T>(arguments.x.data()));
  });
}

}  // namespace ddp::cuda
