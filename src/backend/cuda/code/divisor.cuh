// Division by a number that is known at the launch, such as a width: two instructions, where one by a number that the compiler
// does not know takes about twenty.
//
//   struct Image { Divisor width; };                 // a kernel's parameter: Image{Divisor(28)}
//   const std::uint32_t line = image.width.quotient(pixel);
//   const std::uint32_t column = image.width.remainder(pixel, line);
#pragma once

#include <cstdint>

#include "base/types/host_device.h"

namespace ddp::cuda {

struct Divided {
  std::uint32_t quotient, remainder;
};

// Exact for values whose product with the number is below 2^31: the factor is 2^31 / number, rounded up, so that the product
// with a value exceeds value * 2^31 / number by less than 2^31 / number.
class Divisor {
 public:
  Divisor() = default;
  DDP_HOST_DEVICE explicit Divisor(std::uint32_t number) : number_(number), factor_((kOne + number - 1) / number) {}

  DDP_HOST_DEVICE std::uint32_t number() const { return number_; }
  DDP_HOST_DEVICE std::uint32_t quotient(std::uint32_t value) const {
    return static_cast<std::uint32_t>((std::uint64_t{2U * value} * factor_) >> 32U);
  }
  // `quotient` is that of the value.
  DDP_HOST_DEVICE std::uint32_t remainder(std::uint32_t value, std::uint32_t quotient) const {
    return value - quotient * number_;
  }
  // Exact for all values below 2^31: of larger ones quotient() may be one too large, as the factor exceeds 2^31 / number by
  // less than one.
  DDP_HOST_DEVICE Divided divide(std::uint32_t value) const {
    const std::uint32_t quotient_or_next = quotient(value);
    const std::uint32_t rest = remainder(value, quotient_or_next);
    return rest < number_ ? Divided{quotient_or_next, rest} : Divided{quotient_or_next - 1, rest + number_};
  }

 private:
  static constexpr std::uint32_t kOne = 1U << 31U;
  std::uint32_t number_ = 1;
  std::uint32_t factor_ = kOne;
};

}  // namespace ddp::cuda
