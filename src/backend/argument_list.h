// The inputs or the parameters of a call: any number of pointers. A few are held by value; more stay where they are.
//
//   ArgumentList<const float*> parameters = {weight, bias};
//   const float* none = parameters[2];                                    // null: beyond the end
//   ArgumentList<const float*> many(std::span<const float* const>(all));  // `all` stays until the call has been executed
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <span>

namespace ddp {

template <class T>
class ArgumentList {
 public:
  // As many as nearly all operators have.
  static constexpr std::size_t kHeld = 3;

  ArgumentList() = default;
  template <std::convertible_to<T>... Few>
  requires(sizeof...(Few) > 0 && sizeof...(Few) <= kHeld)  // NOLINTNEXTLINE(*-explicit-*)
      ArgumentList(Few... few)
      : held_{T(few)...}, size_(sizeof...(Few)) {}
  explicit ArgumentList(std::span<const T> all) : size_(all.size()) {
    if (size_ > kHeld) {
      more_ = all.data();
    } else {
      std::copy(all.begin(), all.end(), held_.begin());
    }
  }

  std::size_t size() const { return size_; }
  const T* begin() const { return size_ > kHeld ? more_ : held_.data(); }
  const T* end() const { return begin() + size_; }
  // Null beyond the end.
  T operator[](std::size_t index) const { return index < size_ ? begin()[index] : T{}; }
  // Those from number `first` on.
  ArgumentList from(std::size_t first) const {
    first = std::min(first, size_);
    return ArgumentList(std::span<const T>(begin() + first, size_ - first));
  }

 private:
  std::array<T, kHeld> held_{};
  const T* more_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ddp
