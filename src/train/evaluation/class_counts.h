// What an evaluation counts by class: right answers, answers among the best five, and which class was taken for which.
//
//   ClassCounter counter(backend.device(), network, test.classes());
//   network.forward(Pass::evaluation, state, stage.samples(0, count), results);
//   counter.enqueue();                  // copies the logits to the host
//   backend.queue().synchronize();
//   counter.add(batch.labels);
//   ClassCounts counts = counter.total(ranks);   // collective: of all ranks
//
// As in the accuracy, the first of equal logits is the answer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/device_context.h"
#include "comm/communicator.h"
#include "model/network.h"

namespace ddp {

// Above this number of classes there is no confusion matrix.
inline constexpr std::int64_t kMostConfusedClasses = 100;

struct ClassCounts {
  std::int64_t samples = 0;
  std::int64_t in_top5 = 0;
  std::vector<std::int64_t> of_class;                // samples of each class
  std::vector<std::int64_t> right;                   // of these, with the right answer
  std::vector<std::vector<std::int64_t>> confusion;  // [class][answer]; empty for many classes

  // -1 without samples, or if there are no more than five classes.
  double top5_accuracy() const;
  // 0 to 1; NaN for a class without samples.
  std::vector<double> class_accuracy() const;
};

// The counts of some samples, from their logits.
struct LogitLoss {
  double loss_sum = 0;  // softmax cross-entropy
  std::int64_t correct = 0;
};

class ClassCounter {
 public:
  ClassCounter(const DeviceContext& device, const Network& network, std::int64_t classes);

  void clear();
  // The logits of the network's last forward.
  void enqueue();
  // Counts them, after synchronize().
  void add(std::span<const std::int32_t> labels);
  // For several views of the same samples: adds the logits of a view, after synchronize(), times `weight`; then counts the
  // sums, and begins anew.
  void add_view(std::size_t samples, float weight);
  LogitLoss count_views(std::span<const std::int32_t> labels);
  ClassCounts total(Communicator& ranks) const;

 private:
  void read_logits(std::size_t sample);
  bool count_row(std::int32_t label);

  DeviceQueue& queue_;
  const Network& network_;
  std::int64_t classes_;
  Memory logits_;  // on the host, as the device has them
  std::vector<float> row_;
  std::vector<float> view_sums_;  // [samples][classes]
  // Samples, in the top 5, then for each class its samples and right answers, then the confusion matrix.
  std::vector<std::int64_t> counts_;
};

}  // namespace ddp
