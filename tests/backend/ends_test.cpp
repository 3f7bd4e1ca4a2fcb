// The two ends of a network: image bytes in, loss out.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "backend/backend_case.h"
#include "backend/device_values.h"
#include "backend/op_check.h"
#include "base/error.h"

namespace ddp {
namespace {

class Input : public EveryBackend {
 protected:
  bool has(Layout layout) const { return backend().ops().supports(InputSpec{}, layout, layout); }
  // Loads so many images into x.
  void load(const InputSpec& spec, Layout layout, std::int64_t count, Activations x, const InputArguments& images) {
    const std::unique_ptr<Op> op = backend().ops().make_op(spec, layout, layout, "");
    op->forward({.y = x, .active = count, .images = &images});
  }
};

std::vector<std::uint8_t> random_bytes(std::int64_t count) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(generator()());
  return bytes;
}

TEST_P(Input, BytesAreScaledCroppedAndPaddedWithZeros) {
  const Shape image{2, 5, 6};
  const Shape cropped{2, 4, 3};
  const std::int64_t batch = 20;
  const std::int64_t count = 18;
  const std::vector<std::uint8_t> bytes = random_bytes(count * image.elements());
  const DeviceArray<std::uint8_t> pixels(backend(), bytes);
  for (const Layout layout : kLayouts) {
    if (!has(layout)) continue;
    const InputSpec spec{batch, cropped, image, {0.5F, 2.0F}, {1.0F, -3.0F}};
    DeviceActivation x(backend(), batch, cropped, layout);
    x.fill(77);
    load(spec, layout, count, x.data(), {pixels.data()});
    const std::vector<float> values = x.stored();
    for (std::int64_t n = 0; n < stored_samples(batch, layout); ++n) {
      for (std::int64_t c = 0; c < cropped.channels; ++c) {
        for (std::int64_t row = 0; row < cropped.height; ++row) {
          for (std::int64_t column = 0; column < cropped.width; ++column) {
            const float actual = values[static_cast<std::size_t>(element_offset(cropped, layout, n, c, row, column))];
            float expected = 0;
            if (n < count) {
              const auto at = static_cast<std::size_t>(element_offset(image, Layout::plain, n, c, row, column));
              const auto channel = static_cast<std::size_t>(c);
              expected = static_cast<float>(bytes[at]) * spec.scale[channel] + spec.shift[channel];
            }
            // Exact in fp32; bf16 has 8 significant bits.
            const double apart = tolerance() < 1e-4 ? 0 : std::abs(static_cast<double>(expected)) / 256;
            ASSERT_NEAR(static_cast<double>(actual), static_cast<double>(expected), apart)
                << to_string(layout) << " " << n << " " << c << " " << row << " " << column;
          }
        }
      }
    }
  }
}

// Samples gathered by row number equal the same images stored consecutively.
TEST_P(Input, RowsPickImages) {
  const Shape image{3, 4, 4};
  const std::vector<std::uint8_t> bytes = random_bytes(50 * image.elements());
  const std::vector<std::int32_t> numbers = {7, 49, 0, 7, 21};
  std::vector<std::uint8_t> some;
  for (const std::int32_t row : numbers) {
    const auto begin = bytes.begin() + row * image.elements();
    some.insert(some.end(), begin, begin + image.elements());
  }
  const DeviceArray<std::uint8_t> many(backend(), bytes);
  const DeviceArray<std::uint8_t> picked(backend(), some);
  const DeviceArray<std::int32_t> rows(backend(), numbers);
  const auto count = static_cast<std::int64_t>(numbers.size());
  for (const Layout layout : kLayouts) {
    if (!has(layout)) continue;
    const InputSpec spec{6, image, image, {0.5F, 2.0F, 1.0F}, {1.0F, -3.0F, 0.0F}};
    DeviceActivation by_row(backend(), 6, image, layout);
    DeviceActivation in_order(backend(), 6, image, layout);
    by_row.fill(7);
    in_order.fill(9);
    load(spec, layout, count, by_row.data(), {many.data(), rows.data()});
    load(spec, layout, count, in_order.data(), {picked.data()});
    EXPECT_EQ(by_row.stored(), in_order.stored()) << to_string(layout);
  }
}

// Step by step on whole images, as edited_byte() is defined.
std::vector<std::uint8_t> edited(std::vector<std::uint8_t> pixels, const Shape& image, const ImageEdit& edit,
                                 bool reflects, const std::vector<std::uint8_t>& fill) {
  const auto at = [&](std::int64_t c, std::int64_t y, std::int64_t x) {
    return static_cast<std::size_t>((c * image.height + y) * image.width + x);
  };
  const std::vector<std::uint8_t> before = pixels;
  const auto inside = [reflects](std::int64_t place, std::int64_t length) -> std::int64_t {
    if (place >= 0 && place < length) return place;
    if (!reflects) return -1;
    return place < 0 ? -place : 2 * length - 2 - place;
  };
  for (std::int64_t c = 0; c < image.channels; ++c) {
    for (std::int64_t y = 0; y < image.height; ++y) {
      for (std::int64_t x = 0; x < image.width; ++x) {
        const std::int64_t from_y = inside(y - edit.down, image.height);
        const std::int64_t from_x = inside(x - edit.right, image.width);
        pixels[at(c, y, x)] = from_y < 0 || from_x < 0 ? std::uint8_t{0} : before[at(c, from_y, from_x)];
      }
      const auto row = pixels.begin() + static_cast<std::ptrdiff_t>(at(c, y, 0));
      if (edit.mirrored != 0) std::reverse(row, row + image.width);
      for (const EditedArea& area : edit.filled) {
        if (y < area.top || y >= area.bottom) continue;
        std::fill(row + area.left, row + area.right, fill[static_cast<std::size_t>(c)]);
      }
    }
  }
  return pixels;
}

EditedArea random_area(const Shape& image) {
  const auto below = [](std::int64_t bound) { return static_cast<std::int32_t>(random_between(0, bound)); };
  EditedArea area;
  area.top = below(image.height - 1);
  area.bottom = area.top + below(image.height - area.top);
  area.left = below(image.width - 1);
  area.right = area.left + below(image.width - area.left);
  return area;
}

// The values are those of images that were edited before.
TEST_P(Input, ImagesAreEditedWhileTheyAreRead) {
  for (int round = 0; round < 8; ++round) {
    const Shape image{random_between(1, 3), random_between(5, 12), random_between(5, 12)};
    const Shape cropped{image.channels, image.height - random_between(0, 2), image.width - random_between(0, 2)};
    const std::int64_t count = random_between(1, 20);
    const std::vector<std::uint8_t> bytes = random_bytes(30 * image.elements());
    const bool reflects = round % 2 == 1;
    // A reflected border is smaller than the image; a black one may be all of it.
    const std::int64_t most = reflects ? std::min(image.height, image.width) - 1 : 13;
    const std::vector<std::uint8_t> fill = random_bytes(image.channels);
    std::vector<ImageEdit> edits;
    std::vector<std::int32_t> numbers;
    std::vector<std::uint8_t> expected;
    for (std::int64_t n = 0; n < count; ++n) {
      numbers.push_back(static_cast<std::int32_t>(random_between(0, 29)));
      ImageEdit edit;
      edit.right = static_cast<std::int32_t>(random_between(-most, most));
      edit.down = static_cast<std::int32_t>(random_between(-most, most));
      edit.mirrored = static_cast<std::int32_t>(random_between(0, 1));
      if (n % 2 == 0) edit.filled[0] = random_area(image);
      if (n % 3 == 0) edit.filled[1] = random_area(image);
      edits.push_back(edit);
      const auto begin = bytes.begin() + numbers.back() * image.elements();
      const std::vector<std::uint8_t> one = edited({begin, begin + image.elements()}, image, edit, reflects, fill);
      expected.insert(expected.end(), one.begin(), one.end());
    }
    const DeviceArray<std::uint8_t> many(backend(), bytes);
    const DeviceArray<std::uint8_t> before(backend(), expected);
    const DeviceArray<std::int32_t> rows(backend(), numbers);
    const DeviceArray<ImageEdit> each(backend(), edits);
    const auto channels = static_cast<std::size_t>(image.channels);
    for (const Layout layout : kLayouts) {
      if (!has(layout)) continue;
      const InputSpec spec{
          count + 1, cropped, image, std::vector<float>(channels, 0.5F), std::vector<float>(channels, -3.0F),
          reflects,  fill};
      DeviceActivation actual(backend(), spec.batch, cropped, layout);
      DeviceActivation plain(backend(), spec.batch, cropped, layout);
      actual.fill(7);
      plain.fill(9);
      load(spec, layout, count, actual.data(), {many.data(), rows.data(), each.data()});
      load(spec, layout, count, plain.data(), {before.data()});
      EXPECT_EQ(actual.stored(), plain.stored()) << to_string(layout) << " round " << round;
    }
  }
}

// What a step reads may be in tables, at the row at which the cursor is; the first kernel copies it for the others.
TEST_P(Input, TheRowOfTablesIsCopiedFirst) {
  constexpr std::size_t kCount = 300;
  constexpr std::size_t kRows = 3;
  constexpr std::size_t kRow = 2;
  const Shape image{2, 4, 5};
  const std::vector<std::uint8_t> bytes = random_bytes(30 * image.elements());
  std::vector<std::int32_t> numbers(kRows * kCount);
  std::vector<std::int32_t> labels(kRows * kCount);
  std::vector<ImageEdit> edits(kRows * kCount);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int32_t>(random_between(0, 29));
    labels[i] = static_cast<std::int32_t>(random_between(0, 9));
    edits[i].right = static_cast<std::int32_t>(random_between(-2, 2));
    edits[i].filled[0] = random_area(image);
  }
  const auto row_of = [](const auto& all) { return std::vector(all.begin() + kRow * kCount, all.end()); };
  const DeviceArray<std::uint8_t> pixels(backend(), bytes);
  const DeviceArray<std::int32_t> number_table(backend(), numbers), label_table(backend(), labels);
  const DeviceArray<ImageEdit> edit_table(backend(), edits);
  const DeviceArray<std::int32_t> row_numbers(backend(), row_of(numbers));
  const DeviceArray<ImageEdit> row_edits(backend(), row_of(edits));
  const DeviceArray<TableCursor> cursor(backend(), {{.row = kRow, .rows = kRows}});
  const auto count = static_cast<std::int64_t>(kCount);
  for (const bool edited : {false, true}) {
    for (const Layout layout : kLayouts) {
      if (!has(layout)) continue;
      const DeviceArray<std::int32_t> rows(backend(), std::vector<std::int32_t>(kCount));
      const DeviceArray<std::int32_t> classes(backend(), std::vector<std::int32_t>(kCount));
      const DeviceArray<ImageEdit> each(backend(), std::vector<ImageEdit>(kCount));
      constexpr std::size_t kBytes = kCount * sizeof(std::int32_t);
      constexpr std::size_t kEditBytes = kCount * sizeof(ImageEdit);
      const std::array<TableColumn, 3> columns = {TableColumn{label_table.data(), kBytes, classes.data(), kBytes},
                                                  TableColumn{number_table.data(), kBytes, rows.data(), kBytes},
                                                  TableColumn{edit_table.data(), kEditBytes, each.data(), kEditBytes}};
      const InputSpec spec{
          count + 1, image, image, {0.5F, 1.0F}, {0.0F, 3.0F}, false, {std::uint8_t{4}, std::uint8_t{9}}};
      DeviceActivation actual(backend(), spec.batch, image, layout);
      DeviceActivation expected(backend(), spec.batch, image, layout);
      load(spec, layout, count, actual.data(),
           {.pixels = pixels.data(),
            .rows = rows.data(),
            .edits = edited ? each.data() : nullptr,
            .step = {std::span(columns).first(edited ? 3 : 2), cursor.data()}});
      load(spec, layout, count, expected.data(),
           {.pixels = pixels.data(), .rows = row_numbers.data(), .edits = edited ? row_edits.data() : nullptr});
      EXPECT_EQ(actual.stored(), expected.stored()) << to_string(layout) << (edited ? ", edited" : "");
      EXPECT_EQ(rows.get(), row_numbers.get());
      EXPECT_EQ(classes.get(), row_of(labels));
      EXPECT_EQ(edited ? std::memcmp(each.get().data(), row_edits.get().data(), kEditBytes) : 0, 0);
      EXPECT_EQ(cursor.get()[0].row, std::int64_t{kRow});
    }
  }
}

