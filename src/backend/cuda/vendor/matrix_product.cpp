#include "backend/cuda/vendor/matrix_product.h"

#include "backend/cuda/device/check.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

// Recommended by NVIDIA for Hopper.
constexpr std::uint64_t kMostWorkspace = std::uint64_t{32} << 20U;

// A placeholder with the alignment of a bias that does not exist yet; never read.
alignas(kAlignment) constexpr std::byte kSomewhere{};

cudaDataType_t type_of(Element element) {
  if (element == Element::fp16) return CUDA_R_16F;
  return element == Element::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// The restrictions of an algorithm: a bounded workspace, the alignment guaranteed by run(), and split sums only if the
// parts are added in fp32, from the workspace, in order.
Preference make_preference() {
  cublasLtMatmulPreference_t raw = nullptr;
  DDP_CUBLAS(cublasLtMatmulPreferenceCreate(&raw));
  Preference preference(raw);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    DDP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(raw, name, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  const std::uint32_t alignment = kAlignment;
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  return preference;
}

}  // namespace

RowProduct::RowProduct(cublasLtHandle_t handle, const RowProductSpec& spec)
    : handle_(handle),
      has_bias_(spec.bias),
      product_(describe_product(spec)),
      a_(describe_matrix(element_of(spec.precision), spec.transpose_a ? spec.depth : spec.rows,
                         spec.transpose_a ? spec.rows : spec.depth, spec.batch)),
      b_(describe_matrix(element_of(spec.precision), spec.transpose_b ? spec.columns : spec.depth,
                         spec.transpose_b ? spec.depth : spec.columns, spec.batch)),
      c_(describe_matrix(spec.result, spec.rows, spec.columns, spec.batch)) {
  DDP_ASSERT(spec.batch == 1 || !spec.bias);
  if (has_bias_) set_bias(&kSomewhere);
  if (handle == nullptr) {
    workspace_bytes_ = kMostWorkspace;
    return;
  }
  const Preference preference = make_preference();
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  // The swap of Note [Rows and columns]: B comes first.
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, product_.get(), b_.get(), a_.get(), c_.get(),
                                                               c_.get(), preference.get(), 1, &found, &count);
  check(status != CUBLAS_STATUS_NOT_SUPPORTED && (status != CUBLAS_STATUS_SUCCESS || count > 0), ExitCode::preflight,
        "cuBLASLt does not support multiplying [{}][{}] by [{}][{}] on this GPU", spec.rows, spec.depth, spec.depth,
        spec.columns);
  DDP_CUBLAS(status);
  DDP_CUBLAS(found.state);
  algorithm_ = found.algo;
  workspace_bytes_ = found.workspaceSize;
}

RowProduct::Product RowProduct::describe_product(const RowProductSpec& spec) {
  const cublasComputeType_t compute =
      spec.precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t raw = nullptr;
  DDP_CUBLAS(cublasLtMatmulDescCreate(&raw, compute, CUDA_R_32F));
  Product product(raw);
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
    DDP_CUBLAS(cublasLtMatmulDescSetAttribute(raw, name, &value, sizeof(value)));
  };
  const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(spec.transpose_b));
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(spec.transpose_a));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, spec.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
  if (spec.bias) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(spec.result));
  return product;
}

// A row-major matrix as cuBLAS sees it: its column-major transpose.
RowProduct::Matrix RowProduct::describe_matrix(Element element, std::int64_t rows, std::int64_t columns,
                                               std::int64_t batch) {
  cublasLtMatrixLayout_t raw = nullptr;
  DDP_CUBLAS(cublasLtMatrixLayoutCreate(&raw, type_of(element), static_cast<std::uint64_t>(columns),
                                        static_cast<std::uint64_t>(rows), columns));
  Matrix matrix(raw);
  if (batch > 1) {
    const auto count = static_cast<std::int32_t>(batch);
    const std::int64_t offset = rows * columns;
    DDP_CUBLAS(cublasLtMatrixLayoutSetAttribute(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
    DDP_CUBLAS(
        cublasLtMatrixLayoutSetAttribute(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset, sizeof(offset)));
  }
  return matrix;
}

void RowProduct::set_bias(const void* bias) const {
  DDP_CUBLAS(cublasLtMatmulDescSetAttribute(product_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
}

void RowProduct::run(cudaStream_t stream, const void* a, const void* b, void* c, const void* bias, void* workspace,
                     const RowProductSum& sum) {
  DDP_ASSERT(is_aligned(a) && is_aligned(b) && is_aligned(c) && is_aligned(bias) && is_aligned(workspace) &&
             is_aligned(sum.addend));
  if (has_bias_) set_bias(bias);
  const float addend_scale = sum.addend == nullptr ? 0 : sum.addend_scale;
  const void* addend = sum.addend == nullptr ? c : sum.addend;
  DDP_CUBLAS(cublasLtMatmul(handle_, product_.get(), &sum.scale, b, b_.get(), a, a_.get(), &addend_scale, addend,
                            c_.get(), c, c_.get(), &algorithm_, workspace, workspace_bytes_, stream));
}

}  // namespace ddp::cuda
