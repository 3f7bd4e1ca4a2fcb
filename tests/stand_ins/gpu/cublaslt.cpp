// A stand-in for cuBLASLt: products of column-major matrices in double precision, with the library's requirements for
// shapes, leading dimensions and alignment.
#include <cublasLt.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "stand_ins/cuda/runtime.h"
#include "stand_ins/gpu/elements.h"

namespace {

using ddp::stand_in::read_element;
using ddp::stand_in::write_element;

constexpr std::size_t kWorkspace = 512;

// Attribute values by attribute number.
struct Attributes {
  std::map<int, std::vector<unsigned char>> values;

  void set(int name, const void* value, std::size_t bytes) {
    const auto* from = static_cast<const unsigned char*>(value);
    values[name] = {from, from + bytes};
  }
  template <class T>
  T get(int name, T otherwise) const {
    const auto found = values.find(name);
    if (found == values.end()) return otherwise;
    T value{};
    std::memcpy(&value, found->second.data(), sizeof(T));
    return value;
  }
};

struct Product : Attributes {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

struct Matrix {
  cudaDataType_t type = CUDA_R_32F;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::int64_t leading = 0;
  std::int32_t batch = 1;
  std::int64_t stride = 0;  // from one matrix of the batch to the next
  ddp::Element element() const {
    if (type == CUDA_R_16F) return ddp::Element::fp16;
    return type == CUDA_R_16BF ? ddp::Element::bf16 : ddp::Element::fp32;
  }
};

template <class To, class From>
To* cast(From* from) {
  return static_cast<To*>(static_cast<void*>(from));
}
template <class To, class From>
const To* cast(const From* from) {
  return static_cast<const To*>(static_cast<const void*>(from));
}

struct Call {
  const Product* product;
  Matrix a, b, d;

  bool transposed(int which) const { return product->get(which, CUBLAS_OP_N) == CUBLAS_OP_T; }
  std::uint64_t m() const { return transposed(CUBLASLT_MATMUL_DESC_TRANSA) ? a.columns : a.rows; }
  std::uint64_t k() const { return transposed(CUBLASLT_MATMUL_DESC_TRANSA) ? a.rows : a.columns; }
  std::uint64_t n() const { return transposed(CUBLASLT_MATMUL_DESC_TRANSB) ? b.rows : b.columns; }
  bool with_bias() const {
    return product->get(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT) == CUBLASLT_EPILOGUE_BIAS;
  }
  const void* bias() const { return product->get<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr); }

  bool consistent() const {
    const std::uint64_t depth_of_b = transposed(CUBLASLT_MATMUL_DESC_TRANSB) ? b.columns : b.rows;
    const auto fits = [](const Matrix& x) { return x.leading >= static_cast<std::int64_t>(x.rows); };
    const bool bias_type =
        !with_bias() || (bias() != nullptr && product->get(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, d.type) == d.type);
    const auto batched = [this](const Matrix& x) {
      return x.batch == d.batch && (x.batch == 1 || x.stride >= x.leading * static_cast<std::int64_t>(x.columns));
    };
    return batched(a) && batched(b) && batched(d) && !(with_bias() && d.batch > 1) && d.rows == m() &&
           d.columns == n() && depth_of_b == k() && fits(a) && fits(b) && fits(d) && bias_type && a.type == b.type;
  }
};

std::uint64_t place(const Matrix& matrix, std::int32_t which, std::uint64_t row, std::uint64_t column) {
  return static_cast<std::uint64_t>(which * matrix.stride) + row + column * static_cast<std::uint64_t>(matrix.leading);
}

// One operand of a product.
struct Operand {
  Matrix matrix;
  const void* data;
  bool transposed = false;

