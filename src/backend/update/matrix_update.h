// The update of the parameters that are updated as whole matrices (optim/rules/muon.h), made once for their shapes.
//
//   const std::vector<UpdateMatrix> shapes = {{0, 16, 150}};   // segment 0 is a matrix of 16 x 150
//   std::unique_ptr<MatrixUpdate> matrices = backend.ops().make_matrix_update(shapes);
//   const Memory scratch = backend.memory().allocate(matrices->scratch_bytes(), "the update of matrices");
//   UpdateArguments update = arguments;
//   update.matrices = matrices.get();
//   update.matrix_scratch = scratch.data();
//   backend.math().update(update);
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "backend/update/flat_update.h"

namespace ddp {

class MatrixUpdate {
 public:
  MatrixUpdate() = default;
  MatrixUpdate(const MatrixUpdate&) = delete;
  MatrixUpdate& operator=(const MatrixUpdate&) = delete;
  virtual ~MatrixUpdate() = default;

  // Bytes of UpdateArguments::matrix_scratch.
  virtual std::size_t scratch_bytes() const = 0;
  // Enqueues the update; called by FlatMath::update(), behind what finds the numbers of the step.
  virtual void run(const UpdateArguments& arguments) = 0;
};

class MatrixUpdateFactory {
 public:
  MatrixUpdateFactory() = default;
  MatrixUpdateFactory(const MatrixUpdateFactory&) = delete;
  MatrixUpdateFactory& operator=(const MatrixUpdateFactory&) = delete;
  virtual ~MatrixUpdateFactory() = default;

  virtual std::unique_ptr<MatrixUpdate> make_matrix_update(std::span<const UpdateMatrix> matrices) = 0;
};

}  // namespace ddp
