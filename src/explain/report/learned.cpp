#include "explain/report/learned.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/text/text.h"
#include "explain/report/chart.h"
#include "explain/report/page.h"
#include "metrics/display/evaluation_text.h"

namespace ddp {
namespace {

// 0: unknown.
double steps_per_epoch(const ReportedRun& run) {
  if (run.timing && run.timing->facts.steps_per_epoch > 0) {
    return static_cast<double>(run.timing->facts.steps_per_epoch);
  }
  if (run.epochs.empty() || run.epochs.back().epoch == 0) return 0;
  return static_cast<double>(run.epochs.back().step) / static_cast<double>(run.epochs.back().epoch);
}

// Curves over epochs, with the steps below if they are those of all runs; over steps if an epoch is not known.
class Timeline {
 public:
  explicit Timeline(std::span<const ReportedRun> runs) {
    for (const ReportedRun& run : runs) {
      const double steps = steps_per_epoch(run);
      known_ = known_ && steps > 0;
      same_ = same_ && (steps_ == 0 || steps_ == steps);
      steps_ = steps;
    }
  }
  std::string label() const { return !known_ ? "step" : same_ ? "epoch, and step below" : "epoch"; }
  double steps_per_unit() const { return known_ && same_ ? steps_ : 0; }
  double at(const ReportedRun& run, std::int64_t step) const {
    return known_ ? static_cast<double>(step) / steps_per_epoch(run) : static_cast<double>(step);
  }

