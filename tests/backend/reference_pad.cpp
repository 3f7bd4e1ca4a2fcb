#include "backend/reference_kinds.h"

namespace ddp::reference {
namespace {

// Walks from the first row past the image and back, as PyTorch's documentation draws it.
std::int64_t source(std::int64_t place, std::int64_t size, PadMode mode) {
  while (place < 0 || place >= size) {
    if (mode == PadMode::replicate) {
      place += place < 0 ? 1 : -1;
    } else {
      place = place < 0 ? -place : size - 1 - (place - (size - 1));
    }
  }
  return place;
}

// Calls f(input index, output index) for each element of the output.
template <class F>
void each_copy(const PadSpec& s, F f) {
  const Shape out = s.output();
  for (std::int64_t i = 0; i < s.batch * out.elements(); ++i) {
    const std::int64_t column = source(i % out.width - s.padding.left, s.input.width, s.mode);
    const std::int64_t row = source(i / out.width % out.height - s.padding.top, s.input.height, s.mode);
    const std::int64_t plane = i / (out.width * out.height);
    f(at((plane * s.input.height + row) * s.input.width + column), at(i));
  }
}

}  // namespace

Values pad(const PadSpec& s, const Values& x) {
  Values y(at(s.batch * s.output().elements()));
  each_copy(s, [&](std::size_t in, std::size_t out) { y[out] = x[in]; });
  return y;
}

Values pad_backward(const PadSpec& s, const Values& dy) {
  Values dx(at(s.batch * s.input.elements()));
  each_copy(s, [&](std::size_t in, std::size_t out) { dx[in] += dy[out]; });
  return dx;
}

}  // namespace ddp::reference
