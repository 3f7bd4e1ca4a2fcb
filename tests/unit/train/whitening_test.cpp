#include "train/inputs/whitening.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "model/initialize.h"
#include "model/zoo.h"

namespace ddp {
namespace {

TEST(Whitening, EigenvectorsDiagonaliseAMatrix) {
  for (const std::size_t n : {1U, 2U, 3U, 12U, 27U}) {
    Random random(5, n);
    std::vector<double> matrix(n * n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i; j < n; ++j) matrix[i * n + j] = matrix[j * n + i] = random.normal_double();
    }
    const Eigen eigen = symmetric_eigen(matrix, n);
    double trace = 0;
    for (std::size_t i = 0; i < n; ++i) trace += matrix[i * n + i] - eigen.values[i];
    EXPECT_NEAR(trace, 0, 1e-12 * static_cast<double>(n));
    for (std::size_t i = 0; i < n; ++i) {
      if (i > 0) {
        EXPECT_LE(eigen.values[i], eigen.values[i - 1]);
      }
      for (std::size_t k = 0; k < n; ++k) {
        double product = 0;
        for (std::size_t j = 0; j < n; ++j) product += matrix[k * n + j] * eigen.vectors[i * n + j];
        EXPECT_NEAR(product, eigen.values[i] * eigen.vectors[i * n + k], 1e-11);
        double dot = 0;
        for (std::size_t j = 0; j < n; ++j) dot += eigen.vectors[i * n + j] * eigen.vectors[k * n + j];
        EXPECT_NEAR(dot, i == k ? 1 : 0, 1e-12);
      }
    }
  }
}

// Neighbouring pixels are alike, as in photographs.
class SmoothImages final : public Dataset {
 public:
  SmoothImages() : Dataset("smooth", 60, {3, 32, 32}, 10) {}
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    Random random(8, static_cast<std::uint64_t>(index));
    const float x_rate = random.uniform(0.1F, 0.9F);
    const float y_rate = random.uniform(0.1F, 0.9F);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const auto x = static_cast<float>(i % 32);
      const auto y = static_cast<float>(i / 32 % 32);
      const float wave = std::sin(x * x_rate + y * y_rate + static_cast<float>(i / 1024) * x_rate);
      pixels[i] = static_cast<std::uint8_t>(128 + 80 * wave + 30 * random.uniform());
    }
    return index;
  }
  int label(std::int64_t /*index*/) const override { return 0; }
};

// The outputs of the convolution over all patches are uncorrelated; their variance is that of the component, l, times
// 1 / (l + 5e-4). The second half of the outputs is the negative of the first.
TEST(Whitening, OutputsAreUncorrelated) {
  const SmoothImages images;
  const Graph graph = make_model("airbench94", {3, 32, 32}, 10);
  std::vector<float> parameters(static_cast<std::size_t>(graph.flat_elements()));
  initialize(graph, std::nullopt, 3, parameters);
  const std::vector<float> before = parameters;
  const PixelValues pixels{{0.016F, 0.017F, 0.018F}, {-2.0F, -2.1F, -1.9F}};
  whiten(images, pixels, graph, parameters);
  const Parameter& weight = graph.parameters().front();
  ASSERT_EQ(weight.shape, (std::vector<std::int64_t>{24, 3, 2, 2}));
  const auto offset = static_cast<std::size_t>(weight.offset);
  EXPECT_TRUE(std::equal(parameters.begin() + weight.elements(), parameters.end(), before.begin() + weight.elements()));
  std::vector<double> covariance(12 * 12);
  std::vector<std::uint8_t> image(images.shape().size());
  const double patches = 60.0 * 31 * 31;
  for (std::int64_t index = 0; index < images.size(); ++index) {
    images.read(index, image);
    for (std::size_t y = 0; y + 1 < 32; ++y) {
      for (std::size_t x = 0; x + 1 < 32; ++x) {
        std::vector<double> output(12);
        for (std::size_t o = 0; o < 12; ++o) {
          for (std::size_t k = 0; k < 12; ++k) {
            const std::size_t c = k / 4;
            const double value =
                image[(c * 32 + y + k % 4 / 2) * 32 + x + k % 2] * static_cast<double>(pixels.scale[c]) +
                static_cast<double>(pixels.shift[c]);
            output[o] += static_cast<double>(parameters[offset + o * 12 + k]) * value;
          }
        }
        for (std::size_t i = 0; i < 12; ++i) {
          for (std::size_t j = 0; j < 12; ++j) covariance[i * 12 + j] += output[i] * output[j] / patches;
        }
      }
    }
  }
  for (std::size_t i = 0; i < 12; ++i) {
    double squares = 0;  // 1 / (l + 5e-4)
    for (std::size_t k = 0; k < 12; ++k) {
      const float value = parameters[offset + i * 12 + k];
      squares += static_cast<double>(value) * static_cast<double>(value);
      EXPECT_EQ(parameters[offset + (12 + i) * 12 + k], -value);
    }
    for (std::size_t j = 0; j < 12; ++j) {
      // Weights are rounded to fp32, and the components differ in size by a factor of some hundred.
      EXPECT_NEAR(covariance[i * 12 + j], i == j ? 1 - 5e-4 * squares : 0, 1e-4) << i << " " << j;
    }
  }
}

TEST(Whitening, LeavesOtherModelsAlone) {
  const SmoothImages images;
  const Graph graph = make_model("resnet9", {3, 32, 32}, 10);
  std::vector<float> parameters(static_cast<std::size_t>(graph.flat_elements()), 0.5F);
  whiten(images, {{1, 1, 1}, {0, 0, 0}}, graph, parameters);
  for (const float value : parameters) ASSERT_EQ(value, 0.5F);
}

}  // namespace
}  // namespace ddp
