#include "explain/scaling_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/text/text.h"
#include "base/text/text_table.h"
#include "explain/findings.h"
#include "explain/report/chart.h"

namespace ddp {
namespace {

// The further numbers of ranks that are estimated: so many doublings.
constexpr int kDoublings = 3;
// The batch of the answer, if a larger one would help.
constexpr std::int64_t kAnswerBatch = 4;
// A gain below this is not worth a sentence, nor is a cause that costs less.
constexpr double kWorthwhile = 0.05;
constexpr double kWell = 0.95;
constexpr int kBarWidth = 40;

struct NamedLoss {
  const char* column;
  const char* sentence;
  double Lost::*seconds;
};
constexpr std::array kLosses = {
    NamedLoss{"communication", "is communication that nothing hides", &Lost::communication},
    NamedLoss{"slower ranks", "is spent waiting for slower ranks", &Lost::slower_ranks},
    NamedLoss{"input", "is spent waiting for data", &Lost::input},
    NamedLoss{"smaller batch", "is lost because a smaller batch per rank computes each image more slowly",
              &Lost::smaller_batch},
    NamedLoss{"shared host", "is lost because the ranks of a host share its cores, caches and memory",
              &Lost::shared_host},
    NamedLoss{"update", "is the update and the work of the host, which every rank does", &Lost::update}};

constexpr NamedLoss kSharedGpu{"shared GPU", "is lost because ranks share a GPU", &Lost::shared_host};

std::array<NamedLoss, kLosses.size()> losses_of(const ScalingStudy& study) {
  std::array losses = kLosses;
  for (NamedLoss& loss : losses) {
    if (study.shares_gpus && loss.seconds == kSharedGpu.seconds) loss = kSharedGpu;
  }
  return losses;
}

ScalingModel whole_model(const ScalingStudy& study) {
  std::vector<ScalingPoint> points = study.strong;
  if (study.one_predicted) points.erase(points.begin());
  points.insert(points.end(), study.weak.begin(), study.weak.end());
  points.insert(points.end(), study.crowded.begin(), study.crowded.end());
  return fit_scaling(points, study.root);
}

double strong_speedup(const ScalingStudy& study, const ScalingPoint& point) {
  return study.strong.front().step.training() / point.step.training();
}

// The layout of so many times as many ranks, on more hosts like those of the job.
ScalingLayout on_more_hosts(const ScalingLayout& layout, std::int64_t times) {
  ScalingLayout more = layout;
  more.ranks *= times;
  return more;
}

// Estimates with the same global batch, as far as every rank has an image.
std::vector<std::pair<ScalingLayout, double>> estimates(const ScalingStudy& study, const ScalingModel& model) {
  std::vector<std::pair<ScalingLayout, double>> found;
  const ScalingLayout& last = study.strong.back().layout;
  if (!model.communicates) return found;
  for (int i = 1; i <= kDoublings; ++i) {
    const ScalingLayout layout = on_more_hosts(last, std::int64_t{1} << i);
    if (layout.ranks > layout.global_batch) break;
    found.emplace_back(layout, study.strong.front().step.training() / model.predict(layout).training());
  }
  return found;
}

std::string share_text(double share) { return fmt::format("{:.1f}%", share * 100 + 0.0); }

std::string table(const ScalingStudy& study, const ScalingModel& model, bool weak) {
  const std::span<const ScalingPoint> points = weak ? study.weak : study.strong;
  const auto losses = losses_of(study);
  std::vector<std::vector<std::string>> rows = {
      {"ranks", "hosts", "batch", "ms/step", "images/s", "speedup", "efficiency"}};
  for (const NamedLoss& loss : losses) rows[0].emplace_back(loss.column);
  const ScalingPoint& one = points.front();
  for (const ScalingPoint& point : points) {
    const double step = point.step.training();
    const double speedup = point.images_per_second() / one.images_per_second();
    std::vector<std::string> row = {std::to_string(point.layout.ranks),
                                    std::to_string(point.hosts),
                                    std::to_string(point.layout.global_batch),
                                    fmt::format("{:.3g}", step * 1e3),
                                    fmt::format("{:.0f}", point.images_per_second()),
                                    fmt::format("{:.2f}x", speedup),
                                    share_text(speedup / static_cast<double>(point.layout.ranks))};
    if (point.layout.ranks > 1) {
      const Lost lost = lost_time(point, one, model);
      for (const NamedLoss& loss : losses) row.push_back(share_text(lost.*loss.seconds / step));
    }
    rows.push_back(std::move(row));
  }
  return (weak ? "weak scaling: the same batch per rank; shares of a step that are lost, by cause\n"
               : "strong scaling: the same global batch; shares of a step that are lost, by cause\n") +
         text_table(rows, std::vector(rows[0].size(), Align::right)) + "\n";
}

std::string model_text(const ScalingModel& model) {
  std::string text =
      fmt::format("model: {:.3g} ms + {:.3g} us per image forward and backward, {:.3g} ms update and host",
                  model.compute_fixed * 1e3, model.compute_per_image * 1e6,
                  (model.optimizer + model.divided_optimizer + model.other) * 1e3);
  if (model.host_sharing > 0) {
    text += fmt::format(", {} more for each further rank of a host", share_text(model.host_sharing));
  }
  if (model.core_sharing != 1) {
    text += fmt::format(", {} more for each further thread on a core", share_text(model.core_sharing));
  }
  if (model.communicates) {
    text += fmt::format("; {:.3g} us per message", model.message_seconds * 1e6);
    if (model.bandwidth > 0) {
      text += fmt::format(", {}/s per rank", format_bytes(static_cast<std::uint64_t>(model.bandwidth)));
    }
    if (model.delay > 0) text += fmt::format(" and {:.3g} ms of delay", model.delay * 1e3);
    if (model.unhidden < 1) text += fmt::format(", {} of it exposed", share_text(model.unhidden));
    text += fmt::format("; ranks vary by {}", share_text(model.jitter));
    if (model.core_turns > 0) {
      text += fmt::format(" and wait {} longer for each further thread on a core", share_text(model.core_turns));
    }
  }
  return text + "\n";
}

std::string bar(double speedup, double most, char mark) {
  const auto length = static_cast<std::size_t>(std::lround(speedup / most * kBarWidth));
  return std::string(std::clamp<std::size_t>(length, 1, kBarWidth), mark);
}

std::string curve(const ScalingStudy& study, const ScalingModel& model) {
  const std::vector<std::pair<ScalingLayout, double>> further = estimates(study, model);
  double most = 1;
  for (const ScalingPoint& point : study.strong) most = std::max(most, strong_speedup(study, point));
  for (const auto& [layout, speedup] : further) most = std::max(most, speedup);
  std::vector<std::vector<std::string>> rows = {{"ranks", "speedup", "# measured, . estimated"}};
  for (const ScalingPoint& point : study.strong) {
    const double speedup = strong_speedup(study, point);
    const bool guessed = study.one_predicted && point.layout.ranks == 1;
    rows.push_back(
        {std::to_string(point.layout.ranks), fmt::format("{:.2f}x", speedup), bar(speedup, most, guessed ? '.' : '#')});
  }
  for (const auto& [layout, speedup] : further) {
    rows.push_back({std::to_string(layout.ranks), fmt::format("{:.2f}x", speedup), bar(speedup, most, '.')});
  }
  return text_table(rows, std::vector{Align::right, Align::right, Align::left});
}

}  // namespace

std::vector<ScalingCheck> check_predictions(const ScalingStudy& study) {
  std::vector<ScalingCheck> checks;
  for (const ScalingPoint& point : study.strong) {
    if (point.layout.ranks <= 2) continue;
    std::vector<ScalingPoint> fewer;
    for (const auto* series : {&study.strong, &study.weak, &study.crowded}) {
      for (const ScalingPoint& other : *series) {
        const bool guessed = series == &study.strong && study.one_predicted && other.layout.ranks == 1;
        if (!guessed && 2 * other.layout.ranks <= point.layout.ranks) fewer.push_back(other);
      }
    }
    const double predicted = fit_scaling(fewer, study.root).predict(point.layout).training();
    checks.push_back({point.layout, predicted, point.step.training()});
  }
  return checks;
}

std::string scaling_text(const ScalingStudy& study) {
  const ScalingModel model = whole_model(study);
  std::string text = study.title + "\n\n" + table(study, model, false);
  if (study.one_predicted) text += "1 rank is predicted: this batch does not fit into its memory\n\n";
  text += table(study, model, true) + model_text(model);
  for (const ScalingCheck& check : check_predictions(study)) {
    text += fmt::format("check: {} ranks: {:.3g} ms predicted from at most {}, {:.3g} ms measured ({:+.1f}%)\n",
                        check.layout.ranks, check.predicted * 1e3, check.layout.ranks / 2, check.measured * 1e3,
                        check.error() * 100);
  }
  return text + "\n" + curve(study, model);
}

std::string scaling_svg(const ScalingStudy& study) {
  const ScalingModel model = whole_model(study);
  LineChart chart{"speedup over 1 rank: " + study.title, "ranks", {}, true, true};
  Series strong{"the same global batch", {}};
  Series estimated{"the same global batch, estimated", {}};
  Series weak{"the same batch per rank", {}};
  Series ideal{"ideal", {}};
  for (const ScalingPoint& point : study.strong) {
    strong.points.emplace_back(point.layout.ranks, strong_speedup(study, point));
  }
  estimated.points.push_back(strong.points.back());
  for (const auto& [layout, speedup] : estimates(study, model)) estimated.points.emplace_back(layout.ranks, speedup);
  for (const ScalingPoint& point : study.weak) {
    weak.points.emplace_back(point.layout.ranks, point.images_per_second() / study.weak.front().images_per_second());
  }
  ideal.points = {{1, 1}, {strong.points.back().first, strong.points.back().first}};
  chart.series = {std::move(strong), std::move(weak), std::move(estimated), std::move(ideal)};
  return svg_file(chart);
}

std::string scaling_answer(const ScalingStudy& study, std::span<const Cure> cures) {
  const ScalingPoint& last = study.strong.back();
  if (last.layout.ranks == 1) return "there is one rank only; start more with mpirun -np N, or launch/run";
  const ScalingModel model = whole_model(study);
  const double speedup = strong_speedup(study, last);
  std::string text = fmt::format("{} ranks give {:.2f}x the images/s of 1 rank", last.layout.ranks, speedup);
  if (speedup >= kWell * static_cast<double>(last.layout.ranks)) return text + "; nothing that matters is lost";
  const Lost lost = lost_time(last, study.strong.front(), model);
  auto causes = losses_of(study);
  std::stable_sort(causes.begin(), causes.end(),
                   [&](const NamedLoss& a, const NamedLoss& b) { return lost.*a.seconds > lost.*b.seconds; });
  for (std::size_t i = 0; i < 2; ++i) {
    const double share = lost.*causes[i].seconds / last.step.training();
    if (i > 0 && share < kWorthwhile) break;
    text += fmt::format("{} {} of a step {}", i == 0 ? ", because" : ", and", percent(share), causes[i].sentence);
  }
  for (const Cure& cure : cures) {
    if (cure.changes_training || cure.speedup < 1 + kWorthwhile) continue;
    return text + fmt::format("; with {} it would be {:.2f}x (predicted)", cure.text(), speedup * cure.speedup);
  }
  ScalingLayout larger = last.layout;
  larger.global_batch *= kAnswerBatch;
  ScalingLayout one = study.strong.front().layout;
  one.global_batch = larger.global_batch;
  const double larger_speedup = model.predict(one).training() / model.predict(larger).training();
  if (larger_speedup < speedup * (1 + kWorthwhile)) return text + "; no option is known to change that";
  return text + fmt::format("; with --global-batch {} it would be {:.2f}x that of 1 rank with such a batch (predicted)",
                            larger.global_batch, larger_speedup);
}

}  // namespace ddp
