// Random tensors and states to save and compare, and ways to damage files.
#pragma once

#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "checkpoint/tensor_view.h"

namespace ddp {

// Tensors that own their memory, with random finite values, including denormals.
class SampleTensors {
 public:
  SampleTensors(std::mt19937_64& random, std::span<const std::vector<std::int64_t>> shapes, const std::string& prefix) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      views_.push_back({prefix + std::to_string(i), shapes[i], nullptr});
      values_.resize(values_.size() + views_.back().elements());
    }
    constexpr std::uint32_t kExponent = 0x7f800000;
    for (float& value : values_) {
      const auto bits = static_cast<std::uint32_t>(random());
      value = std::bit_cast<float>((bits & kExponent) == kExponent ? bits & ~kExponent : bits);
    }
    std::size_t begin = 0;
    for (TensorView& view : views_) {
      view.data = values_.data() + begin;
      begin += view.elements();
    }
  }
  SampleTensors(const SampleTensors&) = delete;
  SampleTensors& operator=(const SampleTensors&) = delete;
  ~SampleTensors() = default;

  std::span<const TensorView> views() const { return views_; }
  std::vector<float>& values() { return values_; }
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> bits;
    for (const float value : values_) bits.push_back(std::bit_cast<std::uint32_t>(value));
    return bits;
  }
  void clear() { std::fill(values_.begin(), values_.end(), 0.0F); }

 private:
  std::vector<TensorView> views_;
  std::vector<float> values_;
};

// Shapes like those of a small convolutional network, with a scalar and an empty tensor.
inline std::vector<std::vector<std::int64_t>> sample_shapes() { return {{3, 1, 3, 3}, {3}, {}, {0, 4}, {5, 7}, {1}}; }

// The contents of a checkpoint: a model, an optimizer and a state.
struct Sample {
  SampleTensors model;
  SampleTensors optimizer;
  TrainingState state;

  Sample(std::mt19937_64& random, std::int64_t step)
      : model(random, sample_shapes(), "layer."), optimizer(random, sample_shapes(), "momentum.") {
    state.model = "lenet";
    state.dataset = "glyphs";
    state.seed = random();
    state.step = step;
    state.epoch = step / 10;
    state.step_in_epoch = step % 10;
    state.global_batch = 256;
    state.samples_seen = step * 256;
    state.logical_shards = 4;
    state.best_accuracy = std::generate_canonical<double, 53>(random);
    state.plan = "plan";
    state.config = "lr = 0.1\n";
    state.fingerprint = {{"network", "1f2e"}, {"training images", "1000 of 1x28x28 in 10 classes"}};
  }
};

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

inline std::string with_flipped_bit(std::string bytes, std::size_t bit) {
  bytes[bit / 8] = static_cast<char>(static_cast<unsigned char>(bytes[bit / 8]) ^ (1U << (bit % 8)));
  return bytes;
}

}  // namespace ddp