// An empty shard yields zeros.
TEST_P(Input, NoSamplesAreAllZeros) {
  const Shape image{1, 3, 3};
  for (const Layout layout : kLayouts) {
    if (!has(layout)) continue;
    DeviceActivation x(backend(), 4, image, layout);
    x.fill(5);
    const DeviceArray<std::uint8_t> pixels(backend(), {1, 2, 3});
    load({4, image, image, {1.0F}, {1.0F}}, layout, 0, x.data(), {pixels.data()});
    EXPECT_EQ(x.stored(), std::vector<float>(x.stored().size(), 0.0F)) << to_string(layout);
  }
}

DDP_ON_EVERY_BACKEND(On, Input);

struct LossCase {
  std::int64_t batch = 21;
  std::int64_t active = 19;
  std::int64_t classes = 7;
  double smoothing = 0;
  reference::Values logits;
  reference::Values sums;  // the sum of exponentials of each sample's logits
  std::vector<std::int32_t> labels;
  std::vector<std::int32_t> others;  // second labels; empty: one label per sample
  std::vector<float> weights;        // of the first labels

  // Gives every sample a second label, sometimes equal to the first.
  LossCase& mix() {
    for (std::int64_t n = 0; n < active; ++n) {
      others.push_back(static_cast<std::int32_t>(random_between(0, classes - 1)));
      weights.push_back(static_cast<float>(random_between(0, 256)) / 256.0F);
    }
    return *this;
  }
  LossCase(std::int64_t samples, std::int64_t counted, std::int64_t kinds, double smooth)
      : batch(samples), active(counted), classes(kinds), smoothing(smooth) {
    // Multiples of 1/16 are exact in bf16 up to 16, and some are equal.
    std::normal_distribution<double> normal(0, 3);
    for (std::int64_t i = 0; i < active * classes; ++i) {
      const double logit = std::round(normal(generator()) * 16) / 16;
      logits.push_back(std::abs(logit) < 15 ? logit : 0);
    }
    for (std::int64_t n = 0; n < active; ++n) {
      labels.push_back(static_cast<std::int32_t>(random_between(0, classes - 1)));
      double sum = 0;
      for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(logit(n, c));
      sums.push_back(sum);
    }
  }
  double logit(std::int64_t n, std::int64_t c) const { return logits[static_cast<std::size_t>(n * classes + c)]; }
  double target(std::int64_t n, std::int64_t c) const {
    const auto sample = static_cast<std::size_t>(n);
    const double weight = others.empty() ? 1 : static_cast<double>(weights[sample]);
    double share = c == labels[sample] ? weight : 0;
    if (!others.empty() && c == others[sample]) share += 1 - weight;
    return share * (1 - smoothing) + smoothing / static_cast<double>(classes);
  }
  double sum(std::int64_t n) const { return sums[static_cast<std::size_t>(n)]; }
  double loss() const {
    double total = 0;
    for (std::int64_t n = 0; n < active; ++n) {
      for (std::int64_t c = 0; c < classes; ++c) total -= target(n, c) * (logit(n, c) - std::log(sum(n)));
    }
    return total;
  }
  // The first of equal logits is the prediction.
  std::int64_t correct() const {
    std::int64_t count = 0;
    for (std::int64_t n = 0; n < active; ++n) {
      std::int64_t best = 0;
      for (std::int64_t c = 0; c < classes; ++c) best = logit(n, c) > logit(n, best) ? c : best;
      const auto sample = static_cast<std::size_t>(n);
      const bool second = !others.empty() && weights[sample] < 0.5F;
      count += best == (second ? others : labels)[sample] ? 1 : 0;
    }
    return count;
  }
};

