// Transfers values between tests and a backend's memory.
//
//   DeviceArray<double> sums(backend, {1, 2, 3});
//   backend.math().find_nonfinite({{sums.data(), 3}, ...});
//   std::vector<double> result = sums.get();
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/reference.h"

namespace ddp {

template <class T>
class DeviceArray {
 public:
  DeviceArray(Backend& backend, const std::vector<T>& values)
      : backend_(backend), count_(values.size()), memory_(backend.memory().allocate(bytes(), "a test's values")) {
    set(values);
  }

  T* data() const { return memory_.template at<T>(0); }
  void set(const std::vector<T>& values) {
    backend_.queue().upload(data(), values.data(), bytes());
    backend_.queue().synchronize();
  }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    backend_.queue().download(values.data(), data(), bytes());
    backend_.queue().synchronize();
    return values;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(T); }

  Backend& backend_;
  std::size_t count_;
  Memory memory_;
};

// Where several arrays begin.
template <class Pointer, class T>
std::vector<Pointer> pointers(const std::vector<DeviceArray<T>>& arrays) {
  std::vector<Pointer> all;
  for (const DeviceArray<T>& array : arrays) all.push_back(array.data());
  return all;
}

// An activation in the given layout and the backend's element type, accessed as plain values in double.
class DeviceActivation {
 public:
  DeviceActivation(Backend& backend, std::int64_t batch, const Shape& shape, Layout layout);

  Activations data() const { return {memory_.data(), backend_.ops().traits().activation_element}; }
  // Sets the first `active` samples, and all later ones to `rest`.
  void set(const reference::Values& plain, std::int64_t active, float rest = 0);
  reference::Values get(std::int64_t active) const;
  // Returns true if all samples from `active` on are zero.
  bool zero_from(std::int64_t active) const;
  // All stored samples in memory order.
  std::vector<float> stored() const;
  void set_stored(const std::vector<float>& values);
  // Sets every element, so that a test can detect what was not written.
  void fill(float value);

 private:
  std::size_t elements() const { return static_cast<std::size_t>(stored_elements(batch_, shape_, layout_)); }

  Backend& backend_;
  std::int64_t batch_;
  Shape shape_;
  Layout layout_;
  Memory memory_;
};

}  // namespace ddp
