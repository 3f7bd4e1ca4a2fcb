#include "data/pipeline/loader.h"

#include <sys/prctl.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/status/heartbeat.h"
#include "base/threads.h"
#include "data/pipeline/mixup.h"

namespace ddp {
namespace {

constexpr std::size_t kKeptSpans = 1024;

std::shared_ptr<std::uint8_t> own_memory(std::size_t bytes) {
  const auto memory = std::make_shared<std::vector<std::uint8_t>>(bytes);
  return {memory, memory->data()};
}

}  // namespace

Batch part_of(const Batch& batch, std::int64_t first, std::int64_t count) {
  DDP_ASSERT(first >= 0 && count >= 0 && first + count <= batch.count);
  // Where a batch need not contain something, that part is empty, too.
  const auto some = [&](auto all, std::size_t each = 1) {
    return all.empty() ? all
                       : all.subspan(static_cast<std::size_t>(first) * each, static_cast<std::size_t>(count) * each);
  };
  const std::size_t image = batch.count == 0 ? 0 : batch.pixels.size() / static_cast<std::size_t>(batch.count);
  return {.pixels = some(batch.pixels, image),
          .labels = some(batch.labels),
          .count = count,
          .indices = some(batch.indices),
          .keys = some(batch.keys),
          .other_labels = some(batch.other_labels),
          .label_weights = some(batch.label_weights),
          .edits = some(batch.edits)};
}

Loader::Loader(const Dataset& dataset, const LoaderConfig& config, NextBatch next_batch)
    : dataset_(dataset),
      config_(config),
      next_batch_(std::move(next_batch)),
      ahead_(config.workers == 0 ? 1 : std::max(config.prefetch, 1) + 1) {
  DDP_ASSERT(config.max_batch > 0 && config.workers >= 0 && config.held > 0);
  DDP_ASSERT(!config.mixes() || (config.training && config.read_pixels));
  DDP_ASSERT(config.edits == nullptr || (config.training && !config.mixes()));
  const auto capacity = static_cast<std::size_t>(config.max_batch);
  slots_.resize(static_cast<std::size_t>(ahead_) + config.held - 1);
  for (Slot& each : slots_) {
    each.indices.reserve(capacity);
    each.keys.reserve(capacity);
    each.partners.reserve(capacity);
    if (config.read_pixels) {
      const std::size_t bytes = capacity * dataset.shape().size();
      each.memory = config.allocate ? config.allocate(bytes) : own_memory(bytes);
      each.pixels = {each.memory.get(), bytes};
    }
    each.labels.resize(capacity);
    if (config.edits != nullptr) each.edits.resize(capacity);
    if (!config.mixes()) continue;
    each.other_labels.resize(capacity);
    each.label_weights.resize(capacity);
  }
  spans_.resize(static_cast<std::size_t>(config.workers));
  for (Spans& each : spans_) each.ring.resize(kKeptSpans);
  workers_.reserve(static_cast<std::size_t>(config.workers));
  try {
    for (int i = 0; i < config.workers; ++i) {
      workers_.emplace_back([this, i](const std::stop_token& stop) { work(i, stop); });
    }
  } catch (const std::system_error& error) {
    no_thread(fmt::format("loader {} of {}", workers_.size() + 1, config.workers), error.code());
  }
}

Loader::~Loader() {
  // Request all to stop before joining the first.
  for (std::jthread& worker : workers_) worker.request_stop();
}

std::optional<Batch> Loader::next() {
  if (failure_) std::rethrow_exception(failure_);
  while (!ended_ && submitted_ - taken_ < ahead_) {
    if (!submit_next()) ended_ = true;
  }
  if (submitted_ == taken_) return std::nullopt;
  Slot& current = slot(taken_);
  if (workers_.empty()) {
    load(current, 0, current.indices.size());
    if (config_.mixes()) mix(current);
  } else {
    std::unique_lock lock(mutex_);
    ready_sum_ += count_ready();
    has_batch_.wait(lock, [&current] { return current.ready; });
    failure_ = current.error;
  }
  if (failure_) std::rethrow_exception(failure_);
  ++taken_;
  ++delivered_;
  const std::size_t count = current.indices.size();
  const std::size_t mixed = config_.mixes() ? count : 0;
  return Batch{.pixels = current.pixels.first(config_.read_pixels ? count * dataset_.shape().size() : 0),
               .labels = std::span(current.labels).first(count),
               .count = static_cast<std::int64_t>(count),
               .indices = current.indices,
               .keys = current.keys,
               .other_labels = std::span(current.other_labels).first(mixed),
               .label_weights = std::span(current.label_weights).first(mixed),
               .edits = std::span(current.edits).first(config_.edits != nullptr ? count : 0)};
}

// The mutex is held.
std::int64_t Loader::count_ready() {
  std::int64_t ready = 0;
  for (std::int64_t sequence = taken_; sequence < submitted_; ++sequence) ready += slot(sequence).ready ? 1 : 0;
  return ready;
}

LoaderStatistics Loader::statistics() const {
  return {delivered_, ready_sum_, busy_seconds_.load(), cpu_seconds_.load()};
}

std::vector<LoaderSpan> Loader::last_spans() {
  const std::scoped_lock lock(mutex_);
  std::vector<LoaderSpan> all;
  for (const Spans& each : spans_) {
    for (std::size_t i = each.count - std::min(each.count, kKeptSpans); i < each.count; ++i) {
      all.push_back(each.ring[i % kKeptSpans]);
    }
  }
  return all;
}

// The mutex is held. The parts of a batch that a worker reads one after the other are one span.
void Loader::note_span(int worker, const LoaderSpan& span) {
  Spans& mine = spans_[static_cast<std::size_t>(worker)];
  LoaderSpan& last = mine.ring[(mine.count + kKeptSpans - 1) % kKeptSpans];
  if (mine.count > 0 && last.batch == span.batch) {
    last.end = span.end;
    return;
  }
  mine.ring[mine.count % kKeptSpans] = span;
  ++mine.count;
}

void Loader::restart(NextBatch next_batch) {
  if (!workers_.empty()) {
    std::unique_lock lock(mutex_);
    has_batch_.wait(lock, [this] {
      for (std::int64_t sequence = taken_; sequence < submitted_; ++sequence) {
        if (!slot(sequence).ready) return false;
      }
      return true;
    });
  }
  taken_ = submitted_;
  ended_ = false;
  failure_ = nullptr;
  next_batch_ = std::move(next_batch);
}

// Submits the next batch to the workers; returns false if there is none.
bool Loader::submit_next() {
  const std::optional<BatchRequest> request = next_batch_();
  if (!request) return false;
  const auto& [indices, keys, partners, batch_key] = *request;
  DDP_ASSERT(static_cast<std::int64_t>(indices.size()) <= config_.max_batch);
  DDP_ASSERT((keys.empty() && !config_.training) || keys.size() == indices.size());
  DDP_ASSERT(
      std::all_of(indices.begin(), indices.end(), [this](std::int64_t index) { return index < dataset_.size(); }));
  DDP_ASSERT(!config_.mixes() || partners.size() == indices.size());
  Slot& next = slot(submitted_);
  next.indices.assign(indices.begin(), indices.end());
  next.keys.assign(keys.begin(), keys.end());
  next.partners.assign(partners.begin(), partners.end());
  next.batch_key = batch_key;
  next.claimed = 0;
  next.loaded = 0;
  next.ready = false;
  next.error = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    ++submitted_;
  }
  has_work_.notify_all();
  return true;
}

