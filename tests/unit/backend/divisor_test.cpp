#include "backend/cuda/code/divisor.cuh"

#include <gtest/gtest.h>

namespace ddp::cuda {
namespace {

TEST(Divisor, IsExactBelowItsLimit) {
  for (const std::uint32_t number : {1U, 2U, 3U, 7U, 25U, 28U, 641U, 4608U, 46340U}) {
    const Divisor divisor(number);
    const std::uint32_t limit = 0x7FFFFFFFU / number;
    for (std::uint32_t multiple = 0; multiple <= limit - number; multiple += number * (1 + limit / number / 1000)) {
      for (const std::uint32_t value : {multiple, multiple + number - 1}) {
        const std::uint32_t quotient = divisor.quotient(value);
        ASSERT_EQ(quotient, value / number) << value << " / " << number;
        ASSERT_EQ(divisor.remainder(value, quotient), value % number) << value << " / " << number;
      }
    }
  }
}

TEST(Divisor, DividesAllValuesOf31Bits) {
  for (const std::uint32_t number : {1U, 2U, 3U, 7U, 28U, 641U, 46341U, 65537U, 1000003U, 0x40000001U, 0x7FFFFFFFU}) {
    const Divisor divisor(number);
    const std::uint32_t last = 0x7FFFFFFFU / number;
    for (std::uint32_t quotient = 0; quotient <= last; quotient += 1 + last / 1000) {
      const std::uint32_t first = quotient * number;
      for (const std::uint32_t value : {first == 0 ? 0 : first - 1, first, first + 1, 0x7FFFFFFFU}) {
        if (value > 0x7FFFFFFFU) continue;
        const Divided result = divisor.divide(value);
        ASSERT_EQ(result.quotient, value / number) << value << " / " << number;
        ASSERT_EQ(result.remainder, value % number) << value << " / " << number;
      }
    }
  }
}

}  // namespace
}  // namespace ddp::cuda