class SoftmaxCrossEntropy : public EveryBackend {
 protected:
  bool has(Layout layout) const { return backend().ops().supports(LossSpec{}, layout, layout); }
  void compute(const LossArguments& arguments, Layout layout, std::int64_t active, const DeviceActivation& logits,
               bool training = true) {
    LossArguments loss = arguments;
    const std::unique_ptr<Op> op = backend().ops().make_op(loss.spec, layout, layout, "");
    op->forward({.inputs = {logits.data()}, .active = active, .training = training, .loss = &loss});
  }

  void check(const LossCase& test, Layout layout) {
    const Shape row{test.classes, 1, 1};
    DeviceActivation logits(backend(), test.batch, row, layout);
    DeviceActivation gradient(backend(), test.batch, row, layout);
    logits.set(test.logits, test.active);
    gradient.fill(99);
    const DeviceArray<std::int32_t> labels(backend(), test.labels);
    const bool mixed = !test.others.empty();
    const DeviceArray<std::int32_t> others(backend(), mixed ? test.others : test.labels);
    const DeviceArray<float> weights(backend(), mixed ? test.weights : std::vector<float>(test.labels.size()));
    const DeviceArray<double> results(backend(), {99, 3});
    const LossSpec spec{test.batch, test.classes, static_cast<float>(test.smoothing)};
    // The factor of the gradient, 0.25, is divided in two in some cases.
    const bool scaled = test.batch % 2 == 1;
    const DeviceArray<double> loss_scale(backend(), {8});
    compute({spec, labels.data(), gradient.data(), scaled ? 0.25F / 8 : 0.25F, results.data(), results.data() + 1,
             mixed ? others.data() : nullptr, mixed ? weights.data() : nullptr, scaled ? loss_scale.data() : nullptr},
            layout, test.active, logits);
    const std::vector<double> sums = results.get();
    const std::string what =
        fmt::format("{} of {} samples, {} classes, {}", test.active, test.batch, test.classes, to_string(layout));
    // Each sample's loss is computed in fp32 and accumulated in double.
    EXPECT_NEAR(sums[0], test.loss(), 1e-5 * test.loss() + 1e-6 * static_cast<double>(test.active)) << what;
    EXPECT_EQ(sums[1], static_cast<double>(3 + test.correct())) << what;
    const reference::Values slopes = gradient.get(test.batch);
    for (std::int64_t n = 0; n < test.batch; ++n) {
      const double all = n < test.active ? test.sum(n) : 1;
      for (std::int64_t c = 0; c < test.classes; ++c) {
        const double expected = n < test.active ? 0.25 * (std::exp(test.logit(n, c)) / all - test.target(n, c)) : 0;
        ASSERT_NEAR(slopes[static_cast<std::size_t>(n * test.classes + c)], expected, 0.1 * tolerance())
            << what << " sample " << n << " class " << c;
      }
    }
  }
};

