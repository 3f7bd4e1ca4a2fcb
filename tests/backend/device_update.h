// An update with all its buffers in a backend's memory.
//
//   DeviceUpdate device(backend(), initial, {{0, 300}}, {.momentum = 0.9});
//   device.update(random_gradient(300), /*lr=*/0.1, /*step=*/1, /*skip=*/0);
//   std::vector<float> weights = device.weights.get();
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/device_values.h"
#include "backend/op_check.h"
#include "backend/update_reference.h"

namespace ddp {

// Absolute values from 0.3 to 1. Adam and RMSprop divide a gradient by its own magnitude, so a gradient near zero would
// make the step depend on rounding.
inline std::vector<float> random_gradient(std::int64_t count) {
  std::vector<float> values = random_floats(count);
  for (float& value : values) value = std::copysign(0.3F + 0.7F * std::fabs(value), value);
  return values;
}

// All device buffers of an update.
struct DeviceUpdate {
  DeviceUpdate(Backend& device, const std::vector<float>& initial, const std::vector<ParameterSegment>& segments,
               const UpdateSettings& settings)
      : backend(device),
        tables(cut_into_chunks(segments)),
        weights(device, initial),
        first(device, std::vector<float>(initial.size())),
        second(device, std::vector<float>(initial.size())),
        average(device, std::vector<float>(initial.size())),
        chunks(device, tables.chunks),
        of_segments(device, tables.segments),
        numbers(device, std::vector<StepNumbers>(1)),
        sums(device, std::vector<double>(2 * tables.chunks.size())),
        ratios(device, std::vector<double>(segments.size())),
        control(device, std::vector<StepControl>(1)),
        skipped(device, std::vector<double>(1)) {
    a.settings = settings;
    a.weights = weights.data();
    if (settings.has_first()) a.first = first.data();
    if (settings.has_second()) a.second = second.data();
    if (settings.has_average()) a.average = average.data();
    a.count = static_cast<std::int64_t>(initial.size());
    a.chunks = chunks.data();
    a.chunk_count = static_cast<std::int64_t>(tables.chunks.size());
    a.segments = of_segments.data();
    a.segment_count = static_cast<std::int64_t>(segments.size());
    a.uniform = tables.uniform;
    a.lr_scale = segments[0].lr_scale;
    a.decay_scale = segments[0].decay_scale;
    a.numbers = numbers.data();
    a.sums = sums.data();
    a.ratios = ratios.data();
    a.control = control.data();
    a.skip = skipped.data();
    if (tables.matrices.empty()) return;
    matrices = device.ops().make_matrix_update(tables.matrices);
    matrix_scratch = device.memory().allocate(matrices->scratch_bytes(), "a test's matrices");
    a.matrices = matrices.get();
    a.matrix_scratch = matrix_scratch.data();
  }

  // `momentum` (or beta1) defaults to that of the settings.
  void update(const std::vector<float>& gradient, double lr, double step, double skip,
              std::optional<double> momentum = std::nullopt, double loss_scale = 1) {
    const DeviceArray<float> g(backend, gradient);
    set_step(lr, step, skip, momentum, loss_scale);
    a.gradient = g.data();
    backend.math().update(a);
    backend.queue().synchronize();
  }

  // What the next update reads.
  void set_step(double lr, double step, double skip, std::optional<double> momentum = std::nullopt,
                double loss_scale = 1) {
    control.set({StepControl{lr, momentum.value_or(a.settings.own_momentum()), step, kFullLr, loss_scale}});
    skipped.set({skip});
  }

  Backend& backend;
  UpdateTables tables;
  DeviceArray<float> weights, first, second, average;
  DeviceArray<UpdateChunk> chunks;
  DeviceArray<ChunksOfSegment> of_segments;
  DeviceArray<StepNumbers> numbers;
  DeviceArray<double> sums, ratios;
  DeviceArray<StepControl> control;
  DeviceArray<double> skipped;
  std::unique_ptr<MatrixUpdate> matrices;
  Memory matrix_scratch;
  UpdateArguments a;
};

}  // namespace ddp
