// Muon's updates of whole matrices against the double-precision rule.
#include "optim/rules/muon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/backend_case.h"
#include "backend/device_update.h"
#include "backend/device_values.h"
#include "backend/op_check.h"
#include "backend/update_reference.h"

namespace ddp {
namespace {

// Tensors begin at multiples of this, as in the flat buffers of a model.
constexpr std::int64_t kAligned = 64;

// Several segments behind one another: matrices of `rows` x `columns`, or vectors with 0 rows.
struct Shape2 {
  std::int64_t rows;
  std::int64_t columns;
};
std::vector<ParameterSegment> segments_of(const std::vector<Shape2>& shapes) {
  std::vector<ParameterSegment> segments;
  std::int64_t offset = 0;
  for (const Shape2& shape : shapes) {
    ParameterSegment segment{offset, std::max<std::int64_t>(1, shape.rows) * shape.columns};
    segment.rows = shape.rows;
    segments.push_back(segment);
    offset += (segment.count + kAligned - 1) / kAligned * kAligned;
  }
  return segments;
}

// The forms of the step's size, with and without what matrices and vectors have besides.
std::vector<UpdateSettings> muon_forms() {
  UpdateSettings plain{.rule = UpdateRule::muon, .momentum = 0.9};
  UpdateSettings airbench{.rule = UpdateRule::muon, .momentum = 0.85, .nesterov = true, .weight_decay = 0.02};
  airbench.muon_momentum = 0.6;
  airbench.muon_steps = 3;
  airbench.muon_scale = MuonScale::none;
  airbench.muon_normalizes = true;
  UpdateSettings rms{.rule = UpdateRule::muon, .momentum = 0.9, .weight_decay = 0.1, .decoupled = true, .clip_norm = 2};
  rms.average_decay = 0.9;
  rms.average_warmup = true;
  rms.muon_scale = MuonScale::rms;
  UpdateSettings clipped{.rule = UpdateRule::muon, .momentum = 0.5, .weight_decay = 0.1, .clip_value = 0.5};
  clipped.muon_steps = 4;
  return {plain, airbench, rms, clipped};
}

// Zero between the segments.
std::vector<float> random_in(const std::vector<ParameterSegment>& segments) {
  std::vector<float> values(static_cast<std::size_t>(segments.back().offset + segments.back().count));
  for (const ParameterSegment& segment : segments) {
    const std::vector<float> some = random_floats(segment.count);
    std::copy(some.begin(), some.end(), values.begin() + segment.offset);
  }
  return values;
}

class Muon : public EveryBackend {
 protected:
  // The distance of each segment from what it should be, in the root mean square of its elements; that of matrices in units
  // of a step with rate 0.1.
  void expect_near(const std::vector<float>& actual, const std::vector<double>& expected,
                   const std::vector<ParameterSegment>& segments, const UpdateSettings& settings) {
    for (const ParameterSegment& segment : segments) {
      double squares = 0;
      for (std::int64_t i = segment.offset; i < segment.offset + segment.count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        squares += std::pow(static_cast<double>(actual[at]) - expected[at], 2);
      }
      const double distance = std::sqrt(squares / static_cast<double>(segment.count));
      const std::int64_t columns = segment.count / std::max<std::int64_t>(1, segment.rows);
      const auto larger = static_cast<double>(std::max(segment.rows, columns));
      const double step = 0.1 * muon_scale(settings.muon_scale, segment.rows, columns) / std::sqrt(larger);
      // Each step of the iteration multiplies rounding errors by up to 3.4445.
      ASSERT_LT(distance, segment.rows > 0 ? 8 * tolerance() * step : 1e-5)
          << segment.rows << " rows, " << segment.count << " elements, scale " << static_cast<int>(settings.muon_scale)
          << ", " << settings.muon_steps << " steps";
    }
  }

