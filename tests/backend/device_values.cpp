#include "backend/device_values.h"

#include "backend/arithmetic.h"

namespace ddp {
namespace {

// Calls f(plain index, memory index) for the elements of samples `first` to `last` - 1.
template <class F>
void each_element(std::int64_t first, std::int64_t last, const Shape& shape, Layout layout, F f) {
  for (std::int64_t n = first; n < last; ++n) {
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      for (std::int64_t y = 0; y < shape.height; ++y) {
        for (std::int64_t x = 0; x < shape.width; ++x) {
          f(static_cast<std::size_t>(element_offset(shape, Layout::plain, n, c, y, x)),
            static_cast<std::size_t>(element_offset(shape, layout, n, c, y, x)));
        }
      }
    }
  }
}

}  // namespace

DeviceActivation::DeviceActivation(Backend& backend, std::int64_t batch, const Shape& shape, Layout layout)
    : backend_(backend),
      batch_(batch),
      shape_(shape),
      layout_(layout),
      memory_(backend.memory().allocate(elements() * bytes_of(backend.ops().traits().activation_element),
                                        "a test's values")) {}

void DeviceActivation::set(const reference::Values& plain, std::int64_t active, float rest) {
  std::vector<float> values(elements(), rest);
  each_element(0, active, shape_, layout_,
               [&](std::size_t from, std::size_t to) { values[to] = static_cast<float>(plain[from]); });
  set_stored(values);
}

void DeviceActivation::fill(float value) { set_stored(std::vector<float>(elements(), value)); }

reference::Values DeviceActivation::get(std::int64_t active) const {
  const std::vector<float> values = stored();
  reference::Values plain(static_cast<std::size_t>(active * shape_.elements()));
  each_element(0, active, shape_, layout_,
               [&](std::size_t to, std::size_t from) { plain[to] = static_cast<double>(values[from]); });
  return plain;
}

bool DeviceActivation::zero_from(std::int64_t active) const {
  const std::vector<float> values = stored();
  bool zero = true;
  each_element(active, stored_samples(batch_, layout_), shape_, layout_,
               [&](std::size_t, std::size_t at) { zero = zero && values[at] == 0; });
  return zero;
}

std::vector<float> DeviceActivation::stored() const {
  const Element element = backend_.ops().traits().activation_element;
  std::vector<std::byte> bytes(elements() * bytes_of(element));
  backend_.queue().download(bytes.data(), memory_.data(), bytes.size());
  backend_.queue().synchronize();
  std::vector<float> values(elements());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_at(bytes.data(), element, i);
  return values;
}

void DeviceActivation::set_stored(const std::vector<float>& values) {
  const Element element = backend_.ops().traits().activation_element;
  std::vector<std::byte> bytes(values.size() * bytes_of(element));
  for (std::size_t i = 0; i < values.size(); ++i) set_value(bytes.data(), element, i, values[i]);
  backend_.queue().upload(memory_.data(), bytes.data(), bytes.size());
  backend_.queue().synchronize();
}

}  // namespace ddp