// Reads the samples [begin, end) of a batch.
void Loader::load(Slot& target, std::size_t begin, std::size_t end) {
  const double started = now();
  const double cpu_before = thread_cpu_seconds();
  const std::size_t bytes = dataset_.shape().size();
  for (std::size_t i = begin; i < end; ++i) {
    std::int64_t index = target.indices[i];
    if (config_.read_pixels) {
      const std::span<std::uint8_t> pixels = target.pixels.subspan(i * bytes, bytes);
      if (!config_.training) {
        index = dataset_.read(index, pixels);
      } else if (config_.edits != nullptr) {
        index = dataset_.read_plain(index, pixels);
      } else {
        index = dataset_.read_training(index, target.keys[i], pixels);
      }
    }
    if (config_.edits != nullptr) target.edits[i] = edit_of(*config_.edits, dataset_.shape(), target.keys[i]);
    target.labels[i] = dataset_.label(index);
    heartbeat();
  }
  busy_seconds_.fetch_add(now() - started);
  cpu_seconds_.fetch_add(thread_cpu_seconds() - cpu_before);
}

// Mixes the samples of a fully loaded batch.
void Loader::mix(Slot& target) const {
  const Shape shape = dataset_.shape();
  const std::size_t bytes = shape.size();
  for (std::size_t i = 0; i < target.indices.size(); ++i) {
    const std::size_t partner = target.partners[i];
    DDP_ASSERT(partner < target.indices.size() && target.partners[partner] == i);
    target.other_labels[i] = target.labels[partner];
    if (partner == i) target.label_weights[i] = 1;
    if (partner <= i) continue;
    const std::span<std::uint8_t> a = target.pixels.subspan(i * bytes, bytes);
    const std::span<std::uint8_t> b = target.pixels.subspan(partner * bytes, bytes);
    const std::uint64_t key_a = config_.mixes_by_batch ? target.batch_key : target.keys[i];
    const std::uint64_t key_b = config_.mixes_by_batch ? target.batch_key : target.keys[partner];
    if (cuts_pair(config_.mixup, config_.cutmix, key_a)) {
      const Rectangle cut = cut_rectangle(config_.cutmix, shape, key_a);
      exchange(shape, cut, a, b);
      const auto share = static_cast<float>(cut.width * cut.height) / static_cast<float>(shape.height * shape.width);
      target.label_weights[i] = target.label_weights[partner] = 1 - share;
    } else {
      const std::int32_t share_a = mixing_share(config_.mixup, key_a);
      const std::int32_t share_b = mixing_share(config_.mixup, key_b);
      target.label_weights[i] = static_cast<float>(share_a) / kWholeShare;
      target.label_weights[partner] = static_cast<float>(share_b) / kWholeShare;
      mix_pair(a, b, share_a, share_b);
    }
  }
}

