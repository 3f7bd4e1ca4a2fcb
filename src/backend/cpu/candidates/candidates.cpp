#include "backend/cpu/candidates/candidates.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/candidates/trial.h"
#include "backend/cpu/conv/amx/amx_kernels.h"
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/depthwise/depthwise.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/linear/linear.h"
#include "backend/cpu/onednn/onednn.h"

namespace ddp {
namespace {

// The estimated time without measurement: memory traffic at 10 GB/s and multiplications at 50 GFLOP/s.
double guessed_seconds(const OpSpec& spec) {
  const auto bytes = static_cast<double>(batch_of(spec) * (input_of(spec).elements() + output_of(spec).elements()) * 8);
  return bytes / 10e9 + 3 * 2 * forward_multiply_adds(spec) / 50e9;
}

// More samples, multiply-adds or activations than these tell no more about which candidate is fastest.
constexpr std::int64_t kTimingBatch = 64;
constexpr double kTimingMultiplyAdds = 2.5e8;
constexpr double kTimingActivations = 4e6;
// Fewer positions of results than these would count the packing of weights, once for all samples, several times.
constexpr std::int64_t kTimingPositions = 4096;

// Times choices of one direction with the other directions as in `best`, and keeps the fastest. `seconds_of` times a
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

ConvSpec without_data_gradient(ConvSpec spec) {
  spec.input_gradient = false;
  return spec;
}

// The directions are searched one after the other. A weight gradient is timed alone; a data gradient only together with
// it, and not at all if it is the same convolution as the forward one. `make` makes the operator of a spec and tiles.
template <class Make>
Candidate fastest_tiles(const ConvSpec& spec, Element element, bool with_amx, Make make,
                        std::string (*text)(const LanesConvTiles&)) {
  Trial trial(spec, Layout::lanes16, Layout::lanes16, element);
  LanesConvTiles best = lanes_fixed_tiles(spec, element);
  const auto forward_seconds = [&](const LanesConvTiles& tiles, double least) {
    return trial.forward_seconds(*make(spec, tiles), least);
  };
  double forward = forward_seconds(best, Trial::kNoRival);
  search(best, &LanesConvTiles::forward, lanes_forward_shortlist(spec, with_amx), forward, forward_seconds);

  const ConvSpec alone = without_data_gradient(spec);
  const auto weights_seconds = [&](const LanesConvTiles& tiles, double least) {
    return trial.backward_seconds(*make(alone, tiles), least);
  };
  double backward = weights_seconds(best, Trial::kNoRival);
  search(best, &LanesConvTiles::weights, lanes_weights_shortlist(spec, element, with_amx), backward, weights_seconds);
  if (!spec.input_gradient) return {text(best), forward + backward};

  const auto backward_seconds = [&](const LanesConvTiles& tiles, double least) {
    return trial.backward_seconds(*make(spec, tiles), least);
  };
  const std::vector<ConvTile> data = lanes_data_shortlist(spec, with_amx);
  const bool same = lanes_data_is_like_forward(spec) && std::find(data.begin(), data.end(), best.forward) != data.end();
  if (same) best.data = best.forward;
  backward = backward_seconds(best, Trial::kNoRival);
  if (!same) search(best, &LanesConvTiles::data, data, backward, backward_seconds);
  return {text(best), forward + backward};
}

Candidate fastest_lanes_conv(const ConvSpec& spec, bool with_amx) {
  if (!lanes_depthwise_supported(spec)) return fastest_tiles(spec, Element::fp32, with_amx, make_lanes_conv, to_text);
  Trial trial(spec, Layout::lanes16, Layout::lanes16);
  const auto op = make_lanes_depthwise(spec);
  const double forward = trial.forward_seconds(*op);
  return {kLanesDepthwise, forward + trial.backward_seconds(*op)};
}

Candidate fastest_onednn_conv(const ConvSpec& spec, Element element = Element::fp32) {
  constexpr std::array kFormats = {"any", "winograd", "linear"};
  Trial trial(spec, Layout::nhwc, Layout::nhwc, element);
  OneDnnConvFormats best;
  const ConvSpec alone = without_data_gradient(spec);
  // Without a kernel in oneDNN: slower than all others.
  const auto forward_seconds = [&](const OneDnnConvFormats& formats, double least) {
    const auto op = make_onednn_conv(alone, formats, element);
    return op == nullptr ? Trial::kNoRival : trial.forward_seconds(*op, least);
  };
  const auto weights_seconds = [&](const OneDnnConvFormats& formats, double least) {
    const auto op = make_onednn_conv(alone, formats, element);
    return op == nullptr ? Trial::kNoRival : trial.backward_seconds(*op, least);
  };
  const auto backward_seconds = [&](const OneDnnConvFormats& formats, double least) {
    const auto op = make_onednn_conv(spec, formats, element);
    return op == nullptr ? Trial::kNoRival : trial.backward_seconds(*op, least);
  };
  double forward = forward_seconds(best, Trial::kNoRival);
  search(best, &OneDnnConvFormats::forward, kFormats, forward, forward_seconds);
  double backward = weights_seconds(best, Trial::kNoRival);
  search(best, &OneDnnConvFormats::weights, kFormats, backward, weights_seconds);
  if (spec.input_gradient) {
    backward = backward_seconds(best, Trial::kNoRival);
    search(best, &OneDnnConvFormats::data, kFormats, backward, backward_seconds);
  }
  return {to_text(best, element), forward + backward};
}

// For a convolution in nhwc (oneDNN, for depthwise ones also our own) or lanes16 (our own kernels, for tf32 also those with AMX).
Candidate fastest_conv(const ConvSpec& spec, Layout layout, bool with_amx) {
  if (layout == Layout::lanes16) return fastest_lanes_conv(spec, with_amx);
  Candidate onednn = fastest_onednn_conv(spec);
  if (!nhwc_depthwise_supported(spec)) return onednn;
  Trial trial(spec, layout, layout);
  const auto op = make_nhwc_depthwise(spec);
  const double forward = trial.forward_seconds(*op, *onednn.seconds);
  const double seconds = forward + trial.backward_seconds(*op, *onednn.seconds);
  return seconds < *onednn.seconds ? Candidate{kNhwcDepthwise, seconds} : onednn;
}

// For a convolution in lanes16 on bf16 activations, with products of pairs, also with AMX where it is used.
Candidate fastest_bf16_conv(const ConvSpec& spec) {
  return fastest_tiles(with_long_rows(spec), Element::bf16, lanes::uses_amx(), make_lanes_bf16_conv, bf16_text);
}

// Whether products of pairs are clearly faster than those of floats, by a small convolution that is timed once. Some
// processors multiply pairs at half the rate; kernels for floats, between conversions, are candidates there.
bool pairs_are_faster() {
  static const bool faster = [] {
    constexpr double kWorthwhile = 0.8;
    const ConvSpec spec{.batch = kLanes,
                        .input = {32, 14, 14},
                        .output_channels = 32,
                        .window = {.height = 3, .width = 3, .padding = {1, 1, 1, 1}},
                        .bias = false,
                        .input_gradient = false};
    const auto seconds = [&](Element element, auto make) {
      return Trial(spec, Layout::lanes16, Layout::lanes16, element)
          .forward_seconds(*make(spec, lanes_fixed_tiles(spec, element)));
    };
    return seconds(Element::bf16, make_lanes_bf16_conv) < kWorthwhile * seconds(Element::fp32, make_lanes_conv);
  }();
  return faster;
}

}  // namespace

// A linear layer as a convolution of single pixels.
ConvSpec conv_of(const LinearSpec& spec) {
  return {.batch = spec.batch,
          .input = {spec.inputs, 1, 1},
          .output_channels = spec.outputs,
          .bias = spec.bias,
          .relu = spec.relu,
          .input_gradient = spec.input_gradient};
}

OpSpec cpu_timed_spec(const OpSpec& spec) {
  const std::int64_t unit = kLanes * omp_get_max_threads();
  const std::int64_t most = std::min(batch_of(spec), kTimingBatch);
  const auto batch = static_cast<double>(batch_of(spec));
  const double activations = static_cast<double>(std::max(input_of(spec).elements(), output_of(spec).elements()));
  const double enough = std::min(kTimingMultiplyAdds * batch / std::max(forward_multiply_adds(spec), 1.0),
                                 kTimingActivations / std::max(activations, 1.0));
  OpSpec timed = spec;
  if (static_cast<double>(most) > enough) {
    const std::int64_t positions = std::max<std::int64_t>(1, output_of(spec).height * output_of(spec).width);
    const std::int64_t least = round_up((kTimingPositions + positions - 1) / positions, unit);
    const std::int64_t samples = std::min(most, std::max(least, static_cast<std::int64_t>(enough) / unit * unit));
    std::visit([&](auto& s) { s.batch = samples; }, timed);
  } else {
    std::visit([&](auto& s) { s.batch = most; }, timed);
  }
  return timed;
}

CpuCandidates::CpuCandidates(Precision precision) : precision_(precision), element_(element_of(precision)) {}

OpSpec CpuCandidates::timed_spec(const OpSpec& spec) const { return cpu_timed_spec(spec); }

bool CpuCandidates::joins_chosen(const OpSpec& spec) const {
  const auto* conv = std::get_if<ConvSpec>(&spec);
  return conv != nullptr && !lanes_depthwise_supported(*conv);
}

// Blocks of samples of two convolutions are faster than whole batches only with kernels that are chosen for them.
bool CpuCandidates::expects_gain(std::span<const OpSpec> specs) const {
  return !std::holds_alternative<ConvSpec>(specs[0]);
}

double CpuCandidates::seconds(std::span<const OpSpec> specs, Layout x, Layout y, Op& op) {
  Trial trial(specs, x, y, element_);
  const double forward = trial.forward_seconds(op);
  return forward + trial.backward_seconds(op);
}

std::vector<Candidate> CpuCandidates::list(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) {
  if (mode != ChoiceMode::timed) return {by_rule(spec, x, y, mode == ChoiceMode::expected)};
  return timed(spec, x);
}

std::vector<Candidate> CpuCandidates::timed(const OpSpec& spec, Layout x) const {
  const auto* conv = std::get_if<ConvSpec>(&spec);
  const auto* linear = std::get_if<LinearSpec>(&spec);
  std::vector<Candidate> candidates;
  const bool pairs = conv != nullptr && takes_pairs(*conv, x);
  if (pairs) candidates.push_back(fastest_bf16_conv(*conv));
  if (!pairs || !pairs_are_faster()) candidates.push_back(on_floats(spec, x));
  if (linear != nullptr && x == Layout::lanes16) add_linear(candidates, *linear);
  if (conv != nullptr && element_ == Element::bf16 && x == Layout::nhwc &&
      make_onednn_conv(*conv, {}, Element::bf16) != nullptr) {
    candidates.push_back(fastest_onednn_conv(*conv, Element::bf16));
  }
  return candidates;
}

// In bf16 and fp16 these are searched without the conversions around them, which count as well.
Candidate CpuCandidates::on_floats(const OpSpec& spec, Layout x) const {
  const auto* conv = std::get_if<ConvSpec>(&spec);
  if (conv == nullptr) return {""};
  Candidate found = fastest_conv(*conv, x, takes_tf32());
  if (element_ != Element::fp32) found.seconds.reset();
  return found;
}

// A linear layer in lanes16 by kernels that multiply bf16 numbers.
void CpuCandidates::add_linear(std::vector<Candidate>& candidates, const LinearSpec& spec) const {
  if (element_ == Element::bf16 && lanes::uses_pairs()) candidates.push_back({kLanesBf16Linear});
  if (takes_tf32()) {
    candidates.push_back(fastest_conv(conv_of(spec), Layout::lanes16, true));
  } else if (multiplies_by_amx()) {
    candidates.push_back(fastest_bf16_conv(conv_of(spec)));
  }
}

// Own kernels wherever they support the shape; oneDNN's channels-last otherwise.
Candidate CpuCandidates::by_rule(const OpSpec& spec, Layout x, Layout y, bool expected) const {
  const bool own = x == Layout::lanes16 && y == Layout::lanes16;
  Candidate candidate{"", (own ? 1 : 2) * guessed_seconds(spec)};
  if (const auto* conv = std::get_if<ConvSpec>(&spec)) {
    candidate.kernels = x == Layout::lanes16 ? lanes_kernels_by_rule(*conv, expected) : to_text(OneDnnConvFormats{});
  }
  const auto* linear = std::get_if<LinearSpec>(&spec);
  if (expected && linear != nullptr && x == Layout::lanes16) candidate.kernels = linear_kernels_by_rule(*linear);
  return candidate;
}

std::string CpuCandidates::lanes_kernels_by_rule(const ConvSpec& conv, bool expected) const {
  if (takes_pairs(conv, Layout::lanes16)) {
    const ConvSpec rows = with_long_rows(conv);
    return bf16_text(expected ? lanes_expected_tiles(rows, Element::bf16, lanes::uses_amx())
                              : lanes_fixed_tiles(rows, Element::bf16));
  }
  if (lanes_depthwise_supported(conv)) return kLanesDepthwise;
  return to_text(expected ? lanes_expected_tiles(conv, Element::fp32, takes_tf32()) : lanes_fixed_tiles(conv));
}

// Kernels that multiply bf16 numbers where there are any.
std::string CpuCandidates::linear_kernels_by_rule(const LinearSpec& linear) const {
  if (multiplies_by_amx()) return lanes_kernels_by_rule(conv_of(linear), true);
  return element_ == Element::bf16 && lanes::uses_pairs() ? kLanesBf16Linear : "";
}

// Whether a convolution multiplies pairs of bf16 numbers.
bool CpuCandidates::takes_pairs(const ConvSpec& spec, Layout x) const {
  return element_ == Element::bf16 && lanes::uses_pairs() && x == Layout::lanes16 && !lanes_depthwise_supported(spec);
}

bool CpuCandidates::multiplies_by_amx() const {
  return takes_tf32() || (precision_ == Precision::bf16 && lanes::uses_amx());
}

bool CpuCandidates::takes_tf32() const { return precision_ == Precision::tf32 && lanes::uses_amx(); }

}  // namespace ddp