  void follows_reference(const std::vector<ParameterSegment>& segments) {
    for (const UpdateSettings& settings : muon_forms()) {
      const std::vector<float> initial = random_in(segments);
      DeviceUpdate device(backend(), initial, segments, settings);
      ReferenceUpdate expected(settings, segments, initial);
      for (const double lr : {0.05, 0.02, 0.04}) {
        const std::vector<float> gradient = random_in(segments);
        expected.update(gradient, lr, settings.momentum);
        device.update(gradient, lr, static_cast<double>(expected.steps()), 0);
      }
      expect_near(device.weights.get(), expected.weights, segments, settings);
      expect_near(device.first.get(), expected.first, {segments.back()}, settings);
      if (settings.has_average()) expect_near(device.average.get(), expected.average, segments, settings);
    }
  }
};

TEST_P(Muon, FollowsItsDefinition) {
  follows_reference(segments_of({{0, 30}, {1, 1}, {1, 40}, {40, 1}, {7, 5}, {24, 27}, {6, 150}, {0, 37}}));
}

// Also convolutions, and matrices of several chunks, with those of the same size at once.
TEST_P(Muon, OfRandomShapesFollowsItsDefinition) {
  const std::int64_t rows = random_between(2, 70);
  const std::int64_t columns = random_between(2, 70);
  follows_reference(segments_of({{rows, columns},
                                 {random_between(1, 20), random_between(1, 10) * 9},
                                 {columns, rows},
                                 {66, 65},
                                 {rows, columns},
                                 {0, 5}}));
}

TEST_P(Muon, OfMoreMatricesThanProductsTakeAtOnceFollowsItsDefinition) {
  std::vector<Shape2> shapes;
  for (int i = 0; i < 37; ++i) shapes.push_back({3, 10});
  shapes.push_back({0, 11});
  follows_reference(segments_of(shapes));
}

TEST_P(Muon, WithRatesOfTheirOwnFollowsItsDefinition) {
  std::vector<ParameterSegment> segments = segments_of({{10, 20}, {20, 10}, {12, 20}, {9, 9}, {0, 11}});
  segments[0].lr_scale = 2;
  segments[0].decay_scale = 0.5F;
  segments[1].last_step = 1;
  segments[2].fade_steps = 4;
  segments[3].last_step = 0;
  follows_reference(segments);
}

// Not one bit changes, whatever the buffers hold.
TEST_P(Muon, IsSkippedOnRequest) {
  const std::vector<ParameterSegment> segments = segments_of({{10, 20}, {20, 10}, {0, 11}});
  for (const UpdateSettings& settings : muon_forms()) {
    const std::vector<float> initial = random_in(segments);
    DeviceUpdate device(backend(), initial, segments, settings);
    device.first.set(initial);
    device.average.set(initial);
    for (const double skip : {1.0, 3.0, std::nan("")}) {
      std::vector<float> gradient = random_in(segments);
      gradient[7] = std::nanf("");
      device.update(gradient, 0.5, 2, skip);
      EXPECT_EQ(device.weights.get(), initial);
      EXPECT_EQ(device.first.get(), initial);
      EXPECT_EQ(device.average.get(), initial);
    }
    // The next one is not affected.
    ReferenceUpdate expected(settings, segments, initial);
    const std::vector<float> gradient = random_in(segments);
    device.first.set(std::vector<float>(initial.size()));
    expected.update(gradient, 0.1, settings.momentum);
    device.update(gradient, 0.1, 1, 0);
    expect_near(device.weights.get(), expected.weights, segments, settings);
  }
}

TEST_P(Muon, LeavesWeightsThatAreNotTrainedAsTheyAre) {
  std::vector<ParameterSegment> segments = segments_of({{10, 20}, {20, 10}, {0, 11}});
  segments[1].last_step = 0;
  const auto begin = static_cast<std::ptrdiff_t>(segments[1].offset);
  const auto end = static_cast<std::ptrdiff_t>(segments[1].offset + segments[1].count);
  for (const UpdateSettings& settings : muon_forms()) {
    const std::vector<float> initial = random_in(segments);
    DeviceUpdate device(backend(), initial, segments, settings);
    for (const double step : {1.0, 2.0}) device.update(random_in(segments), 0.1, step, 0);
    const std::vector<float> after = device.weights.get();
    EXPECT_TRUE(std::equal(after.begin() + begin, after.begin() + end, initial.begin() + begin));
    EXPECT_FALSE(std::equal(after.begin(), after.begin() + begin, initial.begin()));
    // Neither is what lies between the segments.
    EXPECT_TRUE(std::all_of(after.begin() + 200, after.begin() + begin, [](float x) { return x == 0; }));
  }
}

// No gradient, no step; weights of 0 have no norm to be scaled.
TEST_P(Muon, OfZerosIsZero) {
  const std::vector<ParameterSegment> segments = segments_of({{10, 20}, {3, 1}, {0, 11}});
  for (const UpdateSettings& settings : muon_forms()) {
    const std::vector<float> zeros(random_in(segments).size());
    DeviceUpdate device(backend(), zeros, segments, settings);
    device.update(zeros, 0.1, 1, 0);
    EXPECT_EQ(device.weights.get(), zeros);
  }
}

TEST_P(Muon, GivesTheSameBitsAgain) {
  if (!GetParam().repeatable) GTEST_SKIP() << "kernels of libraries may add in any order";
  const std::vector<ParameterSegment> segments = segments_of({{70, 66}, {20, 10}, {0, 11}});
  const std::vector<float> initial = random_in(segments);
  const std::vector<float> gradient = random_in(segments);
  for (const UpdateSettings& settings : muon_forms()) {
    std::vector<std::vector<float>> results;
    for (int run = 0; run < 2; ++run) {
      DeviceUpdate device(backend(), initial, segments, settings);
      device.update(gradient, 0.1, 1, 0);
      results.push_back(device.weights.get());
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

// Each replay reads the step's numbers, and whether it is skipped, when it executes.
TEST_P(Muon, IsRecorded) {
  const std::vector<ParameterSegment> segments = segments_of({{10, 20}, {20, 10}, {12, 30}, {0, 11}});
  for (const UpdateSettings& settings : muon_forms()) {
    const std::vector<float> initial = random_in(segments);
    DeviceUpdate device(backend(), initial, segments, settings);
    ReferenceUpdate expected(settings, segments, initial);
    DeviceArray<float> gradient(backend(), initial);
    device.a.gradient = gradient.data();
    const auto recording = backend().queue().record([&] { backend().math().update(device.a); });
    if (recording == nullptr) {
      EXPECT_TRUE(backend().memory().on_host()) << "a GPU records";
      return;
    }
    for (const double lr : {0.05, 0.02, 0.04}) {
      const std::vector<float> values = random_in(segments);
      gradient.set(values);
      for (const double skip : {1.0, 0.0}) {
        device.set_step(lr, static_cast<double>(expected.steps() + 1), skip);
        recording->replay();
        backend().queue().synchronize();
      }
      expected.update(values, lr, settings.momentum);
    }
    expect_near(device.weights.get(), expected.weights, segments, settings);
  }
}

DDP_ON_EVERY_BACKEND(On, Muon);

}  // namespace
}  // namespace ddp
