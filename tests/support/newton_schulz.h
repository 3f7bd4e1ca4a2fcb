// The Newton-Schulz iteration of K. Jordan's Muon in double precision, which tests compare with.
//
//   Matrix direction = zeros(16, 150);
//   direction = orthogonal(direction, 5);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace ddp {

// Row by row.
struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<double> values = {};
  double& at(std::size_t r, std::size_t c) { return values[r * columns + c]; }
  double at(std::size_t r, std::size_t c) const { return values[r * columns + c]; }
};

inline Matrix zeros(std::size_t rows, std::size_t columns) {
  return {rows, columns, std::vector<double>(rows * columns)};
}

inline Matrix transposed(const Matrix& m) {
  Matrix result = zeros(m.columns, m.rows);
  for (std::size_t r = 0; r < m.rows; ++r) {
    for (std::size_t c = 0; c < m.columns; ++c) result.at(c, r) = m.at(r, c);
  }
  return result;
}

inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result = zeros(a.rows, b.columns);
  for (std::size_t r = 0; r < a.rows; ++r) {
    for (std::size_t k = 0; k < a.columns; ++k) {
      for (std::size_t c = 0; c < b.columns; ++c) result.at(r, c) += a.at(r, k) * b.at(k, c);
    }
  }
  return result;
}

inline double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

inline Matrix orthogonal(Matrix x, int steps) {
  if (x.rows > x.columns) return transposed(orthogonal(transposed(x), steps));
  const double size = std::max(norm(x.values), 1e-7);
  for (double& value : x.values) value /= size;
  for (int step = 0; step < steps; ++step) {
    const Matrix gram = product(x, transposed(x));
    Matrix polynomial = product(gram, gram);
    for (std::size_t i = 0; i < gram.values.size(); ++i) {
      polynomial.values[i] = -4.7750 * gram.values[i] + 2.0315 * polynomial.values[i];
    }
    const Matrix more = product(polynomial, x);
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = 3.4445 * x.values[i] + more.values[i];
  }
  return x;
}

}  // namespace ddp
