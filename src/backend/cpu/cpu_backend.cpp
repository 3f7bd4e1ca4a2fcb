// The CPU backend: maps specs and layouts to operators and selects kernels.
#include <omp.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "backend/backend.h"
#include "backend/cpu/candidates/candidates.h"
#include "backend/cpu/conv/amx/amx_kernels.h"
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/depthwise/depthwise.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/joined/joined.h"
#include "backend/cpu/linear/linear.h"
#include "backend/cpu/norm/norm.h"
#include "backend/cpu/onednn/onednn.h"
#include "backend/cpu/onednn/primitives.h"
#include "backend/cpu/pointwise/pointwise.h"
#include "backend/cpu/pool/pool.h"
#include "backend/cpu/update/update.h"
#include "backend/host_queue.h"
#include "base/overloaded.h"
#include "base/text/text.h"

namespace ddp {
namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

// Enables denormals-are-zero and flush-to-zero in this thread and those that it starts later. Vanishing gradients
// become denormal, and each operation on a denormal number takes a hundred cycles or more.
void flush_denormals() {
#ifdef __x86_64__
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kDenormalsAreZero = 0x0040;
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
#endif
}

// After the instruction set in descriptions: how a precision that the kernels do not have is computed.
std::string_view emulation_note(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      break;
    case Precision::tf32:
      return ", tf32 as fp32";
    case Precision::bf16:
      return lanes::uses_pairs() ? ", bf16 products of convolutions in lanes16, otherwise emulated by rounding"
                                 : ", bf16 emulated by rounding";
    case Precision::fp16:
      return ", fp16 emulated by rounding";
  }
  return "";
}

// The same of kernels for tiles.
std::string tiles_of(Precision precision) {
  const bool multiplies = precision == Precision::tf32 || precision == Precision::bf16;
  if (!multiplies || !lanes::uses_amx()) return "";
  return fmt::format("; {}{} where it is faster",
                     precision == Precision::tf32 ? "three products of bf16 numbers by " : "",
                     lanes::amx_kernels().name);
}

// Before anything else asks oneDNN for what it uses.
void limit_onednn() {
  const std::string_view set = lanes::instruction_set_name();
  const dnnl_cpu_isa_t isa = set == "avx2"       ? dnnl_cpu_isa_avx2
                             : set == "baseline" ? dnnl_cpu_isa_sse41
                                                 : dnnl_cpu_isa_avx512_core;
  check(dnnl_set_max_cpu_isa(isa) == dnnl_success, ExitCode::internal, "oneDNN cannot be limited to {}", set);
}

BackendTraits cpu_traits(Precision precision) {
  const std::string processor = processor_name();
  const std::string kernels =
      fmt::format("{}{}{}", lanes::instruction_set_name(), emulation_note(precision), tiles_of(precision));
  const int threads = omp_get_max_threads();
  const auto isa = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  const dnnl_version_t& found = *dnnl_version();
  const std::string onednn = fmt::format("{}.{}.{}", found.major, found.minor, found.patch);
  return {
      .description = fmt::format("CPU ({}, {}), {} per rank", processor, kernels,
                                 counted(static_cast<std::uint64_t>(threads), "thread")),
      .fingerprint = fmt::format("cpu {} {} onednn-{} isa-{:#x} threads-{} kernels-{}", processor, kernels, onednn, isa,
                                 threads, cpu_source_hash()),
      .arithmetic = fmt::format("{} kernels{}{} and oneDNN {} for instruction set {:#x}", lanes::instruction_set_name(),
                                emulation_note(precision), tiles_of(precision), onednn, isa),
      .activation_element = element_of(precision)};
}

class CpuOps final : public OpFactory {
 public:
  explicit CpuOps(Precision precision) : traits_(cpu_traits(precision)), candidates_(precision) {}

  const BackendTraits& traits() const override { return traits_; }
  KernelChooser& chooser() override { return chooser_; }

  bool supports(const OpSpec& spec, Layout x, Layout y) const override {
    return std::visit(
        Overloaded{
            [=](const ConvSpec& s) {
              return x == y && (x == Layout::nhwc || (x == Layout::lanes16 && lanes_conv_supported(s)));
            },
            [=](const LinearSpec& s) {
              return x == y && (x == Layout::plain || (x == Layout::lanes16 && s.parts == 1));
            },
            [=](const OneOf<ConvTransposeSpec, ChannelsLastSpec> auto& /*s*/) { return x == Layout::nhwc && y == x; },
            [](const ReorderSpec& /*s*/) { return true; },
            [=](const OneOf<ActivationSpec, PoolSpec, BatchNormSpec, AddSpec> auto& /*s*/) { return x == y; },
            [=](const SimpleSpec auto& /*s*/) { return x == y; }},
        spec);
  }

