// The CPU backend: maps specs and layouts to operators and selects kernels.
#include <omp.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>

#include "backend/backend.h"
#include "backend/cpu/candidates/candidates.h"
#include "backend/cpu/conv/amx/amx_kernels.h"
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/depthwise/depthwise.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/ends/ends.h"
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

// The estimated time without measurement: memory traffic at 10 GB/s and multiplications at 50 GFLOP/s.
double guessed_seconds(const OpSpec& spec) {
  const auto bytes = static_cast<double>(batch_of(spec) * (input_of(spec).elements() + output_of(spec).elements()) * 8);
  return bytes / 10e9 + 3 * 2 * forward_multiply_adds(spec) / 50e9;
}

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

// A linear layer as a convolution of single pixels.
ConvSpec conv_of(const LinearSpec& spec) {
  return {.batch = spec.batch,
          .input = {spec.inputs, 1, 1},
          .output_channels = spec.outputs,
          .bias = spec.bias,
          .relu = spec.relu,
          .input_gradient = spec.input_gradient};
}

class CpuOps final : public OpFactory {
 public:
  explicit CpuOps(Precision precision) : precision_(precision) {}

  std::string description() const override {
    return fmt::format("CPU ({}, {}{}{}), {} per rank", processor_name(), lanes::instruction_set_name(),
                       emulation_note(precision_), tiles_of(precision_),
                       counted(static_cast<std::uint64_t>(omp_get_max_threads()), "thread"));
  }

