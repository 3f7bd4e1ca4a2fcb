#include "train/step.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/heartbeat.h"
#include "base/position.h"

namespace ddp {
namespace {

constexpr std::size_t kHashedFloats = 1024;
constexpr std::uint64_t kLow32 = 0xFFFFFFFF;

Range last_of(std::size_t elements) {
  const auto end = static_cast<std::int64_t>(elements);
  return {std::max<std::int64_t>(0, end - static_cast<std::int64_t>(kHashedFloats)), end};
}

// Whose squares a rank adds to the gradient norm. The replicas of a pipeline have the same gradients.
std::vector<Range> counted_ranges(const StepParts& parts, int rank) {
  const bool divided = parts.slices != nullptr && parts.slices->any();
  if (divided && rank != 0) return parts.slices->held();
  if (parts.pipeline != nullptr && rank != 0) return {};
  return {{0, parts.network.flat_elements()}};
}

std::size_t bytes_of(const Range& floats) { return static_cast<std::size_t>(floats.size()) * sizeof(float); }

}  // namespace

SumOverShards sums_in_rank_order(Communicator* ranks) {
  if (ranks == nullptr) return {};
  return [ranks](std::span<double> values) { ranks->all_reduce(values, ReduceOp::sum); };
}

TrainStep::TrainStep(const StepParts& parts, BatchPlan plan, int rank, bool record)
    : backend_(parts.backend),
      network_(parts.network),
      reducer_(parts.reducer),
      optimizer_(parts.optimizer),
      stage_(parts.stage),
      clock_(parts.clock),
      statistics_(parts.statistics),
      plan_(std::move(plan)),
      rank_(rank),
      elements_(static_cast<std::size_t>(network_.flat_elements())),
      held_(parts.slices == nullptr ? std::vector<Range>() : parts.slices->held()),
      counted_(counted_ranges(parts, rank)),
      message_bytes_(squares_at() + squares_count() * sizeof(double)),
      hashed_(held_.empty() ? last_of(elements_) : parts.slices->last_weights(kHashedFloats)),
      hashed_statistics_(statistics_ == nullptr ? 0 : std::min(statistics_->count(), kHashedFloats)),
      fingerprints_(parts.fingerprints),
      sums_(parts.sums),
      exchange_(parts.exchange),
      pipeline_(parts.pipeline),
      joint_squares_(pipeline_ != nullptr || !held_.empty()),
      record_(record && reducer_.recordable() && pipeline_ == nullptr) {
  message_ = backend_.queue().allocate(message_bytes_, "the messages of a step");
  host_message_ = backend_.queue().allocate_for_transfer(sample_at(1) + hashed_statistics_ * sizeof(float),
                                                         "the messages of a step");
}

// Where the host has the weights (0) and the running statistics (1) that are hashed.
std::size_t TrainStep::sample_at(std::size_t which) const {
  return aligned_bytes(message_bytes_) + (which == 0 ? 0 : aligned_bytes(bytes_of(hashed_)));
}

// Each sample contributes 32 bits that depend on its position in the global batch, so that the sums over the ranks are
// exact in doubles.
void TrainStep::hash_batch(const Batch& batch, std::int64_t samples) {
  const std::int64_t first = plan_.rank_samples(rank_, samples).begin;
  const std::size_t bytes = batch.count == 0 ? 0 : batch.pixels.size() / static_cast<std::size_t>(batch.count);
  std::uint64_t indices = 0;
  std::uint64_t pixels = 0;
  for (std::int64_t i = 0; i < std::ssize(batch.indices); ++i) {
    const auto place = static_cast<std::size_t>(i);
    const std::array<std::uint64_t, 2> key = {static_cast<std::uint64_t>(first + i), batch.indices[place]};
    const XXH64_hash_t hash = XXH3_64bits(key.data(), sizeof key);
    indices += hash & kLow32;
    if (bytes > 0) pixels += XXH3_64bits_withSeed(&batch.pixels[place * bytes], bytes, hash) & kLow32;
  }
  host(Slot::sample_hash) = static_cast<double>(indices);
  host(Slot::pixel_hash) = static_cast<double>(pixels);
}

// Some values of the step's result, for StepHashes: the last weights, which every other weight influences within a step.
void TrainStep::enqueue_fingerprint(const float* parameters) {
  backend_.queue().download(host_message_.data() + sample_at(0), parameters + hashed_.begin, bytes_of(hashed_));
  if (hashed_statistics_ == 0) return;
  backend_.queue().download(host_message_.data() + sample_at(1), statistics_->of_shard(plan_.shards_of(rank_).begin),
                            hashed_statistics_ * sizeof(float));
}

// Over the ranks: of a pipeline all, whichever part they have.
void TrainStep::sum_message(double* values, std::size_t count) {
  if (pipeline_ == nullptr) {
    reducer_.sum(values, count);
  } else {
    pipeline_->sum_message({values, count});
  }
}

// Of the whole gradient. If some of it is divided, rank 0 counts all that it has, with zeros for the parts of others, and
// the others count their parts.
void TrainStep::enqueue_square_sums() {
  auto* sums = message_.at<double>(squares_at());
  if (joint_squares_) backend_.math().fill_zero(sums, squares_count() * sizeof(double));
  for (const Range& range : counted_) {
    backend_.math().square_sums(reducer_.gradient() + range.begin, static_cast<std::size_t>(range.size()), sums);
    sums += kSquareSums;
  }
  if (joint_squares_) sum_message(message_.at<double>(squares_at()), squares_count());
}

// The shards that the ranks process at the same time exchange activations.
void TrainStep::set_exchange(std::int64_t round, std::int64_t samples) {
  if (exchange_ == nullptr) return;
  for (std::size_t rank = 0; rank < exchange_->samples.size(); ++rank) {
    const std::int64_t shard = plan_.shards_of(static_cast<int>(rank)).begin + round;
    exchange_->samples[rank] = plan_.shard_samples(shard, samples).size();
  }
}

// Of one of this rank's shards, whose loss this rank may not have: it is zero then.
void TrainStep::forward(Network& network, const float* parameters, std::int64_t shard, std::int64_t samples) {
  const Range range = plan_.shard_samples(shard, samples);
  const std::int64_t first = range.begin - plan_.rank_samples(rank_, samples).begin;
  const ModelState state{parameters, statistics_ == nullptr ? nullptr : statistics_->of_shard(shard),
                         sums_ ? &sums_ : nullptr, exchange_};
  set_exchange(shard - plan_.shards_of(rank_).begin, samples);
  note_phase(WorkPhase::forward);
  network.forward(Pass::training, state, stage_.samples(first, range.size()),
                  {message_.at<double>(0) + shard, device(Slot::correct), 1.0F / static_cast<float>(samples)});
}

void TrainStep::backward(Network& network, const float* parameters) {
  note_phase(WorkPhase::backward);
  network.backward(parameters, reducer_.shard_gradient(),
                   [this](std::int64_t offset) { reducer_.ready(static_cast<std::size_t>(offset)); });
  reducer_.shard_done();
}

void TrainStep::compute(const float* parameters, std::int64_t samples) {
  const Range shards = plan_.shards_of(rank_);
  if (pipeline_ != nullptr) {
    const auto count = [&](std::int64_t shard) { return plan_.shard_samples(shards.begin + shard, samples).size(); };
    const auto go = [&](Network& network, std::int64_t shard) {
      forward(network, parameters, shards.begin + shard, samples);
    };
    const auto back = [&](Network& network, std::int64_t /*shard*/) { backward(network, parameters); };
    // By reference, so that a step allocates nothing.
    pipeline_->pass(std::cref(count), std::cref(go), std::cref(back));
    return;
  }
  for (std::int64_t shard = shards.begin; shard < shards.end; ++shard) {
    const bool last = shard + 1 == shards.end;
    if (last) backend_.queue().mark(Mark::last_shard_mark);
    forward(network_, parameters, shard, samples);
    if (last) backend_.queue().mark(Mark::backward_mark);
    backward(network_, parameters);
  }
}

void TrainStep::enqueue(float* parameters, std::int64_t samples) {
  const auto shards = static_cast<std::size_t>(plan_.shards);
  backend_.queue().mark(Mark::begin_mark);
  backend_.queue().upload(message_.data(), host_message_.data(), squares_at());
  stage_.enqueue();
  compute(parameters, samples);
  backend_.queue().mark(Mark::reduction_mark);
  note_phase(WorkPhase::reduction);
  reducer_.finish();
  // The losses of this rank are checked too: a loss can overflow although its gradient does not.
  backend_.math().find_broken(reducer_.gradient(), elements_, message_.at<double>(0), shards, device(Slot::broken));
  if (fingerprints_) enqueue_square_sums();
  // The loss of each shard comes from one rank and is zero on the others, so the sums are exact in any order.
  sum_message(message_.at<double>(0), shards + Slot::summed);
  backend_.queue().mark(Mark::optimizer_mark);
  note_phase(WorkPhase::update);
  optimizer_.update(parameters, reducer_.gradient(), message_.at<StepControl>(summed_bytes()), device(Slot::broken));
  backend_.queue().download(host_message_.data(), message_.data(), message_bytes_);
  if (fingerprints_) enqueue_fingerprint(parameters);
  backend_.queue().mark(Mark::end_mark);
}

// A step is recorded only after one ran unrecorded, so that libraries have completed their lazy initialisation.
void TrainStep::replay_or_enqueue(float* parameters, const StepInput& input) {
  if (!record_ || input.samples != plan_.global_batch) {
    enqueue(parameters, input.samples);
    return;
  }
  if (warm_ && recording_ == nullptr) {
    recording_ = backend_.queue().record([&] { enqueue(parameters, input.samples); });
    record_ = recording_ != nullptr;
  }
  if (recording_ != nullptr) {
    recording_->replay();
  } else {
    enqueue(parameters, input.samples);
  }
  warm_ = true;
}

StepResult TrainStep::result_of(const StepInput& input) const {
  StepResult result;
  for (int shard = 0; shard < plan_.shards; ++shard) result.loss += host_message_.at<double>(0)[shard];
  result.loss /= static_cast<double>(input.samples);
  result.correct = static_cast<std::int64_t>(host(Slot::correct));
  result.finite = host(Slot::broken) == 0;
  result.request = {host(Slot::stop) > 0, host(Slot::checkpoint) > 0};
  if (!fingerprints_) {
    result.grad_norm = std::nan("");
    return result;
  }
  const double* squares = host_message_.at<double>(squares_at());
  result.grad_norm = std::sqrt(std::accumulate(squares, squares + squares_count(), 0.0));
  const auto hash = [this](std::size_t which, std::size_t count) {
    return count == 0 ? 0 : XXH3_64bits(host_message_.data() + sample_at(which), count * sizeof(float));
  };
  result.hashes = {static_cast<std::uint64_t>(host(Slot::sample_hash)),
                   static_cast<std::uint64_t>(host(Slot::pixel_hash)), hash(1, hashed_statistics_),
                   hash(0, static_cast<std::size_t>(hashed_.size()))};
  return result;
}

// The clock of a CPU took the times of each pass.
void TrainStep::split_pipeline_time() {
  const PipelineSeconds& passes = pipeline_->seconds();
  const double reduction = backend_.queue().seconds_between(Mark::reduction_mark, Mark::optimizer_mark);
  clock_.move(Phase::other, Phase::forward, passes.forward);
  clock_.move(Phase::other, Phase::backward, passes.backward);
  clock_.move(Phase::other, Phase::exposed_communication, passes.exchange + reduction);
  clock_.move(Phase::other, Phase::optimizer, backend_.queue().seconds_between(Mark::optimizer_mark, Mark::end_mark));
}

// The marks give the device times between the begin and end of the step; the host's clock measures the whole step.
// Forward and backward of the last shard are taken as representative of all shards. The remainder is host time: on a
// GPU, enqueueing and wake-up latency.
void TrainStep::split_time(double seconds) {
  if (pipeline_ != nullptr) {
    split_pipeline_time();
    return;
  }
  const double shards = backend_.queue().seconds_between(Mark::begin_mark, Mark::reduction_mark);
  const double forward = backend_.queue().seconds_between(Mark::last_shard_mark, Mark::backward_mark);
  const double backward = backend_.queue().seconds_between(Mark::backward_mark, Mark::reduction_mark);
  const double exposed = backend_.queue().seconds_between(Mark::reduction_mark, Mark::optimizer_mark);
  const double optimizer = backend_.queue().seconds_between(Mark::optimizer_mark, Mark::end_mark);
  const double scale = std::min(1.0, seconds / std::max(1e-9, shards + exposed + optimizer));
  const double forward_share = forward / std::max(1e-9, forward + backward);
  clock_.move(Phase::other, Phase::forward, scale * shards * forward_share);
  clock_.move(Phase::other, Phase::backward, scale * shards * (1 - forward_share));
  clock_.move(Phase::other, Phase::exposed_communication, scale * exposed);
  clock_.move(Phase::other, Phase::optimizer, scale * optimizer);
}

StepResult TrainStep::run(float* parameters, const Batch& loaded, const StepInput& input) {
  DDP_ASSERT(loaded.count == plan_.rank_samples(rank_, input.samples).size());
  clock_.switch_to(Phase::other);
  const double begin = now();
  Batch batch = loaded;
  if (pipeline_ != nullptr) pipeline_->share_labels(batch);
  std::fill_n(host_message_.at<double>(0), summed_bytes() / sizeof(double), 0.0);
  host(Slot::stop) = input.request.stop ? 1 : 0;
  host(Slot::checkpoint) = input.request.checkpoint ? 1 : 0;
  *host_message_.at<StepControl>(summed_bytes()) = input.control;
  // All stages of a pipeline have the same samples.
  if (fingerprints_ && (pipeline_ == nullptr || pipeline_->place().first())) hash_batch(batch, input.samples);
  stage_.set(batch);
  reducer_.begin_step(static_cast<std::int64_t>(input.control.step));
  replay_or_enqueue(parameters, input);
  note_phase(WorkPhase::device);
  reducer_.wait();
  clock_.switch_to(Phase::other);
  split_time(now() - begin);
  heartbeat();
  return result_of(input);
}

}  // namespace ddp
