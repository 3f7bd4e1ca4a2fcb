// Pointers to activations: device memory whose elements are fp32, bf16 or fp16, as the backend stores them.
//
//   Activations y(memory.data() + offset, backend.ops().traits().activation_element);
//   kernel(y.fp32());                 // throws if the elements are bf16
//   launch(stream, y.element(), y.data());
//
// A typed pointer converts to one of these implicitly; the way back names the type and is checked.
#pragma once

#include <cstddef>
#include <type_traits>

#include "backend/tensor.h"

namespace ddp {

// Throws an internal error: activations of `element` were read as something else.
[[noreturn]] void wrong_element(Element element);

template <bool writable>
class BasicActivations {
  template <class T>
  using Qualified = std::conditional_t<writable, T, const T>;

 public:
  constexpr BasicActivations() = default;
  constexpr BasicActivations(std::nullptr_t) {}                                                // NOLINT(*-explicit-*)
  constexpr BasicActivations(Qualified<float>* data) : data_(data) {}                          // NOLINT(*-explicit-*)
  constexpr BasicActivations(Qualified<Bf16>* data) : data_(data), element_(Element::bf16) {}  // NOLINT(*-explicit-*)
  constexpr BasicActivations(Qualified<Fp16>* data) : data_(data), element_(Element::fp16) {}  // NOLINT(*-explicit-*)
  constexpr BasicActivations(Qualified<void>* data, Element element) : data_(data), element_(element) {}
  // Converts writable to read-only activations.
  template <bool other>
  requires(other && !writable) constexpr BasicActivations(const BasicActivations<other>& from)  // NOLINT(*-explicit-*)
      : data_(from.data()), element_(from.element()) {}

  constexpr Qualified<void>* data() const { return data_; }
  constexpr Element element() const { return element_; }

  Qualified<float>* fp32() const {
    if (element_ != Element::fp32 && data_ != nullptr) wrong_element(element_);
    return static_cast<Qualified<float>*>(data_);
  }
  Qualified<Bf16>* bf16() const {
    if (element_ != Element::bf16 && data_ != nullptr) wrong_element(element_);
    return static_cast<Qualified<Bf16>*>(data_);
  }
  Qualified<Fp16>* fp16() const {
    if (element_ != Element::fp16 && data_ != nullptr) wrong_element(element_);
    return static_cast<Qualified<Fp16>*>(data_);
  }

  // Whether it is null; equality of addresses.
  friend constexpr bool operator==(const BasicActivations& a, std::nullptr_t) { return a.data_ == nullptr; }
  friend constexpr bool operator==(const BasicActivations& a, const BasicActivations& b) { return a.data_ == b.data_; }

 private:
  Qualified<void>* data_ = nullptr;
  Element element_ = Element::fp32;
};

using Activations = BasicActivations<true>;
using ConstActivations = BasicActivations<false>;

// Element `index` of values in host memory; it is set to the nearest number of its type.
float value_at(const void* values, Element element, std::size_t index);
void set_value(void* values, Element element, std::size_t index, float value);

}  // namespace ddp