// The loop of a worker: claim some samples of the oldest unfinished batch and read them. All workers share a batch, so
// that the one waited for is finished first.
void Loader::work(int worker, const std::stop_token& stop) {
  static_cast<void>(prctl(PR_SET_NAME, "loader"));
  std::unique_lock lock(mutex_);
  while (has_work_.wait(lock, stop, [this] { return working_ < submitted_; })) {
    if (stop.stop_requested()) return;
    const std::int64_t batch = working_;
    Slot& target = slot(batch);
    const std::size_t count = target.indices.size();
    const std::size_t begin = target.claimed;
    const std::size_t share = count / (2 * static_cast<std::size_t>(config_.workers)) + 1;
    const std::size_t end = std::min(count, begin + share);
    target.claimed = end;
    if (end == count) ++working_;
    lock.unlock();
    std::exception_ptr error;
    const double began = now();
    try {
      load(target, begin, end);
    } catch (...) {
      error = std::current_exception();
    }
    const double ended = now();
    lock.lock();
    note_span(worker, {worker, batch, began, ended});
    if (error && !target.error) target.error = error;
    target.loaded += end - begin;
    if (target.loaded == count) {
      if (config_.mixes() && !target.error) {
        // No other thread accesses a batch that is loaded but not yet ready.
        lock.unlock();
        mix(target);
        lock.lock();
      }
      target.ready = true;
      has_batch_.notify_one();
    }
  }
}

}  // namespace ddp
