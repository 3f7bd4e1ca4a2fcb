// The data and initial weights of the golden LeNet runs, by the formulas documented in tests/golden/make_lenet.py.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "data/pipeline/loader.h"
#include "data/sources/memory_dataset.h"
#include "model/graph.h"
#include "support/golden_hash.h"

namespace ddp::golden {

inline std::int32_t label(std::uint32_t sample) { return static_cast<std::int32_t>(hash32(sample) % 10); }

inline std::uint8_t pixel(std::uint32_t sample, std::uint32_t p) {
  const std::uint32_t square = 7 * (p / 28 / 4) + p % 28 / 4;
  const std::uint32_t pattern = hash32(0x20000000U + 49 * (hash32(sample) % 10) + square) >> 24U;
  const std::uint32_t noise = hash32(0x80000000U + 784 * sample + p) >> 24U;
  return static_cast<std::uint8_t>(pattern < 64 ? 128 + (noise >> 1U) : noise >> 3U);
}

struct Samples {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;

  Samples(std::int64_t first, std::int64_t count) { add(first, count); }
  void add(std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) {
      const auto sample = static_cast<std::uint32_t>(i);
      for (std::uint32_t p = 0; p < 784; ++p) pixels.push_back(pixel(sample, p));
      labels.push_back(label(sample));
    }
  }
  Batch batch() const { return {pixels, labels, static_cast<std::int64_t>(labels.size()), {}}; }
};

// The first of them.
inline std::unique_ptr<Dataset> dataset(std::int64_t count) {
  Samples all(0, count);
  const std::vector<std::uint8_t> labels(all.labels.begin(), all.labels.end());
  return std::make_unique<MemoryDataset>("golden", Shape{1, 28, 28}, 10, std::move(all.pixels), labels);
}

inline std::vector<float> initial_parameters(const Graph& graph) {
  std::vector<float> flat(static_cast<std::size_t>(graph.flat_elements()));
  std::uint32_t place = 0;
  for (const Parameter& p : graph.parameters()) {
    for (std::int64_t i = 0; i < p.elements(); ++i) {
      const double uniform = static_cast<double>(hash32(place++) >> 8U) * 0x1p-24 - 0.5;
      flat[static_cast<std::size_t>(p.offset + i)] =
          static_cast<float>(uniform * (2 / std::sqrt(static_cast<double>(p.fan_in))));
    }
  }
  return flat;
}

}  // namespace ddp::golden
