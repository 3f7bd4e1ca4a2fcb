// Muon's update of whole matrices (optim/rules/muon.h): products by cuBLASLt, several matrices of the same size at once. They
// are of the run's precision, and so is what lies between them: in bf16 the iteration is rounded to bf16, as in PyTorch.
#include "optim/rules/muon.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "backend/cuda/update/update.h"
#include "backend/cuda/vendor/matrix_product.h"
#include "backend/workspace.h"

namespace ddp::cuda {
namespace {

// Both sides are rounded up to this, with zeros, which stay zeros: kernels of cuBLASLt that use tensor cores take rows whose
// length is a multiple of 16 bytes.
constexpr std::int64_t kSide = 8;
// Elements of a batch, unless it is one matrix; more are no faster, and need memory.
constexpr std::int64_t kMostElementsAtOnce = std::int64_t{1} << 22U;

std::int64_t padded(std::int64_t side) { return (side + kSide - 1) / kSide * kSide; }

// With matrices of the same size next to one another.
std::vector<MatrixBatch> batches_of(std::span<const UpdateMatrix> matrices) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<UpdateMatrix>> by_size;
  for (const UpdateMatrix& each : matrices) {
    const auto [small, large] = std::minmax(each.rows, each.columns);
    by_size[{padded(small), padded(large)}].push_back(each);
  }
  std::vector<MatrixBatch> batches;
  for (const auto& [size, all] : by_size) {
    const auto [small, large] = size;
    const auto most =
        static_cast<std::size_t>(std::clamp<std::int64_t>(kMostElementsAtOnce / (small * large), 1, kMatricesAtOnce));
    for (std::size_t first = 0; first < all.size(); first += most) {
      MatrixBatch batch{.small = small, .large = large};
      batch.count = static_cast<std::int64_t>(std::min(most, all.size() - first));
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(first), batch.count, batch.matrices);
      batches.push_back(batch);
    }
  }
  return batches;
}

// The products of a step of the iteration, with the matrices X of a batch.
struct BatchProducts {
  BatchProducts(const CudaContext& context, const MatrixBatch& matrices)
      : batch(matrices),
        gram(context.cublas, {.rows = batch.small,
                              .columns = batch.small,
                              .depth = batch.large,
                              .batch = batch.count,
                              .transpose_b = true,
                              .precision = context.precision,
                              .result = context.element()}),
        square(context.cublas, {.rows = batch.small,
                                .columns = batch.small,
                                .depth = batch.small,
                                .batch = batch.count,
                                .precision = context.precision,
                                .result = context.element()}),
        next(context.cublas, {.rows = batch.small,
                              .columns = batch.large,
                              .depth = batch.small,
                              .batch = batch.count,
                              .precision = context.precision,
                              .result = context.element()}) {}

  std::size_t workspace_bytes() const {
    return std::max({gram.workspace_bytes(), square.workspace_bytes(), next.workspace_bytes()});
  }

  MatrixBatch batch;
  RowProduct gram;    // A = X X^T
  RowProduct square;  // b A + c A A
  RowProduct next;    // a X + that X
};

class CudaMatrixUpdate final : public MatrixUpdate {
 public:
  CudaMatrixUpdate(const CudaContext& context, std::span<const UpdateMatrix> matrices) : context_(context) {
    std::int64_t elements = 0;
    std::int64_t squares = 0;
    std::size_t workspace = 0;
    for (const MatrixBatch& batch : batches_of(matrices)) {
      const BatchProducts& products = batches_.emplace_back(context, batch);
      elements = std::max(elements, batch.count * batch.small * batch.large);
      squares = std::max(squares, batch.count * batch.small * batch.small);
      workspace = std::max(workspace, products.workspace_bytes());
    }
    const auto bytes = static_cast<std::int64_t>(bytes_of(context.element()));
    x_ = space_.add<std::byte>(elements * bytes);
    next_ = space_.add<std::byte>(elements * bytes);
    gram_ = space_.add<std::byte>(squares * bytes);
    polynomial_ = space_.add<std::byte>(squares * bytes);
    workspace_ = space_.add<std::byte>(static_cast<std::int64_t>(workspace));
  }

  std::size_t scratch_bytes() const override { return space_.bytes(); }

  void run(const UpdateArguments& a) override {
    muon_momentum(context_.stream, a);
    for (BatchProducts& each : batches_) {
      muon_directions(context_.stream, context_.element(), a, each.batch, x_.in(a.matrix_scratch));
      const void* direction = orthogonalise(each, a);
      muon_weights(context_.stream, context_.element(), a, each.batch, direction);
    }
  }

 private:
  // Returns where the matrices are then.
  const void* orthogonalise(BatchProducts& products, const UpdateArguments& a) {
    std::byte* x = x_.in(a.matrix_scratch);
    std::byte* next = next_.in(a.matrix_scratch);
    std::byte* gram = gram_.in(a.matrix_scratch);
    std::byte* polynomial = polynomial_.in(a.matrix_scratch);
    std::byte* workspace = workspace_.in(a.matrix_scratch);
    for (int step = 0; step < a.settings.muon_steps; ++step) {
      products.gram.run(context_.stream, x, x, gram, nullptr, workspace);
      products.square.run(context_.stream, gram, gram, polynomial, nullptr, workspace,
                          {.scale = kMuonQuintic, .addend = gram, .addend_scale = kMuonCubic});
      products.next.run(context_.stream, polynomial, x, next, nullptr, workspace,
                        {.addend = x, .addend_scale = kMuonLinear});
      std::swap(x, next);
    }
    return x;
  }

  const CudaContext& context_;
  std::vector<BatchProducts> batches_;
  Workspace space_;
  Workspace::Part<std::byte> x_, next_, gram_, polynomial_, workspace_;
};

}  // namespace

std::unique_ptr<MatrixUpdate> make_cuda_matrix_update(const CudaContext& context,
                                                      std::span<const UpdateMatrix> matrices) {
  return std::make_unique<CudaMatrixUpdate>(context, matrices);
}

}  // namespace ddp::cuda
