#include "train/inputs/whitening.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/error.h"
#include "base/status/heartbeat.h"

namespace ddp {
namespace {

constexpr std::int64_t kImages = 5000;
constexpr double kEpsilon = 5e-4;

// Rotates rows and columns p and q so that the element (p, q) becomes 0.
void rotate(std::vector<double>& a, std::vector<double>& vectors, std::size_t n, std::size_t p, std::size_t q) {
  const double apq = a[p * n + q];
  if (apq == 0) return;
  const double theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
  const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::hypot(theta, 1.0));
  const double c = 1 / std::hypot(t, 1.0);
  const double s = t * c;
  const auto turn = [c, s](double& x, double& y) {
    const double old = x;
    x = c * old - s * y;
    y = s * old + c * y;
  };
  for (std::size_t k = 0; k < n; ++k) turn(a[k * n + p], a[k * n + q]);
  for (std::size_t k = 0; k < n; ++k) turn(a[p * n + k], a[q * n + k]);
  for (std::size_t k = 0; k < n; ++k) turn(vectors[p * n + k], vectors[q * n + k]);
}

// The values of the patches of an image [channels][height][width] for every position of the window: [n][positions].
std::vector<float> patches_of(std::span<const std::uint8_t> image, const Shape& shape, const PixelValues& pixels,
                              std::int64_t window_height, std::int64_t window_width) {
  std::vector<float> patches;
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    const float scale = pixels.scale[static_cast<std::size_t>(c)];
    const float shift = pixels.shift[static_cast<std::size_t>(c)];
    for (std::int64_t dy = 0; dy < window_height; ++dy) {
      for (std::int64_t dx = 0; dx < window_width; ++dx) {
        for (std::int64_t y = dy; y + window_height - dy <= shape.height; ++y) {
          const std::uint8_t* row = &image[static_cast<std::size_t>((c * shape.height + y) * shape.width)];
          for (std::int64_t x = dx; x + window_width - dx <= shape.width; ++x) {
            patches.push_back(static_cast<float>(row[x]) * scale + shift);
          }
        }
      }
    }
  }
  return patches;
}

// The covariance of the patches without centring: [n][n].
std::vector<double> patch_covariance(const Dataset& train, const PixelValues& pixels, std::size_t n,
                                     std::int64_t window_height, std::int64_t window_width) {
  const std::int64_t images = std::min(kImages, train.size());
  std::vector<double> sums(n * n);
  std::vector<std::uint8_t> image(train.shape().size());
  double count = 0;
  for (std::int64_t index = 0; index < images; ++index) {
    train.read_plain(index, image);
    const std::vector<float> patches = patches_of(image, train.shape(), pixels, window_height, window_width);
    const std::size_t positions = patches.size() / n;
    for (std::size_t i = 0; i < n; ++i) {
      const float* a = &patches[i * positions];
      for (std::size_t j = i; j < n; ++j) {
        sums[i * n + j] += std::inner_product(a, a + positions, &patches[j * positions], 0.0);
      }
    }
    count += static_cast<double>(positions);
    heartbeat();
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j) sums[j * n + i] = sums[i * n + j] /= count;
  }
  return sums;
}

}  // namespace

Eigen symmetric_eigen(std::vector<double> matrix, std::size_t n) {
  DDP_ASSERT(matrix.size() == n * n);
  std::vector<double> vectors(n * n);
  for (std::size_t i = 0; i < n; ++i) vectors[i * n + i] = 1;
  // Converges quadratically; eight to ten sweeps are usual.
  constexpr int kSweeps = 50;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) rotate(matrix, vectors, n, p, q);
    }
  }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return matrix[a * n + a] > matrix[b * n + b]; });
  Eigen result;
  for (const std::size_t i : order) {
    result.values.push_back(matrix[i * n + i]);
    const double* row = &vectors[i * n];
    const double largest =
        *std::max_element(row, row + n, [](double a, double b) { return std::abs(a) < std::abs(b); });
    for (std::size_t k = 0; k < n; ++k) result.vectors.push_back(std::copysign(1.0, largest) * row[k]);
  }
  return result;
}

void whiten(const Dataset& train, const PixelValues& pixels, const Graph& graph, std::span<float> parameters) {
  for (const Parameter& p : graph.parameters()) {
    if (p.initial.kind != Initial::Kind::whitening) continue;
    DDP_ASSERT(p.shape.size() == 4 && p.shape[1] == train.shape().channels);
    const auto n = static_cast<std::size_t>(p.fan_in);
    const Eigen eigen = symmetric_eigen(patch_covariance(train, pixels, n, p.shape[2], p.shape[3]), n);
    const std::size_t rows = std::min(2 * n, static_cast<std::size_t>(p.shape[0]));
    float* weight = &parameters[static_cast<std::size_t>(p.offset)];
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t i = row % n;
      const double scale = (row < n ? 1 : -1) / std::sqrt(std::max(0.0, eigen.values[i]) + kEpsilon);
      for (std::size_t k = 0; k < n; ++k) {
        weight[row * n + k] = static_cast<float>(scale * eigen.vectors[i * n + k]);
      }
    }
  }
}

}  // namespace ddp
