#include "model/layout_plan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/heartbeat.h"
#include "model/elimination.h"

namespace ddp {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();
constexpr std::string_view kTitle = "layout plan, version 1";

// Queries the backend once per distinct operator.
class Prices {
 public:
  Prices(Backend& backend, ChoiceMode mode) : backend_(backend), mode_(mode) {}

  KernelChoice of(const OpSpec& spec, Layout from, Layout to) {
    for (const Known& known : known_) {
      if (known.spec == spec && known.from == from && known.to == to) return known.choice;
    }
    known_.push_back({spec, from, to, backend_.ops().choose(spec, from, to, mode_)});
    return known_.back().choice;
  }

  // The cost of converting an output from one layout to another, forward and backward.
  double transfer(const Stage& before, Layout from, Layout to) {
    if (from == to) return 0;
    return of(ReorderSpec{batch_of(before.spec), output_of(before.spec)}, from, to).seconds;
  }

 private:
  struct Known {
    OpSpec spec;
    Layout from, to;
    KernelChoice choice;
  };

  Backend& backend_;
  ChoiceMode mode_;
  std::vector<Known> known_;
};

std::optional<Layout> layout_named(const std::string& name) {
  const auto* found = std::find_if(kLayouts.begin(), kLayouts.end(), [&](Layout l) { return to_string(l) == name; });
  return found == kLayouts.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

bool is_vector_layout(Layout layout) { return layout != Layout::nhwc; }

LayoutPlan plan_layouts(Backend& backend, const std::vector<Stage>& stages, ChoiceMode mode) {
  constexpr std::size_t kChoices = kLayouts.size();
  Prices prices(backend, mode);
  Elimination problem(stages.size(), kChoices);
  // Timing a reorder on a GPU takes seconds, so only layouts supported on both sides are queried.
  const auto usable = [&](std::size_t s, Layout layout) {
    const bool last = s + 1 == stages.size();
    const bool vector = last || std::any_of(stages[s].inputs.begin(), stages[s].inputs.end(),
                                            [](const StageInput& input) { return input.flattens; });
    return backend.ops().supports(stages[s].spec, layout, layout) && (!vector || is_vector_layout(layout));
  };
  for (std::size_t s = 0; s < stages.size(); ++s) {
    heartbeat();
    std::vector<double> costs(kChoices, kImpossible);
    for (std::size_t l = 0; l < kChoices; ++l) {
      if (usable(s, kLayouts[l])) costs[l] = prices.of(stages[s].spec, kLayouts[l], kLayouts[l]).seconds;
    }
    problem.add({s}, costs);
    for (const StageInput& input : stages[s].inputs) {
      if (input.stage < 0) continue;
      const auto before = static_cast<std::size_t>(input.stage);
      std::vector<double> transfers(kChoices * kChoices, kImpossible);
      for (std::size_t from = 0; from < kChoices; ++from) {
        for (std::size_t to = 0; to < kChoices; ++to) {
          if (!usable(before, kLayouts[from]) || !usable(s, kLayouts[to])) continue;
          heartbeat();
          transfers[from * kChoices + to] = prices.transfer(stages[before], kLayouts[from], kLayouts[to]);
        }
      }
      problem.add({before, s}, transfers);
    }
  }
  const Elimination::Best best = problem.minimize();
  DDP_ASSERT(best.cost < kImpossible);
  LayoutPlan plan;
  plan.predicted_seconds = best.cost;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Layout layout = kLayouts.at(best.choices[s]);
    plan.stages.push_back({stages[s].name, layout, prices.of(stages[s].spec, layout, layout).kernels});
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
  check(line == kTitle, ExitCode::preflight, "a layout plan starts with '{}', but this one with '{}'", kTitle, line);
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