  std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) override {
    // A plan may be that of a run whose layers were not divided.
    const auto* linear = std::get_if<LinearSpec>(&spec);
    check(linear == nullptr || linear->parts == 1 || x == Layout::plain, ExitCode::preflight,
          "a linear layer that is divided among the ranks is computed in the layout plain, not in {}", to_string(x));
    DDP_ASSERT(supports(spec, x, y));
    const auto* conv = std::get_if<ConvSpec>(&spec);
    if ((conv != nullptr || linear != nullptr) && is_bf16_text(kernels)) {
      check(activation_element() == Element::bf16 && x == Layout::lanes16, ExitCode::preflight,
            "the plan requires the kernels '{}', which are for --precision bf16", kernels);
      const ConvSpec long_rows = with_long_rows(conv != nullptr ? *conv : conv_of(*linear));
      return make_lanes_bf16_conv(long_rows, bf16_tiles_from_text(long_rows, kernels));
    }
    const bool end = std::holds_alternative<InputSpec>(spec) || std::holds_alternative<LossSpec>(spec);
    if (activation_element() == Element::fp32 || end) return make_fp32_op(spec, x, y, kernels);
    if (activation_element() == Element::bf16) {
      if (auto op = make_own_bf16_op(spec, x, kernels)) return op;
    }
    return make_half_op(make_fp32_op(spec, x, y, kernels), spec, x, y, activation_element());
  }

  std::unique_ptr<MatrixUpdate> make_matrix_update(std::span<const UpdateMatrix> matrices) override {
    return make_cpu_matrix_update(matrices);
  }

  std::unique_ptr<Op> join(std::span<const OpSpec> specs, Layout layout,
                           std::span<const std::string> /*kernels*/) override {
    const bool own =
        activation_element() == Element::fp32 || (activation_element() == Element::bf16 && lanes::uses_pairs());
    if (specs.size() != 3 || layout != Layout::lanes16 || !own) return nullptr;
    const auto* before = std::get_if<BatchNormSpec>(specs.data());
    const auto* conv = std::get_if<ConvSpec>(&specs[1]);
    const auto* after = std::get_if<BatchNormSpec>(&specs[2]);
    if (before == nullptr || conv == nullptr || after == nullptr) return nullptr;
    return make_norm_depthwise(*before, *conv, *after, activation_element());
  }

 private:
  Element activation_element() const { return traits_.activation_element; }
  std::unique_ptr<Op> make_fp32_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) const {
    return std::visit(Overloaded{[&](const ConvSpec& s) { return make_conv(s, x, kernels); },
                                 [&](const ConvTransposeSpec& s) { return make_onednn_conv_transpose(s); },
                                 [&](const LinearSpec& s) { return make_linear(s, x, kernels); },
                                 [&](const ActivationSpec& s) { return make_activation(s, x, Element::fp32); },
                                 [&](const PoolSpec& s) { return make_pool(s, x, Element::fp32); },
                                 [&](const BatchNormSpec& s) { return make_batch_norm(s, x, Element::fp32); },
                                 [&](const AddSpec& s) { return make_add(s, x, Element::fp32); },
                                 [&](const SimpleSpec auto& s) { return make_cpu_op(s, x); },
                                 [&](const ReorderSpec& s) { return make_reorder(s, x, y); },
                                 [&](const ChannelsLastSpec& s) { return make_channels_last(s); }},
                      spec);
  }

  // The operators with kernels for bf16; null for the others.
  static std::unique_ptr<Op> make_own_bf16_op(const OpSpec& spec, Layout x, const std::string& kernels) {
    constexpr Element kBf16 = Element::bf16;
    const auto* linear = std::get_if<LinearSpec>(&spec);
    if (linear != nullptr && kernels == kLanesBf16Linear) return make_lanes_bf16_linear(*linear);
    return std::visit(
        Overloaded{[&](const ConvSpec& s) {
                     if (is_onednn_bf16_text(kernels)) return make_onednn(s, kernels, kBf16);
                     const bool own = kernels == kLanesDepthwise && lanes::uses_pairs() && x == Layout::lanes16 &&
                                      lanes_depthwise_supported(s);
                     return own ? make_lanes_bf16_depthwise(s) : nullptr;
                   },
                   [&](const ActivationSpec& s) { return make_activation(s, x, kBf16); },
                   [&](const PoolSpec& s) { return make_pool(s, x, kBf16); },
                   [&](const BatchNormSpec& s) { return make_batch_norm(s, x, kBf16); },
                   [&](const AddSpec& s) { return make_add(s, x, kBf16); },
                   [&](const ConcatSpec& s) { return make_cpu_op(s, x); },
                   [&](const ChannelSelectSpec& s) { return make_cpu_op(s, x); },
                   [](const SimpleSpec auto& /*s*/) { return std::unique_ptr<Op>(); },
                   [](const OneOf<ConvTransposeSpec, LinearSpec, ReorderSpec, ChannelsLastSpec> auto& /*s*/) {
                     return std::unique_ptr<Op>();
                   }},
        spec);
  }

  std::unique_ptr<Op> make_linear(const LinearSpec& spec, Layout x, const std::string& kernels) const {
    if (spec.parts > 1) return make_split_linear(spec);
    if (x != Layout::lanes16) return make_onednn_linear(spec);
    return kernels.empty() ? make_lanes_linear(spec) : make_conv(conv_of(spec), x, kernels);
  }

  std::unique_ptr<Op> make_conv(const ConvSpec& spec, Layout x, const std::string& kernels) const {
    if (x == Layout::lanes16) {
      if (kernels == kLanesDepthwise && lanes_depthwise_supported(spec)) return make_lanes_depthwise(spec);
      return make_lanes_conv(spec, lanes_tiles_from_text(spec, kernels, candidates_.takes_tf32()));
    }
    if (kernels == kNhwcDepthwise && nhwc_depthwise_supported(spec)) return make_nhwc_depthwise(spec);
    return make_onednn(spec, kernels, Element::fp32);
  }
  static std::unique_ptr<Op> make_onednn(const ConvSpec& spec, const std::string& kernels, Element element) {
    auto op = make_onednn_conv(spec, onednn_formats_from_text(kernels), element);
    check(op != nullptr, ExitCode::preflight, "oneDNN has no kernel '{}' for this convolution here", kernels);
    return op;
  }

  BackendTraits traits_;
  CpuCandidates candidates_;
  KernelChooser chooser_{*this, candidates_};
};