TEST_P(SoftmaxCrossEntropy, AgreesWithItsDefinitionInDouble) {
  for (const double smoothing : {0.0, 0.1}) {
    for (const Layout layout : kLayouts) {
      if (!has(layout)) continue;
      check(LossCase(21, 19, 7, smoothing), layout);
      check(LossCase(3, 3, 1, smoothing), layout);
      check(LossCase(300, 290, 10, smoothing), layout);
      check(LossCase(40, 40, 33, smoothing), layout);
      check(LossCase(37, 20, 1000, smoothing), layout);
      check(LossCase(5, 0, 4, smoothing), layout);
    }
  }
}

TEST_P(SoftmaxCrossEntropy, TwoLabelsShareTheTargetByTheirWeights) {
  for (const double smoothing : {0.0, 0.1}) {
    for (const Layout layout : kLayouts) {
      if (!has(layout)) continue;
      check(LossCase(21, 19, 7, smoothing).mix(), layout);
      check(LossCase(3, 3, 1, smoothing).mix(), layout);
      check(LossCase(300, 290, 10, smoothing).mix(), layout);
      check(LossCase(37, 20, 100, smoothing).mix(), layout);
      check(LossCase(5, 0, 4, smoothing).mix(), layout);
    }
  }
}

TEST_P(SoftmaxCrossEntropy, LargeLogitsDoNotOverflow) {
  DeviceActivation logits(backend(), 1, {3, 1, 1}, Layout::plain);
  logits.set({1000, -1000, 0}, 1);
  const DeviceArray<std::int32_t> labels(backend(), {1});
  const DeviceArray<double> results(backend(), {0, 0});
  compute({{1, 3}, labels.data(), nullptr, 1, results.data(), results.data() + 1}, Layout::plain, 1, logits);
  EXPECT_NEAR(results.get()[0], 2000, 1);
  EXPECT_EQ(results.get()[1], 0);
}