  std::string fingerprint() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("cpu {} {}{}{} onednn-{}.{}.{} isa-{:#x} threads-{} kernels-{}", processor_name(),
                       lanes::instruction_set_name(), emulation_note(precision_), tiles_of(precision_), version->major,
                       version->minor, version->patch, static_cast<unsigned>(dnnl_get_effective_cpu_isa()),
                       omp_get_max_threads(), cpu_source_hash());
  }

  std::string arithmetic() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("{} kernels{}{} and oneDNN {}.{}.{} for instruction set {:#x}", lanes::instruction_set_name(),
                       emulation_note(precision_), tiles_of(precision_), version->major, version->minor, version->patch,
                       static_cast<unsigned>(dnnl_get_effective_cpu_isa()));
  }

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
            [=](const OneOf<ActivationSpec, GeluSpec, PointwiseSpec, PreluSpec, ProductSpec, ConcatSpec,
                            ChannelSelectSpec, PoolSpec, PadSpec, BatchNormSpec, SampleNormSpec, AddSpec, LrnSpec,
                            DropoutSpec> auto& /*s*/) { return x == y; }},
        spec);
  }

  OpSpec timed_spec(const OpSpec& spec) const override { return cpu_timed_spec(spec); }

  KernelChoice choose(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) override {
    DDP_ASSERT(supports(spec, x, y));
    if (mode != ChoiceMode::timed) return choice_by_rule(spec, x, y, mode);
    const OpSpec sample = timed_spec(spec);
    // Joined operators ask again for the kernels of each.
    const auto [found, is_new] =
        timed_.try_emplace(fmt::format("{} {} {}", describe(sample), to_string(x), to_string(y)));
    if (is_new) found->second = fastest(sample, x, y);
    KernelChoice choice = found->second;
    choice.seconds *= static_cast<double>(batch_of(spec)) / static_cast<double>(batch_of(sample));
    return choice;
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
    if (activation_element() == Element::fp32) return make_fp32_op(spec, x, y, kernels);
    if (activation_element() == Element::bf16) {
      if (auto op = make_own_bf16_op(spec, x, kernels)) return op;
    }
    return make_half_op(make_fp32_op(spec, x, y, kernels), spec, x, y, activation_element());
  }

  std::unique_ptr<MatrixUpdate> make_matrix_update(std::span<const UpdateMatrix> matrices) override {
    return make_cpu_matrix_update(matrices);
  }

  std::unique_ptr<Op> join(std::span<const OpSpec> specs, Layout layout,
                           std::span<const std::string> kernels) override {
    const bool own =
        activation_element() == Element::fp32 || (activation_element() == Element::bf16 && lanes::uses_pairs());
    if (specs.size() != 3 || layout != Layout::lanes16 || !own) return nullptr;
    const auto* conv = std::get_if<ConvSpec>(&specs[1]);
    const auto* before = std::get_if<BatchNormSpec>(specs.data());
    const auto* after = std::get_if<BatchNormSpec>(&specs[2]);
    if (conv != nullptr && before != nullptr && after != nullptr) {
      return make_norm_depthwise(*before, *conv, *after, activation_element());
    }
    const auto* first = std::get_if<ConvSpec>(specs.data());
    const auto* norm = std::get_if<BatchNormSpec>(&specs[1]);
    const auto* second = std::get_if<ConvSpec>(&specs[2]);
    if (first == nullptr || norm == nullptr || second == nullptr) return nullptr;
    auto first_op = make_block_conv(*first, kernels.empty() ? "" : kernels[0]);
    auto second_op = make_block_conv(*second, kernels.empty() ? "" : kernels[2]);
    if (first_op == nullptr || second_op == nullptr) return nullptr;
    return make_conv_norm_conv(std::move(first_op), *norm, std::move(second_op), activation_element());
  }

  // Blocks of samples of two convolutions are faster than whole batches only with kernels that are chosen for them.
  bool expects_gain(std::span<const OpSpec> specs) const override {
    return !std::holds_alternative<ConvSpec>(specs[0]);
  }

  double joined_seconds(std::span<const OpSpec> specs, Layout layout) override {
    const std::int64_t samples = batch_of(timed_spec(specs[0]));
    std::vector<OpSpec> timed(specs.begin(), specs.end());
    std::vector<std::string> kernels;
    for (OpSpec& spec : timed) {
      std::visit([&](auto& s) { s.batch = samples; }, spec);
      const auto* conv = std::get_if<ConvSpec>(&spec);
      const bool chosen = conv != nullptr && !lanes_depthwise_supported(*conv);
      kernels.push_back(chosen ? choose(spec, layout, layout, ChoiceMode::timed).kernels : "");
    }
    const auto op = join(timed, layout, kernels);
    if (op == nullptr) return std::numeric_limits<double>::infinity();
    return only_kernels(timed, layout, layout, *op, activation_element()).seconds *
           static_cast<double>(batch_of(specs[0])) / static_cast<double>(samples);
  }

  Element activation_element() const override { return element_of(precision_); }

  void load_input(const InputSpec& spec, const InputArguments& arguments) override { cpu_load_input(spec, arguments); }
  void softmax_cross_entropy(const LossSpec& spec, const LossArguments& arguments) override {
    cpu_softmax_cross_entropy(spec, arguments);
  }

 private:
  std::unique_ptr<Op> make_fp32_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) const {
    return std::visit(Overloaded{[&](const ConvSpec& s) { return make_conv(s, x, kernels); },
                                 [&](const ConvTransposeSpec& s) { return make_onednn_conv_transpose(s); },
                                 [&](const PadSpec& s) { return make_pad(s, x); },
                                 [&](const LinearSpec& s) { return make_linear(s, x, kernels); },
                                 [&](const ActivationSpec& s) { return make_activation(s, x, Element::fp32); },
                                 [&](const GeluSpec& s) { return make_gelu(s, x); },
                                 [&](const PointwiseSpec& s) { return make_pointwise(s, x); },
                                 [&](const ProductSpec& s) { return make_product(s, x); },
                                 [&](const ConcatSpec& s) { return make_concat(s, x); },
                                 [&](const ChannelSelectSpec& s) { return make_channel_select(s, x); },
                                 [&](const PoolSpec& s) { return make_pool(s, x, Element::fp32); },
                                 [&](const BatchNormSpec& s) { return make_batch_norm(s, x, Element::fp32); },
                                 [&](const PreluSpec& s) { return make_prelu(s, x); },
                                 [&](const SampleNormSpec& s) { return make_sample_norm(s, x); },
                                 [&](const AddSpec& s) { return make_add(s, x, Element::fp32); },
                                 [&](const LrnSpec& s) { return make_lrn(s, x); },
                                 [&](const DropoutSpec& s) { return make_dropout(s, x); },
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
        Overloaded{
            [&](const ConvSpec& s) {
              if (is_onednn_bf16_text(kernels)) return make_onednn(s, kernels, kBf16);
              const bool own = kernels == kLanesDepthwise && lanes::uses_pairs() && x == Layout::lanes16 &&
                               lanes_depthwise_supported(s);
              return own ? make_lanes_bf16_depthwise(s) : nullptr;
            },
            [&](const ActivationSpec& s) { return make_activation(s, x, kBf16); },
            [&](const PoolSpec& s) { return make_pool(s, x, kBf16); },
            [&](const BatchNormSpec& s) { return make_batch_norm(s, x, kBf16); },
            [&](const AddSpec& s) { return make_add(s, x, kBf16); },
            [&](const ConcatSpec& s) { return make_concat(s, x); },
            [&](const ChannelSelectSpec& s) { return make_channel_select(s, x); },
            [](const OneOf<ConvTransposeSpec, PadSpec, LinearSpec, GeluSpec, PointwiseSpec, PreluSpec, ProductSpec,
                           SampleNormSpec, LrnSpec, DropoutSpec, ReorderSpec, ChannelsLastSpec> auto& /*s*/) {
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
      return make_lanes_conv(spec, lanes_tiles_from_text(spec, kernels, takes_tf32()));
    }
    if (kernels == kNhwcDepthwise && nhwc_depthwise_supported(spec)) return make_nhwc_depthwise(spec);
    return make_onednn(spec, kernels, Element::fp32);
  }
  static std::unique_ptr<Op> make_onednn(const ConvSpec& spec, const std::string& kernels, Element element) {
    auto op = make_onednn_conv(spec, onednn_formats_from_text(kernels), element);
    check(op != nullptr, ExitCode::preflight, "oneDNN has no kernel '{}' for this convolution here", kernels);
    return op;
  }

  // Whether a convolution multiplies pairs of bf16 numbers.
  bool takes_pairs(const ConvSpec& spec, Layout x) const {
    return activation_element() == Element::bf16 && lanes::uses_pairs() && x == Layout::lanes16 &&
           !lanes_depthwise_supported(spec);
  }

  // The fastest kernels, by timing.
  KernelChoice fastest(const OpSpec& sample, Layout x, Layout y) {
    const auto* conv = std::get_if<ConvSpec>(&sample);
    KernelChoice choice;
    if (conv != nullptr && takes_pairs(*conv, x)) {
      choice = fastest_bf16_conv(*conv);
      if (!pairs_are_faster()) {
        KernelChoice floats = fastest_fp32(sample, x, y);
        if (floats.seconds < choice.seconds) choice = std::move(floats);
      }
    } else {
      choice = fastest_fp32(sample, x, y);
    }
    if (const auto* linear = std::get_if<LinearSpec>(&sample); linear != nullptr && x == Layout::lanes16) {
      choice = faster_linear(*linear, std::move(choice));
    }
    if (conv != nullptr && activation_element() == Element::bf16 && x == Layout::nhwc) {
      const auto bf16 = fastest_onednn_bf16_conv(*conv);
      if (bf16 && bf16->seconds < choice.seconds) choice = *bf16;
    }
    return choice;
  }

  // Own kernels of a convolution in lanes16, those of the rule if none are named; null if they are not for its blocks.
  std::unique_ptr<BlockConv> make_block_conv(const ConvSpec& spec, const std::string& kernels) const {
    if (!supports(spec, Layout::lanes16, Layout::lanes16)) return nullptr;
    const std::string used = kernels.empty() ? lanes_kernels_by_rule(spec, false) : kernels;
    const bool bf16 = activation_element() == Element::bf16;
    if (used == kLanesDepthwise || is_bf16_text(used) != bf16) return nullptr;
    if (!bf16) return make_lanes_conv(spec, lanes_tiles_from_text(spec, used, takes_tf32()));
    const ConvSpec long_rows = with_long_rows(spec);
    return make_lanes_bf16_conv(long_rows, bf16_tiles_from_text(long_rows, used));
  }

  // Kernels on floats. In bf16 and fp16 they are searched without the conversions around them, which count as well.
  KernelChoice fastest_fp32(const OpSpec& spec, Layout x, Layout y) {
    const auto* conv = std::get_if<ConvSpec>(&spec);
    KernelChoice choice;
    if (conv != nullptr) choice = fastest_conv(*conv, x, takes_tf32());
    if (conv == nullptr || activation_element() != Element::fp32) {
      choice.seconds =
          only_kernels({&spec, 1}, x, y, *make_op(spec, x, y, choice.kernels), activation_element()).seconds;
    }
    return choice;
  }

  // A linear layer in lanes16: the choice so far, or kernels that multiply bf16 numbers.
  KernelChoice faster_linear(const LinearSpec& spec, KernelChoice choice) const {
    const auto compare = [&](KernelChoice other) {
      if (other.seconds < choice.seconds) choice = std::move(other);
    };
    if (activation_element() == Element::bf16 && lanes::uses_pairs()) {
      const OpSpec timed = spec;
      const auto op = make_lanes_bf16_linear(spec);
      compare(
          {kLanesBf16Linear, only_kernels({&timed, 1}, Layout::lanes16, Layout::lanes16, *op, Element::bf16).seconds});
    }
    if (multiplies_by_amx()) {
      compare(takes_tf32() ? fastest_conv(conv_of(spec), Layout::lanes16, true) : fastest_bf16_conv(conv_of(spec)));
    }
    return choice;
  }
  bool multiplies_by_amx() const { return takes_tf32() || (precision_ == Precision::bf16 && lanes::uses_amx()); }
  // Whether tiles with AMX may compute on floats.
  bool takes_tf32() const { return precision_ == Precision::tf32 && lanes::uses_amx(); }

  // Own kernels wherever they support the shape; oneDNN's channels-last otherwise.
  KernelChoice choice_by_rule(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) const {
    KernelChoice choice{"", guessed_seconds(spec)};
    const bool expected = mode == ChoiceMode::expected;
    if (const auto* conv = std::get_if<ConvSpec>(&spec)) {
      choice.kernels = x == Layout::lanes16 ? lanes_kernels_by_rule(*conv, expected) : to_text(OneDnnConvFormats{});
    }
    const auto* linear = std::get_if<LinearSpec>(&spec);
    if (expected && linear != nullptr && x == Layout::lanes16) choice.kernels = linear_kernels_by_rule(*linear);
    const bool own = x == Layout::lanes16 && y == Layout::lanes16;
    if (!own) choice.seconds *= 2;
    return choice;
  }
  std::string lanes_kernels_by_rule(const ConvSpec& conv, bool expected) const {
    if (takes_pairs(conv, Layout::lanes16)) {
      const ConvSpec rows = with_long_rows(conv);
      return bf16_text(expected ? lanes_expected_tiles(rows, Element::bf16, lanes::uses_amx())
                                : lanes_fixed_tiles(rows, Element::bf16));
    }
    if (lanes_depthwise_supported(conv)) return kLanesDepthwise;
    return to_text(expected ? lanes_expected_tiles(conv, Element::fp32, takes_tf32()) : lanes_fixed_tiles(conv));
  }
  // Kernels that multiply bf16 numbers where there are any.
  std::string linear_kernels_by_rule(const LinearSpec& linear) const {
    if (multiplies_by_amx()) return lanes_kernels_by_rule(conv_of(linear), true);
    return activation_element() == Element::bf16 && lanes::uses_pairs() ? kLanesBf16Linear : "";
  }

  Precision precision_;
  std::map<std::string, KernelChoice> timed_;  // by spec and layouts
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
