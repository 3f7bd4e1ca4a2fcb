// Sums and checks of flat buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/backend_case.h"
#include "backend/device_values.h"
#include "backend/op_check.h"
#include "base/types/half.h"

namespace ddp {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Flat : public EveryBackend {
 protected:
  double broken(const std::vector<double>& sums, double before = 0) {
    const DeviceArray<double> doubles(backend(), sums);
    const DeviceArray<double> result(backend(), {before});
    backend().math().find_nonfinite({{doubles.data(), sums.size()}, result.data()});
    return result.get()[0];
  }
  std::vector<double> square_sums(const std::vector<float>& values) {
    const DeviceArray<float> floats(backend(), values);
    const DeviceArray<double> sums(backend(), std::vector<double>(kSquareSums, -1));
    backend().math().square_sums(floats.data(), values.size(), sums.data(), {});
    return sums.get();
  }
  // What the sums of squares and the check of these and of another sum find.
  double broken_squares(const std::vector<float>& values, double other = 0) {
    const DeviceArray<float> floats(backend(), values);
    std::vector<double> all(kSquareSums + 1, -1);
    all[0] = other;
    const DeviceArray<double> sums(backend(), all);
    const DeviceArray<double> result(backend(), {0});
    backend().math().square_sums(floats.data(), values.size(), sums.data() + 1,
                                 {{sums.data(), all.size()}, result.data()});
    return result.get()[0];
  }
};

TEST_P(Flat, BuffersAreAdded) {
  for (const std::int64_t count : {1, 255, 257, 100'000}) {
    std::vector<float> sum = random_floats(count);
    const std::vector<float> addend = random_floats(count);
    const DeviceArray<float> a(backend(), sum);
    const DeviceArray<float> b(backend(), addend);
    backend().math().add(a.data(), b.data(), sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
    EXPECT_EQ(a.get(), sum) << count;
    EXPECT_EQ(b.get(), addend) << count;
  }
}

TEST_P(Flat, SlowValuesArePulledTowardsTheFastOnes) {
  for (const std::int64_t count : {1, 255, 100'001}) {
    for (const float rest : {0.0F, 0.25F, 1.0F}) {
      const std::vector<float> before = random_floats(count);
      std::vector<float> trained = random_floats(count);
      trained[0] = before[0];  // stays what it is, without rounding
      const DeviceArray<float> slow(backend(), before);
      const DeviceArray<float> fast(backend(), trained);
      const DeviceArray<double> skip(backend(), {3});
      backend().math().pull(slow.data(), fast.data(), before.size(), rest, skip.data());
      EXPECT_EQ(slow.get(), before);
      EXPECT_EQ(fast.get(), trained);
      backend().math().fill_zero(skip.data(), sizeof(double));
      backend().math().pull(slow.data(), fast.data(), before.size(), rest, count > 1 ? skip.data() : nullptr);
      EXPECT_EQ(slow.get(), fast.get());
      for (std::size_t i = 0; i < before.size(); ++i) {
        ASSERT_NEAR(slow.get()[i], before[i] + rest * (trained[i] - before[i]), 3e-7F) << i;
        if (count > 1000) break;
      }
      EXPECT_EQ(slow.get()[0], before[0]);
      if (rest == 0) {
        EXPECT_EQ(slow.get(), before);
      }
    }
  }
}

TEST_P(Flat, ACopyIsMadeUnlessItIsSkipped) {
  for (const std::int64_t count : {1, 255, 100'001}) {
    const std::vector<float> before = random_floats(count);
    const std::vector<float> others = random_floats(count);
    const DeviceArray<float> to(backend(), before);
    const DeviceArray<float> from(backend(), others);
    const DeviceArray<double> skip(backend(), {1});
    backend().math().copy(to.data(), from.data(), before.size(), skip.data());
    EXPECT_EQ(to.get(), before);
    backend().math().fill_zero(skip.data(), sizeof(double));
    backend().math().copy(to.data(), from.data(), before.size(), count > 1 ? skip.data() : nullptr);
    EXPECT_EQ(to.get(), others);
    EXPECT_EQ(from.get(), others);
  }
}

TEST_P(Flat, RowsOfTablesAreCopiedInTurn) {
  constexpr std::size_t kRows = 3;
  for (const std::int64_t count : {1, 255, 70'001}) {
    const auto row = static_cast<std::size_t>(count) + 3;  // of which `count` values are copied
    const std::vector<float> values = random_floats(static_cast<std::int64_t>(kRows * row));
    const std::vector<float> few = random_floats(2);
    const DeviceArray<float> table(backend(), values);
    const DeviceArray<float> same(backend(), few);
    const DeviceArray<float> to(backend(), std::vector<float>(static_cast<std::size_t>(count)));
    const DeviceArray<float> others(backend(), {0, 0, 7});
    const DeviceArray<TableCursor> cursor(backend(), {{.row = 1, .rows = kRows}});
    const std::array<TableColumn, 2> columns = {
        TableColumn{table.data(), row * sizeof(float), to.data(), static_cast<std::size_t>(count) * sizeof(float)},
        TableColumn{same.data(), 0, others.data(), 2 * sizeof(float)}};
    for (const std::size_t expected : {1, 2, 0, 1}) {
      backend().math().copy_row(columns, cursor.data());
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(expected * row);
      EXPECT_EQ(to.get(), std::vector<float>(begin, begin + count)) << expected;
      EXPECT_EQ(others.get(), (std::vector<float>{few[0], few[1], 7}));
    }
    EXPECT_EQ(cursor.get()[0].row, 2);
    backend().math().copy_row({}, cursor.data());
    EXPECT_EQ(cursor.get()[0].row, 0);
  }
}

TEST_P(Flat, SomeValuesAreCopiedToTheHostAtOnce) {
  const std::vector<float> few = random_floats(3);
  const std::vector<float> many = random_floats(5000);
  const DeviceArray<float> from_few(backend(), few);
  const DeviceArray<float> from_many(backend(), many);
  const std::size_t most = many.size() * sizeof(float);
  const Memory host = backend().memory().allocate_for_transfer(2 * most, "a test's values");
  const std::array<TableColumn, 2> columns = {
      TableColumn{from_few.data(), 0, host.data(), few.size() * sizeof(float)},
      TableColumn{from_many.data(), 0, host.data() + most, most - sizeof(float)}};
  backend().math().copy_row(columns, nullptr);
  backend().queue().synchronize();
  EXPECT_EQ(std::vector<float>(host.at<float>(0), host.at<float>(0) + few.size()), few);
  EXPECT_EQ(host.at<float>(0)[few.size()], 0.0F);
  EXPECT_EQ(std::vector<float>(host.at<float>(most), host.at<float>(most) + many.size() - 1),
            std::vector<float>(many.begin(), many.end() - 1));
  EXPECT_EQ(host.at<float>(most)[many.size() - 1], 0.0F);
}

TEST_P(Flat, SquaresAreSummed) {
  for (const std::int64_t count : {0, 1, 63, 64, 65, 1000, 100'003}) {
    std::vector<float> values = random_floats(count);
    if (count > 100) values[77] = 1e30F;  // its square exceeds fp32
    double expected = 0;
    for (const float value : values) expected += static_cast<double>(value) * value;
    double total = 0;
    for (const double sum : square_sums(values)) total += sum;
    EXPECT_NEAR(total, expected, 1e-6 * expected) << count;
  }
}

// The bits of the rounded values, and these as floats again.
template <class Half>
void check_rounding(Backend& backend, const std::vector<float>& values, std::uint16_t (*to_half)(float),
                    float (*to_float)(std::uint16_t)) {
  const DeviceArray<float> floats(backend, values);
  const DeviceArray<Half> rounded(backend, std::vector<Half>(values.size()));
  backend.math().copy(rounded.data(), floats.data(), values.size());
  const std::vector<Half> bits = rounded.get();
  const DeviceArray<float> back(backend, std::vector<float>(values.size()));
  backend.math().copy(back.data(), rounded.data(), values.size());
  const std::vector<float> again = back.get();
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(bits[i].bits, to_half(values[i])) << values[i];
    ASSERT_EQ(again[i], to_float(bits[i].bits)) << values[i];
  }
}

TEST_P(Flat, FloatsAreRoundedToBf16AndBack) {
  std::vector<float> values = random_floats(3001);
  values[0] = kInfinity;
  values[1] = 1.0F + 1.0F / 256;  // a tie: rounds to even
  values[2] = 1.0F + 3.0F / 256;
  check_rounding<Bf16>(backend(), values, bf16_bits, float_of_bf16);
}

TEST_P(Flat, FloatsAreRoundedToFp16AndBack) {
  std::vector<float> values = random_floats(3001);
  // Ties of normal and subnormal numbers, the ends of both, and what is beyond them.
  const std::vector<float> special = {kInfinity, -kInfinity, 1.0F + 0x1p-11F, 1.0F + 0x3p-11F, 65504,
                                      65519.99F, 65520,      -70000,          0x1p-14F,        0x1p-14F - 0x1p-25F,
                                      0x1p-24F,  0x3p-25F,   -0x5p-25F,       0x1p-25F,        0x1.000002p-25F,
                                      1e-30F,    -0.0F};
  std::copy(special.begin(), special.end(), values.begin());
  for (std::size_t i = 1000; i < 2000; ++i) values[i] *= std::ldexp(1.0F, -static_cast<int>(i % 30));
  for (std::size_t i = 2000; i < 3000; ++i) values[i] *= std::ldexp(1.0F, static_cast<int>(i % 20));
  check_rounding<Fp16>(backend(), values, float_to_half, half_to_float);
  const DeviceArray<float> nan(backend(), {std::nanf("")});
  const DeviceArray<Fp16> rounded(backend(), std::vector<Fp16>(1));
  backend().math().copy(rounded.data(), nan.data(), 1);
  EXPECT_TRUE(std::isnan(half_to_float(rounded.get()[0].bits)));
}

// In fp32, rounded once.
TEST_P(Flat, ActivationsAreAdded) {
  const Element element = backend().ops().traits().activation_element;
  for (const std::int64_t count : {1, 15, 1000, 8192, 30001}) {
    const Shape shape{count, 1, 1};
    DeviceActivation sum(backend(), 1, shape, Layout::plain);
    DeviceActivation addend(backend(), 1, shape, Layout::plain);
    sum.set_stored(random_floats(count));
    addend.set_stored(random_floats(count));
    const std::vector<float> before = sum.stored();
    const std::vector<float> added = addend.stored();
    backend().math().add(sum.data(), addend.data(), before.size());
    const std::vector<float> after = sum.stored();
    for (std::size_t i = 0; i < before.size(); ++i) {
      float expected = 0;
      set_value(&expected, element, 0, before[i] + added[i]);
      ASSERT_EQ(after[i], value_at(&expected, element, 0)) << count << " " << i;
    }
  }
}

TEST_P(Flat, BrokenNumbersAreFoundWhereverTheyAre) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const std::vector<float> fine = random_floats(70'000);
  EXPECT_EQ(broken(square_sums(fine)), 0);
  EXPECT_EQ(broken(square_sums({kLargest, -kLargest, 0, 1e-45F})), 0);
  EXPECT_EQ(broken(square_sums(std::vector<float>(70'000, kLargest))), 0);
  EXPECT_EQ(broken(square_sums({})), 0);
  EXPECT_EQ(broken_squares(fine, 1e308), 0);
  EXPECT_EQ(broken_squares({}), 0);
  EXPECT_EQ(broken({}), 0);
  EXPECT_EQ(broken({1e308, -2}), 0);
  EXPECT_EQ(broken({1, -2}, 42), 42) << "it stays broken";
  for (const float value : {kInfinity, -kInfinity, std::nanf("")}) {
    for (const std::size_t place :
         {std::size_t{0}, std::size_t{69'999}, static_cast<std::size_t>(random_between(1, 69'998))}) {
      std::vector<float> values = fine;
      values[place] = value;
      EXPECT_EQ(broken(square_sums(values)), 1) << value << " at " << place;
      EXPECT_EQ(broken_squares(values), 1) << value << " at " << place;
    }
    EXPECT_EQ(broken_squares(fine, static_cast<double>(value)), 1) << value;
    EXPECT_EQ(broken({1, static_cast<double>(value)}), 1) << value;
  }
}

DDP_ON_EVERY_BACKEND(On, Flat);

}  // namespace
}  // namespace ddp
