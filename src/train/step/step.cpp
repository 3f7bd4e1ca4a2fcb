#include "train/step/step.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status/heartbeat.h"
#include "base/status/position.h"

namespace ddp {
namespace {

constexpr std::size_t kHashedFloats = 1024;
constexpr std::uint64_t kLow32 = 0xFFFFFFFF;

Range last_of(std::int64_t end) {
  return {std::max<std::int64_t>(0, end - static_cast<std::int64_t>(kHashedFloats)), end};
}

// Whose squares a rank adds to the gradient norm. The replicas of a pipeline have the same gradients, as have the hosts of ranks
// with a part of the sums each.
std::vector<Range> counted_ranges(const StepParts& parts, int rank) {
  const ReducerConfig& sums = parts.reducer.config();
  if (!sums.whole()) return parts.share->first_host() ? updated_ranges(sums) : std::vector<Range>();
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

TrainStep::TrainStep(const StepParts& parts, BatchPlan plan, int rank, const StepSettings& settings)
    : backend_(parts.backend),
      network_(parts.network),
      reducer_(parts.reducer),
      optimizer_(parts.optimizer),
      stage_(parts.stage),
      clock_(parts.clock),
      statistics_(parts.statistics),
      plan_(std::move(plan)),
      rank_(rank),
      slots_(settings.ahead),
      together_(settings.together),
      held_(parts.slices == nullptr ? std::vector<Range>() : parts.slices->held()),
      counted_(counted_ranges(parts, rank)),
      square_ranges_(!settings.squares_by_range  ? 1
                     : reducer_.config().whole() ? held_.size()
                                                 : reducer_.buckets().size()),
      message_bytes_(control_at() + sizeof(StepControl)),
      hashed_(held_.empty() ? last_of(network_.flat_elements()) : parts.slices->last_weights(kHashedFloats)),
      hashed_statistics_(statistics_ == nullptr ? 0 : std::min(statistics_->count(), kHashedFloats)),
      fingerprints_(parts.fingerprints),
      sums_(parts.sums),
      exchange_(parts.exchange),
      pipeline_(parts.pipeline),
      share_(parts.share),
      scales_loss_(settings.scales_loss),
      keeps_results_(settings.keeps_results),
      joint_squares_(pipeline_ != nullptr || !reducer_.config().whole() || !held_.empty()),
      record_(settings.record && reducer_.recordable() && pipeline_ == nullptr) {
  DDP_ASSERT(settings.ahead > 0 && settings.ahead <= kMostStepsAhead);
  DDP_ASSERT(together_ > 0 && together_ <= settings.ahead && (together_ == 1 || stage_.takes_steps()));
  DDP_ASSERT(pipeline_ == nullptr || settings.ahead == 1);
  message_ = backend_.memory().allocate(message_bytes_, "the messages of a step");
  for (InFlight& each : slots_) {
    each.message = backend_.memory().allocate_for_transfer(sample_at(1) + hashed_statistics_ * sizeof(float),
                                                           "the messages of a step");
    for (std::unique_ptr<DeviceEvent>& event : each.events) event = backend_.queue().make_event();
  }
  if (!stage_.takes_steps()) return;
  const auto steps = static_cast<std::size_t>(plan_.steps_per_epoch);
  written_.reserve(steps * message_bytes_ / sizeof(double));
  messages_ = Staging(backend_.device(), steps * message_bytes_, "the messages of an epoch");
  requests_ = backend_.memory().allocate(2 * sizeof(double), "the requests of a step");
}

TrainStep::~TrainStep() {
  if (in_flight() == 0) return;
  try {
    backend_.queue().synchronize();
  } catch (const Error& error) {
    log_debug("the steps in flight: {}", error.what());  // another error has ended the run
  }
}

std::size_t TrainStep::loaded_bytes(const BatchPlan& plan) {
  const std::size_t message = Slot::losses + static_cast<std::size_t>(plan.shards) + kSquareSums;
  return static_cast<std::size_t>(plan.steps_per_epoch) * (message * sizeof(double) + sizeof(StepControl));
}

// Where the host has the weights (0) and the running statistics (1) that are hashed.
std::size_t TrainStep::sample_at(std::size_t which) const {
  return aligned_bytes(message_bytes_) + (which == 0 ? 0 : aligned_bytes(bytes_of(hashed_)));
}

// Each sample contributes 32 bits that depend on its position in the global batch, so that the sums over the ranks are
// exact in doubles. Images that the device keeps or edits are not hashed.
void TrainStep::hash_batch(double* message, const Batch& batch, std::int64_t samples) const {
  const std::int64_t first = plan_.rank_samples(rank_, samples).begin;
  const bool known = batch.count > 0 && batch.edits.empty();
  const std::size_t bytes = known ? batch.pixels.size() / static_cast<std::size_t>(batch.count) : 0;
  std::uint64_t indices = 0;
  std::uint64_t pixels = 0;
  for (std::int64_t i = 0; i < std::ssize(batch.indices); ++i) {
    const auto place = static_cast<std::size_t>(i);
    const std::array<std::uint64_t, 2> key = {static_cast<std::uint64_t>(first + i), batch.indices[place]};
    const XXH64_hash_t hash = XXH3_64bits(key.data(), sizeof key);
    indices += hash & kLow32;
    if (bytes > 0) pixels += XXH3_64bits_withSeed(&batch.pixels[place * bytes], bytes, hash) & kLow32;
  }
  message[Slot::sample_hash] = static_cast<double>(indices);
  message[Slot::pixel_hash] = static_cast<double>(pixels);
}

// With which a step begins; all stages of a pipeline have the same samples.
void TrainStep::write_message(double* message, const Batch& batch, const StepInput& input) const {
  std::fill_n(message, message_bytes_ / sizeof(double), 0.0);
  message[Slot::stop] = input.request.stop ? 1 : 0;
  message[Slot::checkpoint] = input.request.checkpoint ? 1 : 0;
  const std::size_t control = control_at() / sizeof(double);
  std::memcpy(&message[control], &input.control, sizeof input.control);
  if (fingerprints_ && (pipeline_ == nullptr || pipeline_->place().first())) hash_batch(message, batch, input.samples);
}

// The message to the host, and some values of the step's result, for StepHashes: the last weights, which every other weight
// influences within a step. The next step of those that are loaded begins behind it.
void TrainStep::enqueue_report(const float* parameters) {
  std::byte* const to = current().message.data();
  std::array<TableColumn, 3> columns = {TableColumn{message_.data(), 0, to, message_bytes_}};
  std::size_t count = 1;
  if (fingerprints_) columns[count++] = {parameters + hashed_.begin, 0, to + sample_at(0), bytes_of(hashed_)};
  if (fingerprints_ && hashed_statistics_ > 0) {
    columns[count++] = {statistics_->of_shard(plan_.shards_of(rank_).begin), 0, to + sample_at(1),
                        hashed_statistics_ * sizeof(float)};
  }
  backend_.math().copy_row(std::span(columns).first(count), stage_.cursor());
}

// Over the ranks: of a pipeline all, whichever part they have.
void TrainStep::sum_message(double* values, std::size_t count) {
  if (pipeline_ == nullptr) {
    reducer_.sum(values, count);
  } else {
    pipeline_->sum_message({values, count});
  }
}

// The squares of the whole gradient. If some of it is divided, rank 0 counts all that it has, with zeros for the parts of
// others, and the others count their parts; otherwise a step that is not finite is marked as broken here.
void TrainStep::enqueue_square_sums() {
  auto* sums = message_.at<double>(squares_at());
  if (joint_squares_) backend_.math().fill_zero(sums, squares_count() * sizeof(double));
  for (const Range& range : counted_) {
    if (joint_squares_ && square_ranges_ == 1) {
      add_square_sums(range);
      continue;
    }
    backend_.math().square_sums(reducer_.gradient() + range.begin, static_cast<std::size_t>(range.size()), sums,
                                joint_squares_ ? NonfiniteCheck{} : nonfinite_check());
    sums += kSquareSums;
  }
}

// Only ranks on CPUs count parts, whose work is done when a call returns.
void TrainStep::add_square_sums(const Range& range) {
  backend_.math().square_sums(reducer_.gradient() + range.begin, static_cast<std::size_t>(range.size()),
                              range_squares_.data(), {});
  auto* sums = message_.at<double>(squares_at());
  for (std::size_t i = 0; i < kSquareSums; ++i) sums[i] += range_squares_[i];
}

// The losses of this rank are checked too: a loss can overflow although its gradient does not.
NonfiniteCheck TrainStep::nonfinite_check() const {
  return {{device(Slot::losses), static_cast<std::size_t>(plan_.shards) + squares_count()}, device(Slot::broken)};
}

// The loss of each shard comes from one rank and is zero on the others, so the sums are exact in any order.
void TrainStep::sum_over_ranks() {
  if (keeps_results_) {
    sum_agreement();
    return;
  }
  sum_message(message_.at<double>(0), summed() + (joint_squares_ ? squares_count() : 0));
  if (joint_squares_) backend_.math().find_nonfinite(nonfinite_check());
}

// Whether this rank's losses and squares are finite has been marked before, and a mark of any rank stays one in the sum. Only
// ranks on CPUs count parts of the squares, which then do not lie beside the rest.
void TrainStep::sum_agreement() {
  if (!joint_squares_) {
    sum_message(device(Slot::broken), Slot::correct);
    return;
  }
  backend_.math().find_nonfinite(nonfinite_check());
  auto* const squares = message_.at<double>(squares_at());
  agreement_.assign(device(Slot::broken), device(Slot::correct));
  agreement_.insert(agreement_.end(), squares, squares + squares_count());
  sum_message(agreement_.data(), agreement_.size());
  std::copy_n(agreement_.begin(), Slot::correct, device(Slot::broken));
  std::copy_n(agreement_.begin() + Slot::correct, squares_count(), squares);
}

// The shards that the ranks process at the same time exchange activations.
void TrainStep::set_exchange(std::int64_t round, std::int64_t samples) {
  if (exchange_ == nullptr) return;
  for (std::size_t rank = 0; rank < exchange_->samples.size(); ++rank) {
    const std::int64_t shard = plan_.shards_of(static_cast<int>(rank)).begin + round;
    exchange_->samples[rank] = plan_.shard_samples(shard, samples).size();
  }
}

// The passes of one of this rank's shards, whose loss this rank may not have: it is zero then.
void TrainStep::forward(Network& network, const float* parameters, std::int64_t shard, std::int64_t samples) {
  const Range range = plan_.shard_samples(shard, samples);
  const std::int64_t first = range.begin - plan_.rank_samples(rank_, samples).begin;
  const ModelState state{parameters, statistics_ == nullptr ? nullptr : statistics_->of_shard(shard),
                         sums_ ? &sums_ : nullptr, exchange_};
  set_exchange(shard - plan_.shards_of(rank_).begin, samples);
  note_phase(WorkPhase::forward);
  network.forward(Pass::training, state, stage_.samples(first, range.size()),
                  {device(Slot::losses) + shard, device(Slot::correct), 1.0F / static_cast<float>(samples),
                   scales_loss_ ? &message_.at<StepControl>(control_at())->loss_scale : nullptr});
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
    if (last && shard > shards.begin) mark(Mark::last_shard_mark);
    forward(network_, parameters, shard, samples);
    if (last) mark(Mark::backward_mark);
    backward(network_, parameters);
  }
}

// The message but `broken`, which the steps pass on. With the batch, if that is on the device already, the first pass copies it.
void TrainStep::enqueue_begin(std::int64_t samples) {
  if (!stage_.takes_steps()) {
    backend_.queue().upload(device(Slot::stop), current().message.at<double>(Slot::stop * sizeof(double)),
                            message_bytes_ - Slot::stop * sizeof(double));
    return;
  }
  constexpr std::size_t kKnown = Slot::correct * sizeof(double);
  const std::array<TableColumn, 2> columns = {
      TableColumn{messages_.at<std::byte>() + kKnown, message_bytes_, device(Slot::correct), message_bytes_ - kKnown},
      TableColumn{requests_.data(), 0, device(Slot::stop), 2 * sizeof(double)}};
  stage_.take_step(plan_.rank_samples(rank_, samples).size(), columns);
}

void TrainStep::enqueue(float* parameters, std::int64_t samples) {
  mark(Mark::begin_mark);
  enqueue_begin(samples);
  if (statistics_ != nullptr) statistics_->keep(halted());
  compute(parameters, samples);
  mark(Mark::reduction_mark);
  note_phase(WorkPhase::reduction);
  reducer_.finish();
  enqueue_square_sums();
  sum_over_ranks();
  mark(Mark::optimizer_mark);
  note_phase(WorkPhase::update);
  optimizer_.update(parameters, reducer_.gradient(), message_.at<StepControl>(control_at()), halted());
  if (share_ != nullptr) {
    mark(Mark::meeting_mark);
    share_->meet();
  }
  enqueue_report(parameters);
  mark(Mark::end_mark);
}

void TrainStep::enqueue_several(float* parameters, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i, ++begun_) {
    reducer_.begin_step(static_cast<std::int64_t>(current().input.control.step));
    enqueue(parameters, current().input.samples);
  }
}

// A step is recorded only after one ran unrecorded, so that libraries have completed their lazy initialisation.
void TrainStep::replay_or_enqueue(float* parameters, std::size_t count) {
  bool recordable = record_;
  for (std::size_t i = 0; i < count; ++i) {
    recordable = recordable && slots_[slot_of(begun_ + i)].input.samples == plan_.global_batch;
  }
  std::unique_ptr<Recording>& recording = count == 1 ? current().recording : current().several;
  if (recordable && warm_ && recording == nullptr) {
    const std::size_t first = begun_;
    recording = backend_.queue().record([&] { enqueue_several(parameters, count); });
    begun_ = first;
    record_ = recording != nullptr;
  }
  if (recordable && recording != nullptr) {
    recording->replay();
    begun_ += count;
  } else {
    enqueue_several(parameters, count);
  }
  warm_ = warm_ || recordable;
}

// Between marks of a step that has them.
double TrainStep::seconds_between(std::size_t step, Mark from, Mark to) const {
  const auto& events = slots_[slot_of(step)].events;
  return events[to]->seconds_since(*events[from]);
}

// Forward and backward of the last shard are taken as representative of all shards. Ranks that share the parameters wait for
// each other in the end.
PhaseTotals TrainStep::device_seconds(std::size_t step) const {
  const bool several = plan_.shards_of(rank_).size() > 1;
  const double shards = seconds_between(step, Mark::begin_mark, Mark::reduction_mark);
  const double forward = seconds_between(step, several ? Mark::last_shard_mark : Mark::begin_mark, Mark::backward_mark);
  const double backward = seconds_between(step, Mark::backward_mark, Mark::reduction_mark);
  const double meeting = share_ == nullptr ? 0 : seconds_between(step, Mark::meeting_mark, Mark::end_mark);
  const double forward_share = forward / std::max(1e-9, forward + backward);
  PhaseTotals totals;
  totals[Phase::forward] = shards * forward_share;
  totals[Phase::backward] = shards * (1 - forward_share);
  totals[Phase::exposed_communication] = seconds_between(step, Mark::reduction_mark, Mark::optimizer_mark) + meeting;
  totals[Phase::optimizer] = seconds_between(step, Mark::optimizer_mark, Mark::end_mark) - meeting;
  return totals;
}

// The clock of a CPU took the times of each pass.
void TrainStep::split_pipeline_time() {
  const PipelineSeconds& passes = pipeline_->seconds();
  const double reduction = seconds_between(finished_, Mark::reduction_mark, Mark::optimizer_mark);
  clock_.move(Phase::other, Phase::forward, passes.forward);
  clock_.move(Phase::other, Phase::backward, passes.backward);
  clock_.move(Phase::other, Phase::exposed_communication, passes.exchange + reduction);
  clock_.move(Phase::other, Phase::optimizer, seconds_between(finished_, Mark::optimizer_mark, Mark::end_mark));
}

// The marks give the device times of the first step in flight and of those that began at once with it, see marked(); the
// host's clock measures how long this thread had to do with steps since the ones before. The remainder is host time: on a GPU,
// enqueueing and wake-up latency.
void TrainStep::split_time(double seconds) {
  if (pipeline_ != nullptr) {
    split_pipeline_time();
    return;
  }
  const std::size_t last = slots_[slot_of(finished_)].last;
  PhaseTotals all;
  for (std::size_t step = finished_; step <= last; ++step) {
    if (marked(step)) step_seconds_ = device_seconds(step);
    all += step_seconds_;
  }
  const double scale = std::min(1.0, seconds / std::max(1e-9, all.sum()));
  for (const Phase phase : kPhases) clock_.move(Phase::other, phase, scale * all[phase]);
}

// The next steps, whose inputs are in their slots and whose batches are on the device or on their way to it.
void TrainStep::launch(float* parameters, std::size_t count, double began) {
  const std::size_t last = begun_ + count - 1;
  for (std::size_t step = begun_; step <= last; ++step) slots_[slot_of(step)].last = last;
  replay_or_enqueue(parameters, count);
  // Behind a recording, because marks in one cannot be waited for.
  backend_.queue().mark(*slots_[slot_of(last)].events[Mark::done_mark]);
  host_seconds_ += now() - began;
}

void TrainStep::begin(float* parameters, const Batch& loaded, const StepInput& input) {
  DDP_ASSERT(loaded.count == plan_.rank_samples(rank_, input.samples).size());
  DDP_ASSERT(in_flight() < slots_.size() && !stage_.takes_steps());
  clock_.switch_to(Phase::other);
  const double began = now();
  Batch batch = loaded;
  if (pipeline_ != nullptr) pipeline_->share_labels(batch);
  write_message(current().message.at<double>(0), batch, input);
  stage_.set(batch, slot_of(begun_));
  stage_.enqueue();
  current().input = input;
  launch(parameters, 1, began);
}

void TrainStep::load(const Batch& batches, std::vector<StepInput> inputs) {
  DDP_ASSERT(in_flight() == 0 && !inputs.empty());
  loaded_ = std::move(inputs);
  next_ = 0;
  const std::size_t each = message_bytes_ / sizeof(double);
  written_.resize(loaded_.size() * each);
  std::int64_t first = 0;
  for (std::size_t step = 0; step < loaded_.size(); ++step) {
    const std::int64_t count = plan_.rank_samples(rank_, loaded_[step].samples).size();
    write_message(&written_[step * each], part_of(batches, first, count), loaded_[step]);
    first += count;
  }
  DDP_ASSERT(first == batches.count);
  messages_.set(std::as_bytes(std::span(written_)));
  messages_.enqueue();
  stage_.set_steps(batches, plan_.rank_samples(rank_, plan_.global_batch).size(), std::ssize(loaded_));
}

// To the loaded steps from here on. Requests are rare, and are copied only when they change.
void TrainStep::pass_on(Request request) {
  if (std::exchange(request_, request) == request) return;
  auto* words = current().message.at<double>(Slot::stop * sizeof(double));
  words[0] = request.stop ? 1 : 0;
  words[1] = request.checkpoint ? 1 : 0;
  backend_.queue().upload(requests_.data(), words, 2 * sizeof(double));
}

void TrainStep::begin_loaded(float* parameters, Request request, std::size_t count) {
  DDP_ASSERT(count == 1 || count == together_);
  DDP_ASSERT(in_flight() + count <= slots_.size() && next_ < loaded_.size());
  clock_.switch_to(Phase::other);
  const double began = now();
  for (std::size_t i = 0; i < count; ++i) {
    slots_[slot_of(begun_ + i)].input = loaded_[next_];
    next_ = (next_ + 1) % loaded_.size();
  }
  pass_on(request);
  launch(parameters, count, began);
}

StepResult TrainStep::finish() {
  DDP_ASSERT(in_flight() > 0);
  clock_.switch_to(Phase::other);
  note_phase(WorkPhase::device);
  const double began = now();
  const InFlight& step = slots_[slot_of(finished_)];
  reducer_.wait_for(*slots_[slot_of(step.last)].events[Mark::done_mark],
                    static_cast<std::int64_t>(step.input.control.step));
  clock_.switch_to(Phase::other);
  if (finished_ >= timed_) {
    split_time(std::exchange(host_seconds_, 0) + now() - began);
    timed_ = step.last + 1;
  }
  ++finished_;
  heartbeat();
  StepResult result = result_of(step);
  if (keeps_results_) keep_result(step, result);
  return result;
}

StepResult TrainStep::run(float* parameters, const Batch& batch, const StepInput& input) {
  DDP_ASSERT(in_flight() == 0);
  begin(parameters, batch, input);
  return finish();
}

Request TrainStep::resume() {
  Request dropped;
  while (in_flight() > 0) {
    const Request request = finish().request;
    forget_last();
    dropped.stop |= request.stop;
    dropped.checkpoint |= request.checkpoint;
  }
  backend_.math().fill_zero(device(Slot::broken), sizeof(double));
  if (statistics_ != nullptr) statistics_->put_back();
  loaded_.clear();
  return dropped;
}

}  // namespace ddp
