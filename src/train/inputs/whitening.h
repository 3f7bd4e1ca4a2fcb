// Initial weights of a whitening convolution: the principal components of the patches of the training images, each
// scaled to unit variance, and their negatives, so that an activation that follows keeps both signs (as in D. Page's
// "How to Train Your ResNet 8: Bag of Tricks", 2019, and K. Jordan's airbench94, 2024).
//
//   whiten(*data.train, {scale, shift}, graph, weights);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/sources/dataset.h"
#include "model/graph.h"
#include "train/inputs/preprocessing.h"

namespace ddp {

// Eigenvalues of a symmetric matrix [n][n], in descending order, and the eigenvector of each as a row, of unit length and
// with a positive component of largest magnitude. By Jacobi's method (Golub, Van Loan: "Matrix Computations", 8.5).
struct Eigen {
  std::vector<double> values;   // [n]
  std::vector<double> vectors;  // [n][n]
};
Eigen symmetric_eigen(std::vector<double> matrix, std::size_t n);

// Sets the parameters with Initial::Kind::whitening, of convolutions of the images, from the first 5,000 images,
// unaugmented: row i < n of the weight [2n or fewer][n] is eigenvector / sqrt(eigenvalue + 5e-4) of PP'/patches, without
// centring, row n + i its negative. Further rows keep their values.
void whiten(const Dataset& train, const PixelValues& pixels, const Graph& graph, std::span<float> parameters);

}  // namespace ddp
