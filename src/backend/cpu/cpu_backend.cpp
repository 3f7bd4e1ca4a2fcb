// The CPU backend: maps specs and layouts to operators and selects kernels by timing.
#include <omp.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>

#include "backend/backend.h"
#include "backend/cpu/lanes_conv.h"
#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/operators.h"
#include "backend/cpu/trial.h"
#include "backend/host_queue.h"
#include "base/overloaded.h"
#include "base/text.h"

namespace ddp {
namespace {

// Timing a candidate with more samples than this gives no new information for small images, nor does more work for
// large ones.
constexpr std::int64_t kTimingBatch = 64;
constexpr double kTimingMultiplyAdds = 1e9;

// The number of samples for timing an operator: whole vectors of lanes for every thread.
std::int64_t timing_batch(const OpSpec& spec) {
  const std::int64_t unit = std::int64_t{kLanes} * omp_get_max_threads();
  const std::int64_t most = std::min(batch_of(spec), kTimingBatch);
  const double per_sample = forward_multiply_adds(spec) / static_cast<double>(batch_of(spec));
  const double enough = kTimingMultiplyAdds / std::max(per_sample, 1.0);
  if (static_cast<double>(most) <= enough) return most;
  return std::min(most, std::max(unit, static_cast<std::int64_t>(enough) / unit * unit));
}

// The estimated time without measurement: memory traffic at 10 GB/s and multiplications at 50 GFLOP/s.
double guessed_seconds(const OpSpec& spec) {
  const auto bytes = static_cast<double>(batch_of(spec) * (input_of(spec).elements() + output_of(spec).elements()) * 8);
  return bytes / 10e9 + 3 * 2 * forward_multiply_adds(spec) / 50e9;
}

// Tries the candidates of one direction, with the others as in `best`, and keeps the fastest. `seconds_of` times a
// choice and may stop early if it takes longer than `least`.
template <class Choice, class Value, class Candidates, class Seconds>
void search(Choice& best, Value Choice::*direction, const Candidates& candidates, double& least, Seconds seconds_of) {
  for (const auto& candidate : candidates) {
    if (best.*direction == candidate) continue;
    Choice choice = best;
    choice.*direction = candidate;
    const double time = seconds_of(choice, least);
    if (time >= least) continue;
    least = time;
    best = choice;
  }
}

// Optimises the directions one after the other, keeping the best of the earlier ones.
KernelChoice choose_lanes_conv(const ConvSpec& spec) {
  Trial trial(spec, Layout::lanes16, Layout::lanes16);
  if (lanes_depthwise_supported(spec)) {
    const auto op = make_lanes_depthwise(spec);
    const double forward = trial.forward_seconds(*op);
    return {kLanesDepthwise, forward + trial.backward_seconds(*op)};
  }
  LanesConvTiles best = lanes_fixed_tiles(spec);
  const auto forward_seconds = [&](const LanesConvTiles& tiles, double least) {
    return trial.forward_seconds(*make_lanes_conv(spec, tiles), least);
  };
  const auto backward_seconds = [&](const LanesConvTiles& tiles, double least) {
    return trial.backward_seconds(*make_lanes_conv(spec, tiles), least);
  };
  double forward = forward_seconds(best, Trial::kNoRival);
  double backward = backward_seconds(best, Trial::kNoRival);
  search(best, &LanesConvTiles::forward, lanes_forward_candidates(spec), forward, forward_seconds);
  search(best, &LanesConvTiles::data, lanes_data_candidates(spec), backward, backward_seconds);
  search(best, &LanesConvTiles::weights, lanes_weights_candidates(spec), backward, backward_seconds);
  return {to_text(best), forward + backward};
}

KernelChoice choose_onednn_conv(const ConvSpec& spec) {
  constexpr std::array kFormats = {"any", "winograd"};
  Trial trial(spec, Layout::nhwc, Layout::nhwc);
  OneDnnConvFormats best;
  // Without a kernel in oneDNN: slower than all others.
  const auto forward_seconds = [&](const OneDnnConvFormats& formats, double least) {
    const auto op = make_onednn_conv(spec, formats);
    return op == nullptr ? Trial::kNoRival : trial.forward_seconds(*op, least);
  };
  const auto backward_seconds = [&](const OneDnnConvFormats& formats, double least) {
    const auto op = make_onednn_conv(spec, formats);
    return op == nullptr ? Trial::kNoRival : trial.backward_seconds(*op, least);
  };
  double forward = forward_seconds(best, Trial::kNoRival);
  double backward = backward_seconds(best, Trial::kNoRival);
  search(best, &OneDnnConvFormats::forward, kFormats, forward, forward_seconds);
  search(best, &OneDnnConvFormats::weights, kFormats, backward, backward_seconds);
  if (spec.input_gradient) search(best, &OneDnnConvFormats::data, kFormats, backward, backward_seconds);
  return {to_text(best), forward + backward};
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

class CpuOps final : public OpFactory {
 public:
  std::string description() const override {
    return fmt::format("CPU ({}, {}), {} per rank", processor_name(), lanes::kernels().instruction_set,
                       counted(static_cast<std::uint64_t>(omp_get_max_threads()), "thread"));
  }

  std::string fingerprint() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("cpu {} {} onednn-{}.{}.{} threads-{}", processor_name(), lanes::kernels().instruction_set,
                       version->major, version->minor, version->patch, omp_get_max_threads());
  }

  std::string arithmetic() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("{} kernels and oneDNN {}.{}.{} for instruction set {:#x}", lanes::kernels().instruction_set,
                       version->major, version->minor, version->patch,
                       static_cast<unsigned>(dnnl_get_effective_cpu_isa()));
  }