class CpuMath final : public FlatMath {
 public:
  void fill_zero(void* device, std::size_t bytes) override {
    if (bytes > 0) std::memset(device, 0, bytes);
  }
  void add(Activations sum, ConstActivations addend, std::size_t count) override {
    cpu_add_activations(sum, addend, static_cast<std::int64_t>(count));
  }
  void copy(Activations to, ConstActivations from, std::size_t count, const double* skip) override {
    if (skip != nullptr && *skip != 0) return;
    if (to.element() == Element::fp32 && from.element() == Element::fp32) {
      std::copy_n(from.fp32(), count, to.fp32());
    } else {
      cpu_convert(to, from, static_cast<std::int64_t>(count));
    }
  }
  void square_sums(const float* values, std::size_t count, double* sums, const NonfiniteCheck& check) override {
    if (sums != nullptr) cpu_square_sums(values, count, sums);
    if (check.broken == nullptr || std::ranges::all_of(check.sums, [](double sum) { return std::isfinite(sum); }))
      return;
    *check.broken = 1;
  }
  void pull(float* slow, float* fast, std::size_t count, float rest, const double* skip) override {
    if (skip == nullptr || *skip == 0) cpu_pull(slow, fast, count, rest);
  }
  void copy_row(std::span<const TableColumn> columns, TableCursor* cursor) override {
    cpu_copy_row({columns, cursor});
    if (cursor != nullptr) cursor->advance();
  }
  void update(const UpdateArguments& arguments) override { cpu_update(arguments); }
};

}  // namespace

std::unique_ptr<OpFactory> make_cpu_ops(Precision precision) {
  // This thread is one of the team; other OpenMP threads may already exist.
#pragma omp parallel
  flush_denormals();
  [[maybe_unused]] static const bool limited = lanes::limits_onednn() && (limit_onednn(), true);
  return std::make_unique<CpuOps>(precision);
}

std::unique_ptr<FlatMath> make_cpu_math() { return std::make_unique<CpuMath>(); }

std::unique_ptr<Backend> make_cpu_backend(Precision precision) {
  return std::make_unique<Backend>(make_host_device(), make_cpu_ops(precision), make_cpu_math());
}

}  // namespace ddp
