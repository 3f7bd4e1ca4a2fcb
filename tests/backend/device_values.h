// What tests put into a backend's memory and read from it.
//
//   DeviceArray<double> sums(backend, {1, 2, 3});
//   backend.math().find_broken(..., sums.data(), ...);
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
      : backend_(backend), count_(values.size()), memory_(backend.queue().allocate(bytes(), "a test's values")) {
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

// An activation in a layout and in the backend's element (fp32 or bf16), seen as plain values in double precision.
class DeviceActivation {
 public:
  DeviceActivation(Backend& backend, std::int64_t batch, const Shape& shape, Layout layout);

  Activations data() const { return {memory_.data(), backend_.ops().activation_element()}; }
  // The first `active` samples; those beyond become `rest`.
  void set(const reference::Values& plain, std::int64_t active, float rest = 0);
  reference::Values get(std::int64_t active) const;
  // Whether all samples from `active` on are zero.
  bool zero_from(std::int64_t active) const;
  // All samples that are stored, as they lie in memory.
  std::vector<float> stored() const;
  void set_stored(const std::vector<float>& values);
  // Every element, so that a test sees what was not written.
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