  bool supports(const OpSpec& spec, Layout x, Layout y) const override {
    return std::visit(Overloaded{[=](const ConvSpec& s) {
                                   return x == y &&
                                          (x == Layout::nhwc || (x == Layout::lanes16 && lanes_conv_supported(s)));
                                 },
                                 [=](const LinearSpec& /*s*/) { return x == y && x != Layout::nhwc; },
                                 [=](const ChannelsLastSpec& /*s*/) { return x == Layout::nhwc && y == Layout::nhwc; },
                                 [](const ReorderSpec& /*s*/) { return true; },
                                 [=](const OneOf<ActivationSpec, GeluSpec, PoolSpec, BatchNormSpec, AddSpec, LrnSpec,
                                                 DropoutSpec> auto& /*s*/) { return x == y; }},
                      spec);
  }

  KernelChoice choose(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) override {
    DDP_ASSERT(supports(spec, x, y));
    if (mode == ChoiceMode::fixed) return fixed_choice(spec, x, y);
    OpSpec sample = spec;
    std::visit([&](auto& s) { s.batch = timing_batch(spec); }, sample);
    KernelChoice choice;
    if (const auto* conv = std::get_if<ConvSpec>(&sample)) {
      choice = x == Layout::lanes16 ? choose_lanes_conv(*conv) : choose_onednn_conv(*conv);
    } else {
      const auto op = make_op(sample, x, y, "");
      Trial trial(sample, x, y);
      choice.seconds = trial.forward_seconds(*op) + trial.backward_seconds(*op);
    }
    choice.seconds *= static_cast<double>(batch_of(spec)) / static_cast<double>(batch_of(sample));
    return choice;
  }