  double at(std::int32_t which, std::uint64_t row, std::uint64_t column) const {
    if (transposed) std::swap(row, column);
    return read_element(data, place(matrix, which, row, column), matrix.element());
  }
  // Column by column.
  std::vector<double> columns(std::int32_t which, std::uint64_t rows, std::uint64_t count) const {
    std::vector<double> values(rows * count);
    for (std::uint64_t i = 0; i < values.size(); ++i) values[i] = at(which, i % rows, i / rows);
    return values;
  }
};

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = cast<std::remove_pointer_t<cublasLtHandle_t>>(std::make_unique<int>().release());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const std::unique_ptr<int> owned(cast<int>(handle));
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return 1; }
const char* cublasLtGetStatusString(cublasStatus_t /*status*/) { return "an error of the stand-in cuBLASLt"; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor, cublasComputeType_t compute,
                                        cudaDataType_t /*scale*/) {
  auto product = std::make_unique<Product>();
  product->compute = compute;
  *descriptor = cast<cublasLtMatmulDescOpaque_t>(product.release());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  const std::unique_ptr<Product> owned(cast<Product>(descriptor));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  cast<Product>(descriptor)->set(name, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  *layout = cast<cublasLtMatrixLayoutOpaque_t>(
      std::make_unique<Matrix>(Matrix{type, rows, columns, leading, 1, 0}).release());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, size_t bytes) {
  Matrix& matrix = *cast<Matrix>(layout);
  if (name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof(matrix.batch)) {
    std::memcpy(&matrix.batch, value, bytes);
  } else if (name == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof(matrix.stride)) {
    std::memcpy(&matrix.stride, value, bytes);
  } else {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  const std::unique_ptr<Matrix> owned(cast<Matrix>(layout));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = cast<cublasLtMatmulPreferenceOpaque_t>(std::make_unique<Attributes>().release());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  const std::unique_ptr<Attributes> owned(cast<Attributes>(preference));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void* value,
                                                    size_t bytes) {
  cast<Attributes>(preference)->set(name, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int /*wanted*/,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  *count = 0;
  const Call call{cast<Product>(product), *cast<Matrix>(a), *cast<Matrix>(b), *cast<Matrix>(d)};
  if (!call.consistent()) return CUBLAS_STATUS_INVALID_VALUE;
  const Attributes& wishes = *cast<Attributes>(preference);
  if (wishes.get(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{0}) < kWorkspace) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  results[0] = {};
  results[0].workspaceSize = kWorkspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* /*algorithm*/, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  const Call call{cast<Product>(product), *cast<Matrix>(a_layout), *cast<Matrix>(b_layout), *cast<Matrix>(d_layout)};
  const auto scale = static_cast<double>(*static_cast<const float*>(alpha));
  const auto addend_scale = static_cast<double>(*static_cast<const float*>(beta));
  const auto aligned = [](const void* p, std::uintptr_t to = 16) {
    return reinterpret_cast<std::uintptr_t>(p) % to == 0;
  };
  const bool in_place = d == a || d == b;
  if (!call.consistent() || c_layout != d_layout || in_place || workspace_bytes < kWorkspace || !aligned(a) ||
      !aligned(b) || !aligned(c) || !aligned(d) || !aligned(workspace, 256) ||
      (call.with_bias() && !aligned(call.bias()))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const void* bias = call.with_bias() ? call.bias() : nullptr;
  const Operand left{call.a, a, call.transposed(CUBLASLT_MATMUL_DESC_TRANSA)};
  const Operand right{call.b, b, call.transposed(CUBLASLT_MATMUL_DESC_TRANSB)};
  const Operand addend{call.d, c};
  const std::uint64_t depth = call.k();
  ddp::testing::enqueue(stream, "product", [=, d_is = call.d] {
    ddp::stand_in::spoil(workspace, workspace_bytes);
    for (std::int32_t which = 0; which < d_is.batch; ++which) {
      const std::vector<double> lefts = left.columns(which, d_is.rows, depth);
      for (std::uint64_t column = 0; column < d_is.columns; ++column) {
        std::vector<double> sums(d_is.rows);
        for (std::uint64_t i = 0; i < depth; ++i) {
          ddp::stand_in::add_multiple(d_is.rows, right.at(which, i, column), &lefts[i * d_is.rows], sums.data());
        }
        for (std::uint64_t row = 0; row < d_is.rows; ++row) {
          double sum = scale * sums[row];
          if (bias != nullptr) sum += read_element(bias, row, d_is.element());
          if (addend_scale != 0) sum += addend_scale * addend.at(which, row, column);
          write_element(d, place(d_is, which, row, column), d_is.element(), sum);
        }
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
