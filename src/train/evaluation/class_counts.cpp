#include "train/evaluation/class_counts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/arithmetic.h"
#include "base/error.h"

namespace ddp {
namespace {

constexpr std::int64_t kBest = 5;
constexpr std::size_t kHead = 2;

}  // namespace

double ClassCounts::top5_accuracy() const {
  if (samples == 0 || std::ssize(of_class) <= kBest) return -1;
  return static_cast<double>(in_top5) / static_cast<double>(samples);
}

std::vector<double> ClassCounts::class_accuracy() const {
  std::vector<double> accuracy;
  for (std::size_t c = 0; c < of_class.size(); ++c) {
    accuracy.push_back(of_class[c] == 0 ? std::numeric_limits<double>::quiet_NaN()
                                        : static_cast<double>(right[c]) / static_cast<double>(of_class[c]));
  }
  return accuracy;
}

ClassCounter::ClassCounter(const DeviceContext& device, const Network& network, std::int64_t classes)
    : queue_(device.queue()), network_(network), classes_(classes), row_(static_cast<std::size_t>(classes)) {
  const Shape row{classes, 1, 1};
  const auto elements = static_cast<std::size_t>(stored_elements(network.batch(), row, network.logits_layout()));
  logits_ = device.memory().allocate_for_transfer(elements * bytes_of(network.logits().element()),
                                                  "the logits of an evaluation");
  const std::int64_t matrix = classes <= kMostConfusedClasses ? classes * classes : 0;
  counts_.resize(kHead + static_cast<std::size_t>(2 * classes + matrix));
}

void ClassCounter::clear() { std::fill(counts_.begin(), counts_.end(), 0); }

void ClassCounter::enqueue() { queue_.download(logits_.data(), network_.logits().data(), logits_.bytes()); }

void ClassCounter::read_logits(std::size_t sample) {
  const Shape shape{classes_, 1, 1};
  const Element element = network_.logits().element();
  for (std::int64_t c = 0; c < classes_; ++c) {
    const auto at = static_cast<std::size_t>(
        element_offset(shape, network_.logits_layout(), static_cast<std::int64_t>(sample), c, 0, 0));
    row_[static_cast<std::size_t>(c)] = value_at(logits_.data(), element, at);
  }
}

void ClassCounter::add(std::span<const std::int32_t> labels) {
  for (std::size_t sample = 0; sample < labels.size(); ++sample) {
    read_logits(sample);
    (void)count_row(labels[sample]);
  }
}

// Counts the sample whose logits are in row_; returns whether its answer is right.
bool ClassCounter::count_row(std::int32_t sample_label) {
  const auto classes = static_cast<std::size_t>(classes_);
  const auto label = static_cast<std::size_t>(sample_label);
  const float own = row_[label];
  std::int64_t before = 0;  // answers that come before the label
  for (std::size_t c = 0; c < classes; ++c) before += row_[c] > own || (row_[c] == own && c < label) ? 1 : 0;
  const auto answer = static_cast<std::size_t>(std::max_element(row_.begin(), row_.end()) - row_.begin());
  counts_[0] += 1;
  counts_[1] += before < kBest ? 1 : 0;
  counts_[kHead + label] += 1;
  counts_[kHead + classes + label] += answer == label ? 1 : 0;
  if (classes_ <= kMostConfusedClasses) counts_[kHead + 2 * classes + label * classes + answer] += 1;
  return answer == label;
}

void ClassCounter::add_view(std::size_t samples, float weight) {
  const auto classes = static_cast<std::size_t>(classes_);
  if (view_sums_.empty()) view_sums_.assign(samples * classes, 0);
  DDP_ASSERT(view_sums_.size() == samples * classes);
  for (std::size_t sample = 0; sample < samples; ++sample) {
    read_logits(sample);
    for (std::size_t c = 0; c < classes; ++c) view_sums_[sample * classes + c] += weight * row_[c];
  }
}

LogitLoss ClassCounter::count_views(std::span<const std::int32_t> labels) {
  const auto classes = static_cast<std::ptrdiff_t>(classes_);
  DDP_ASSERT(std::ssize(view_sums_) == std::ssize(labels) * classes);
  LogitLoss found;
  auto sums = view_sums_.begin();
  for (const std::int32_t label : labels) {
    row_.assign(sums, sums + classes);
    sums += classes;
    found.correct += count_row(label) ? 1 : 0;
    const auto largest = static_cast<double>(*std::max_element(row_.begin(), row_.end()));
    double total = 0;
    for (const float logit : row_) total += std::exp(static_cast<double>(logit) - largest);
    found.loss_sum += std::log(total) + largest - static_cast<double>(row_[static_cast<std::size_t>(label)]);
  }
  view_sums_.clear();
  return found;
}

ClassCounts ClassCounter::total(Communicator& ranks) const {
  std::vector<std::int64_t> sums = counts_;
  ranks.all_reduce(std::span(sums), ReduceOp::sum);
  const auto classes = static_cast<std::size_t>(classes_);
  ClassCounts total;
  total.samples = sums[0];
  total.in_top5 = sums[1];
  const auto from = [&](std::size_t first) {
    return std::vector<std::int64_t>(sums.begin() + static_cast<std::ptrdiff_t>(first),
                                     sums.begin() + static_cast<std::ptrdiff_t>(first + classes));
  };
  total.of_class = from(kHead);
  total.right = from(kHead + classes);
  if (classes_ > kMostConfusedClasses) return total;
  for (std::size_t c = 0; c < classes; ++c) total.confusion.push_back(from(kHead + (2 + c) * classes));
  return total;
}

}  // namespace ddp