TEST_P(SoftmaxCrossEntropy, ABrokenLogitBreaksTheLoss) {
  for (const std::int64_t broken : {0, 5, 9}) {
    reference::Values values(10, 0.5);
    values[static_cast<std::size_t>(broken)] = std::nan("");
    DeviceActivation logits(backend(), 1, {10, 1, 1}, Layout::plain);
    logits.set(values, 1);
    const DeviceArray<std::int32_t> labels(backend(), {1});
    const DeviceArray<double> results(backend(), {0, 0});
    compute({{1, 10}, labels.data(), nullptr, 1, results.data(), results.data() + 1}, Layout::plain, 1, logits);
    EXPECT_TRUE(std::isnan(results.get()[0])) << broken;
  }
}

TEST_P(SoftmaxCrossEntropy, LabelsAreSmoothedInTrainingAlone) {
  DeviceActivation logits(backend(), 1, {2, 1, 1}, Layout::plain);
  logits.set({3, 0}, 1);
  const DeviceArray<std::int32_t> labels(backend(), {0});
  const DeviceArray<double> results(backend(), {0, 0});
  for (const bool training : {true, false}) {
    const LossArguments loss{{1, 2, 0.5F}, labels.data(), nullptr, 1, results.data(), results.data() + 1};
    compute(loss, Layout::plain, 1, logits, training);
    EXPECT_NEAR(results.get()[0], std::log(1 + std::exp(-3)) + (training ? 0.25 * 3 : 0), 1e-6);
  }
}

DDP_ON_EVERY_BACKEND(On, SoftmaxCrossEntropy);

}  // namespace
}  // namespace ddp
