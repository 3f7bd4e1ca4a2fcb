#include "optim/optimizer.h"

#include <limits>
#include <utility>

#include "base/error.h"

namespace ddp {
namespace {

// Whether an update keeps a weight of 0 without gradient and state at 0; without an epsilon some rules divide 0 by 0.
bool keeps_zeros(const UpdateSettings& settings) {
  return settings.rule == UpdateRule::sgd || static_cast<float>(settings.epsilon) >= std::numeric_limits<float>::min();
}

}  // namespace

Optimizer::Optimizer(Backend& backend, std::span<const ParameterSegment> segments, const UpdateSettings& settings,
                     UpdatedPart part, Memory state)
    : backend_(backend), part_(part), state_(std::move(state)) {
  const UpdateTables tables = cut_into_chunks(segments);
  UpdateArguments& a = arguments_;
  a.settings = settings;
  if (!tables.matrices.empty()) {
    matrices_ = backend.ops().make_matrix_update(tables.matrices);
    matrix_scratch_ = backend.memory().allocate(matrices_->scratch_bytes(), "the buffers of Muon's iteration");
    a.matrices = matrices_.get();
    a.matrix_scratch = matrix_scratch_.data();
  }
  a.count = segments.empty() ? 0 : segments.back().offset + segments.back().count;
  a.uniform = tables.uniform && !part.shared && (!tables.gaps || keeps_zeros(settings));
  a.lr_scale = segments.empty() ? 1 : segments.front().lr_scale;
  a.decay_scale = segments.empty() ? 1 : segments.front().decay_scale;

  if (part_.elements == 0) part_.elements = a.count;
  DDP_ASSERT(part_.begin + a.count <= part_.elements);
  const std::size_t bytes_of_state = state_bytes(elements(), settings);
  if (state_.data() == nullptr) state_ = backend.memory().allocate(bytes_of_state, "the optimizer's buffers");
  DDP_ASSERT(state_.bytes() == bytes_of_state);
  const std::size_t each = aligned_bytes(elements() * sizeof(float));
  std::size_t used = 0;
  const auto take_state = [&] { return state_.at<float>(each * used++) + part_.begin; };
  if (settings.has_first()) a.first = take_state();
  if (settings.has_second()) a.second = take_state();
  if (settings.has_average()) a.average = take_state();

  const std::size_t chunk_bytes = tables.chunks.size() * sizeof(UpdateChunk);
  const std::size_t segment_bytes = tables.segments.size() * sizeof(ChunksOfSegment);
  const std::size_t sum_bytes = 2 * tables.chunks.size() * sizeof(double);
  const std::size_t ratio_bytes = tables.segments.size() * sizeof(double);
  std::size_t bytes = 0;
  const auto place = [&bytes](std::size_t size) {
    const std::size_t at = bytes;
    bytes += aligned_bytes(size);
    return at;
  };
  const std::size_t numbers_at = place(sizeof(StepNumbers));
  const std::size_t chunks_at = place(chunk_bytes);
  const std::size_t segments_at = place(segment_bytes);
  const std::size_t sums_at = place(sum_bytes);
  const std::size_t ratios_at = place(ratio_bytes);
  tables_ = backend.memory().allocate(bytes, "the optimizer's tables");
  a.numbers = tables_.at<StepNumbers>(numbers_at);
  a.chunks = tables_.at<UpdateChunk>(chunks_at);
  a.chunk_count = static_cast<std::int64_t>(tables.chunks.size());
  a.segments = tables_.at<ChunksOfSegment>(segments_at);
  a.segment_count = static_cast<std::int64_t>(tables.segments.size());
  a.sums = tables_.at<double>(sums_at);
  a.ratios = tables_.at<double>(ratios_at);
  backend.queue().upload(tables_.data() + chunks_at, tables.chunks.data(), chunk_bytes);
  backend.queue().upload(tables_.data() + segments_at, tables.segments.data(), segment_bytes);
  backend.queue().synchronize();
}

void Optimizer::update(float* parameters, const float* gradient, const StepControl* control, const double* skip) {
  UpdateArguments arguments = arguments_;
  arguments.weights = parameters;
  arguments.gradient = gradient;
  arguments.control = control;
  arguments.skip = skip;
  if (sums_over_ranks_) arguments.sums_over_ranks = &sums_over_ranks_;
  if (sum_over_parts_) arguments.sum_over_parts = &sum_over_parts_;
  backend_.math().update(arguments);
}

std::vector<OptimizerState> Optimizer::state() {
  const bool moments = arguments_.settings.has_moments();
  std::vector<OptimizerState> state;
  const auto add = [&](const char* name, float* values) {
    float* const whole = values == nullptr ? nullptr : values - part_.begin;
    if (whole != nullptr) state.push_back({name, whole});
  };
  add(moments ? "exp_avg" : "momentum", arguments_.first);
  add(moments ? "exp_avg_sq" : "square_avg", arguments_.second);
  add("ema", arguments_.average);
  return state;
}

std::size_t state_buffers(const UpdateSettings& settings) {
  return (settings.has_first() ? 1U : 0U) + (settings.has_second() ? 1U : 0U) + (settings.has_average() ? 1U : 0U);
}

std::size_t state_bytes(std::size_t elements, const UpdateSettings& settings) {
  return state_buffers(settings) * aligned_bytes(elements * sizeof(float));
}

UpdateSettings update_settings(const OptimizerOptions& options) {
  UpdateSettings settings;
  settings.rule = options.optimizer;
  settings.momentum = options.one_cycle_momentum ? options.one_cycle_high_momentum : options.momentum;
  settings.nesterov = options.nesterov;
  settings.weight_decay = options.weight_decay;
  settings.decoupled = options.decay == DecayKind::decoupled;
  settings.beta1 = options.beta1;
  settings.beta2 = options.beta2;
  settings.epsilon = options.epsilon;
  settings.rho = options.rho;
  settings.keras = options.rmsprop_form == RmspropForm::keras;
  settings.trust = options.lars_trust;
  settings.muon_momentum = options.muon_momentum;
  settings.muon_steps = static_cast<int>(options.muon_steps);
  settings.muon_scale = options.muon_scale;
  settings.muon_normalizes = options.muon_normalize;
  settings.clip_norm = options.clip_norm;
  settings.clip_value = options.clip_value;
  settings.average_decay = options.ema_decay;
  settings.average_warmup = options.ema_warmup;
  return settings;
}

}  // namespace ddp
