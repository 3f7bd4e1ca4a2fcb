#include "model/layout_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <sstream>

#include "base/error.h"

namespace ddp {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();
constexpr std::string_view kTitle = "layout plan, version 1";

// One way to come to the output of a stage in a given layout: the cheapest so far.
struct Path {
  double seconds = kImpossible;
  KernelChoice choice;
  std::size_t previous = 0;  // index of the previous stage's layout
};
using Row = std::array<Path, kLayouts.size()>;

// The cost of handing the output of `before` on, from one layout to another; across a flatten only the layouts that
// keep PyTorch's order of a sample's elements are free.
double transfer_seconds(Backend& backend, const Stage& before, Layout from, Layout to, ChoiceMode mode) {
  if (from == to) return 0;
  const ReorderSpec spec{batch_of(before.spec), output_of(before.spec)};
  return backend.choose(spec, from, to, mode).seconds;
}

std::optional<Layout> layout_named(const std::string& name) {
  const auto* found = std::find_if(kLayouts.begin(), kLayouts.end(), [&](Layout l) { return to_string(l) == name; });
  return found == kLayouts.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

bool is_vector_layout(Layout layout) { return layout != Layout::nhwc; }

LayoutPlan plan_layouts(Backend& backend, const std::vector<Stage>& stages, ChoiceMode mode) {
  std::vector<Row> rows(stages.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (std::size_t l = 0; l < kLayouts.size(); ++l) {
      const Layout layout = kLayouts[l];
      const bool last = s + 1 == stages.size();
      if (!backend.supports(stages[s].spec, layout, layout) || (last && !is_vector_layout(layout))) continue;
      Path path{0, backend.choose(stages[s].spec, layout, layout, mode), 0};
      double arrival = s == 0 ? 0 : kImpossible;
      for (std::size_t p = 0; s > 0 && p < kLayouts.size(); ++p) {
        if (rows[s - 1][p].seconds == kImpossible || (stages[s].flattens && !is_vector_layout(layout))) continue;
        const double seconds =
            rows[s - 1][p].seconds + transfer_seconds(backend, stages[s - 1], kLayouts[p], layout, mode);
        if (seconds < arrival) {
          arrival = seconds;
          path.previous = p;
        }
      }
      path.seconds = arrival + path.choice.seconds;
      rows[s][l] = path;
    }
  }
  LayoutPlan plan;
  plan.stages.resize(stages.size());
  const auto cheapest = std::min_element(rows.back().begin(), rows.back().end(),
                                         [](const Path& a, const Path& b) { return a.seconds < b.seconds; });
  DDP_ASSERT(cheapest->seconds < kImpossible);
  plan.predicted_seconds = cheapest->seconds;
  auto index = static_cast<std::size_t>(cheapest - rows.back().begin());
  for (std::size_t s = stages.size(); s-- > 0;) {
    plan.stages[s] = {stages[s].name, kLayouts[index], rows[s][index].choice.kernels};
    index = rows[s][index].previous;
  }
  return plan;
}

std::string to_text(const LayoutPlan& plan) {
  std::string text = fmt::format("{}\npredicted {:.9f}\n", kTitle, plan.predicted_seconds);
  for (const StagePlan& stage : plan.stages) {
    text += fmt::format("{} {}{}{}\n", stage.name, to_string(stage.layout), stage.kernels.empty() ? "" : " ",
                        stage.kernels);
  }
  return text;
}

LayoutPlan layout_plan_from_text(const std::string& text, const std::vector<Stage>& stages) {
  std::istringstream lines(text);
  std::string line;
  std::string word;
  LayoutPlan plan;
  std::getline(lines, line);
  check(line == kTitle, ExitCode::preflight, "a layout plan begins with '{}', this one with '{}'", kTitle, line);
  check(static_cast<bool>(lines >> word >> plan.predicted_seconds) && word == "predicted", ExitCode::preflight,
        "a layout plan's second line is 'predicted SECONDS'");
  std::getline(lines, line);
  for (const Stage& stage : stages) {
    check(static_cast<bool>(std::getline(lines, line)), ExitCode::preflight, "the layout plan ends before stage {}",
          stage.name);
    std::istringstream words(line);
    std::string name;
    std::string layout;
    words >> name >> layout;
    const std::optional<Layout> known = layout_named(layout);
    check(name == stage.name && known.has_value(), ExitCode::preflight,
          "the layout plan's line '{}' does not belong to stage {} of this model", line, stage.name);
    std::string kernels;
    std::getline(words >> std::ws, kernels);
    plan.stages.push_back({name, *known, kernels});
  }
  return plan;
}

}  // namespace ddp