 private:
  bool known_ = true;
  bool same_ = true;
  double steps_ = 0;
};

using OfTraining = double (*)(const TrainRecord&);
using OfEvaluation = double (*)(const EvalRecord&);

std::string curve(std::span<const ReportedRun> runs, const std::string& title, OfTraining training,
                  OfEvaluation evaluation, bool from_zero = false) {
  const Timeline time(runs);
  LineChart chart{title, time.label(), {}, from_zero};
  chart.steps_per_unit = time.steps_per_unit();
  const bool both = training != nullptr && evaluation != nullptr;
  for (const ReportedRun& run : runs) {
    const std::string prefix = runs.size() > 1 ? run.name : "";
    const auto name = [&](const char* what) { return both ? prefix + (prefix.empty() ? "" : ", ") + what : run.name; };
    if (training != nullptr) {
      Series series{name("training"), {}};
      for (const TrainRecord& r : run.history.training) series.points.emplace_back(time.at(run, r.step), training(r));
      chart.series.push_back(std::move(series));
    }
    if (evaluation != nullptr) {
      Series series{name("test"), {}};
      for (const EvalRecord& r : run.history.evaluations) {
        series.points.emplace_back(time.at(run, r.step), evaluation(r));
      }
      chart.series.push_back(std::move(series));
    }
  }
  return line_chart(chart);
}

const EvalRecord* best_of(const ReportedRun& run) {
  const std::vector<EvalRecord>& all = run.history.evaluations;
  const auto best = std::max_element(
      all.begin(), all.end(), [](const EvalRecord& a, const EvalRecord& b) { return a.val_accuracy < b.val_accuracy; });
  return best == all.end() ? nullptr : &*best;
}

std::string accuracy_text(double share) { return std::isfinite(share) ? fmt::format("{:.2f}%", share * 100) : ""; }

std::string class_name(const ReportedRun& run, std::size_t label) {
  return label < run.classes.size() ? run.classes[label] : std::to_string(label);
}

std::string confusion(const ReportedRun& run) {
  const EvalRecord& last = run.history.evaluations.back();
  HeatMap map{
      fmt::format("confusion matrix after step {}, true class by row, answer by column: {}", last.step, run.name),
      {},
      {},
      {},
      false};
  for (std::size_t c = 0; c < last.confusion.size(); ++c) {
    const double accuracy = c < last.class_accuracy.size() ? last.class_accuracy[c] : std::nan("");
    map.rows.push_back(class_name(run, c) + (std::isfinite(accuracy) ? fmt::format(" ({:.1f}%)", accuracy * 100) : ""));
    map.columns.push_back(class_name(run, c));
    map.values.emplace_back(last.confusion[c].begin(), last.confusion[c].end());
  }
  return heat_map(map);
}

// "dog (5)", the most frequent wrong answer; or empty.
std::string most_confused(const ReportedRun& run, const EvalRecord& evaluation, std::size_t label) {
  if (label >= evaluation.confusion.size()) return "";
  const std::vector<std::int64_t>& row = evaluation.confusion[label];
  std::size_t most = label;
  for (std::size_t c = 0; c < row.size(); ++c) {
    if (c != label && row[c] > 0 && (most == label || row[c] > row[most])) most = c;
  }
  return most == label ? "" : fmt::format("{} ({})", class_name(run, most), row[most]);
}

std::string worst_classes(const ReportedRun& run) {
  constexpr std::size_t kShown = 10;
  const EvalRecord& last = run.history.evaluations.back();
  std::vector<std::size_t> order = worst_first(last.class_accuracy);
  if (order.size() < 2) return "";
  order.resize(std::min(order.size(), kShown));
  const std::vector<std::string> head = {"class", "accuracy", "most often taken for"};
  std::vector<std::vector<std::string>> rows;
  for (const std::size_t c : order) {
    rows.push_back({class_name(run, c), accuracy_text(last.class_accuracy[c]), most_confused(run, last, c)});
  }
  return fmt::format("<h3>worst classes: {}</h3>", html_text(run.name)) + html_table(head, rows, {1});
}

}  // namespace

std::string learned_table(std::span<const ReportedRun> runs) {
  const std::vector<std::string> head = {"run",           "model and data", "epochs",        "steps",
                                         "best accuracy", "of epoch",       "last accuracy", "last loss"};
  std::vector<std::vector<std::string>> rows;
  for (const ReportedRun& run : runs) {
    const EvalRecord* best = best_of(run);
    const std::int64_t steps = run.history.training.empty() ? 0 : run.history.training.back().step;
    const double epoch = steps_per_epoch(run);
    rows.push_back({run.name, run.options.model.model + ", " + run.options.data.dataset,
                    epoch > 0 ? fmt::format("{:.4g}", static_cast<double>(steps) / epoch) : "",
                    format_count(static_cast<std::uint64_t>(steps)),
                    best == nullptr ? "" : accuracy_text(best->val_accuracy),
                    best == nullptr ? "" : std::to_string(best->epoch),
                    best == nullptr ? "" : accuracy_text(run.history.evaluations.back().val_accuracy),
                    best == nullptr ? "" : fmt::format("{:.4f}", run.history.evaluations.back().val_loss)});
  }
  return html_table(head, rows, {2, 3, 4, 5, 6, 7});
}

std::string learned_curves(std::span<const ReportedRun> runs) {
  std::string html = "<div class='charts'>";
  html += curve(runs, "accuracy on the test images, percent", nullptr,
                [](const EvalRecord& r) { return 100 * r.val_accuracy; });
  html += curve(
      runs, "loss", [](const TrainRecord& r) { return r.loss; }, [](const EvalRecord& r) { return r.val_loss; });
  html += curve(runs, "top-5 accuracy on the test images, percent", nullptr,
                [](const EvalRecord& r) { return 100 * r.top5_accuracy.value_or(std::nan("")); });
  html += curve(
      runs, "learning rate", [](const TrainRecord& r) { return r.lr; }, nullptr, true);
  html += curve(
      runs, "gradient norm", [](const TrainRecord& r) { return r.grad_norm; }, nullptr, true);
  return html + "</div>";
}

std::string epoch_tables(std::span<const ReportedRun> runs) {
  const std::vector<std::string> head = {"epoch",         "step",          "training loss", "test loss",
                                         "test accuracy", "learning rate", "images/s",      "time"};
  std::string html;
  for (const ReportedRun& run : runs) {
    if (run.epochs.empty()) continue;
    std::vector<std::vector<std::string>> rows;
    for (const EpochRecord& e : run.epochs) {
      rows.push_back({std::to_string(e.epoch), format_count(static_cast<std::uint64_t>(e.step)),
                      fmt::format("{:.4f}", e.train_loss), e.val_loss ? fmt::format("{:.4f}", *e.val_loss) : "",
                      e.val_accuracy ? accuracy_text(*e.val_accuracy) : "", fmt::format("{:.3g}", e.lr),
                      e.images_per_second ? fmt::format("{:.0f}", *e.images_per_second) : "",
                      e.seconds ? format_duration(*e.seconds) : ""});
    }
    constexpr std::size_t kOpen = 12;
    html += fmt::format("<details{}><summary>epochs of {}</summary>{}</details>",
                        runs.size() == 1 && rows.size() <= kOpen ? " open" : "", html_text(run.name),
                        html_table(head, rows, {0, 1, 2, 3, 4, 5, 6, 7}));
  }
  return html;
}

std::string class_charts(std::span<const ReportedRun> runs) {
  std::string html;
  for (const ReportedRun& run : runs) {
    if (run.history.evaluations.empty()) continue;
    if (!run.history.evaluations.back().confusion.empty()) html += "<div class='charts'>" + confusion(run) + "</div>";
    html += worst_classes(run);
  }
  return html;
}

}  // namespace ddp