  std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) override {
    DDP_ASSERT(supports(spec, x, y));
    return std::visit(
        Overloaded{
            [&](const ConvSpec& s) { return make_conv(s, x, kernels); },
            [&](const LinearSpec& s) { return x == Layout::lanes16 ? make_lanes_linear(s) : make_onednn_linear(s); },
            [&](const ActivationSpec& s) { return make_activation(s, x); },
            [&](const GeluSpec& s) { return make_gelu(s, x); }, [&](const PoolSpec& s) { return make_pool(s, x); },
            [&](const BatchNormSpec& s) { return make_batch_norm(s, x); },
            [&](const AddSpec& s) { return make_add(s, x); }, [&](const LrnSpec& s) { return make_lrn(s, x); },
            [&](const DropoutSpec& s) { return make_dropout(s, x); },
            [&](const ReorderSpec& s) { return make_reorder(s, x, y); },
            [&](const ChannelsLastSpec& s) { return make_channels_last(s); }},
        spec);
  }

  void load_input(const InputSpec& spec, const InputArguments& arguments) override { cpu_load_input(spec, arguments); }
  void softmax_cross_entropy(const LossSpec& spec, const LossArguments& arguments) override {
    cpu_softmax_cross_entropy(spec, arguments);
  }

 private:
  static std::unique_ptr<Op> make_conv(const ConvSpec& spec, Layout x, const std::string& kernels) {
    if (x == Layout::lanes16) {
      if (kernels == kLanesDepthwise && lanes_depthwise_supported(spec)) return make_lanes_depthwise(spec);
      return make_lanes_conv(spec, lanes_tiles_from_text(spec, kernels));
    }
    auto op = make_onednn_conv(spec, onednn_formats_from_text(kernels));
    check(op != nullptr, ExitCode::preflight, "oneDNN has no kernel '{}' for this convolution here", kernels);
    return op;
  }

  // Own kernels wherever they support the shape; oneDNN's channels-last otherwise.
  static KernelChoice fixed_choice(const OpSpec& spec, Layout x, Layout y) {
    KernelChoice choice{"", guessed_seconds(spec)};
    if (const auto* conv = std::get_if<ConvSpec>(&spec)) {
      if (x != Layout::lanes16) {
        choice.kernels = to_text(OneDnnConvFormats{});
      } else {
        choice.kernels = lanes_depthwise_supported(*conv) ? kLanesDepthwise : to_text(lanes_fixed_tiles(*conv));
      }
    }
    const bool own = x == Layout::lanes16 && y == Layout::lanes16;
    if (!own) choice.seconds *= 2;
    return choice;
  }
};

class CpuMath final : public FlatMath {
 public:
  void fill_zero(void* device, std::size_t bytes) override {
    if (bytes > 0) std::memset(device, 0, bytes);
  }
  void add(float* sum, const float* addend, std::size_t count) override { cpu_add(sum, addend, count); }
  void add_activations(Activations sum, ConstActivations addend, std::size_t count) override {
    cpu_add(sum.fp32(), addend.fp32(), count);
  }
  void to_bf16(Bf16* to, const float* from, std::size_t count) override { cpu_to_bf16(to, from, count); }
  void from_bf16(float* to, const Bf16* from, std::size_t count) override { cpu_from_bf16(to, from, count); }
  void find_broken(const float* values, std::size_t count, const double* sums, std::size_t sum_count, double* broken,
                   double* square_sum) override {
    const bool finite = std::all_of(sums, sums + sum_count, [](double sum) { return std::isfinite(sum); });
    *square_sum = cpu_square_sum(values, count);
    *broken = finite && std::isfinite(*square_sum) ? 0 : 1;
  }
  void update(const UpdateArguments& arguments) override { cpu_update(arguments); }
};

}  // namespace

std::unique_ptr<OpFactory> make_cpu_ops() {
  // This thread is one of the team; other OpenMP threads may already exist.
#pragma omp parallel
  flush_denormals();
  return std::make_unique<CpuOps>();
}

std::unique_ptr<FlatMath> make_cpu_math() { return std::make_unique<CpuMath>(); }

std::unique_ptr<Backend> make_cpu_backend() {
  return std::make_unique<Backend>(std::make_unique<HostQueue>(), make_cpu_ops(), make_cpu_math());
}

}  // namespace ddp
