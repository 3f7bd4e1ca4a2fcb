#include "model/layout_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/status/heartbeat.h"
#include "model/elimination.h"
#include "model/joins.h"

namespace ddp {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();
constexpr std::string_view kTitle = "layout plan, version 1";
// In front of a stage's kernels.
constexpr std::string_view kSeparate = "separate";

// Whether a stage can be computed in a layout. Timing a reorder on a GPU takes seconds, so only layouts supported on
// both sides are queried, and a reorder of the logits only if there is no other way. A linear layer reads an image that is
// flattened, and writes a vector, in any layout that it supports.
bool is_usable(const OpFactory& ops, const std::vector<Stage>& stages, std::size_t s, Layout layout) {
  const auto supported = [&](Layout which) { return ops.supports(stages[s].spec, which, which); };
  if (!supported(layout) || writes_vectors(stages[s].spec, layout)) return supported(layout);
  if (std::any_of(stages[s].inputs.begin(), stages[s].inputs.end(), [](const StageInput& in) { return in.flattens; })) {
    return false;
  }
  return s + 1 < stages.size() || std::none_of(kLayouts.begin(), kLayouts.end(), [&](Layout other) {
           return is_vector_layout(other) && supported(other);
         });
}

KernelQuery reorder_after(const Stage& stage, Layout from, Layout to) {
  return {ReorderSpec{batch_of(stage.spec), output_of(stage.spec)}, from, to};
}

std::vector<OpSpec> specs_of(const KernelQuery& query) {
  std::vector<OpSpec> specs = {query.spec};
  specs.insert(specs.end(), query.rest.begin(), query.rest.end());
  return specs;
}

// Whether the joined operators of `some` are the first of those of `all`.
bool begins(const KernelQuery& some, const KernelQuery& all) {
  return some.rest.size() < all.rest.size() && some.spec == all.spec && some.to == all.to &&
         std::equal(some.rest.begin(), some.rest.end(), all.rest.begin());
}

// Calls f(query, first stage) for all stages that can be joined, where they may have the layout.
template <class F>
void each_join(OpFactory& ops, const std::vector<Stage>& stages, F f) {
  for (const Layout layout : kLayouts) {
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (!is_usable(ops, stages, s, layout)) continue;
      for (std::size_t count = joined_stages(ops, stages, s, layout); count > 1;
           count = joined_stages(ops, stages, s, layout, count - 1)) {
        if (!is_usable(ops, stages, s + count - 1, layout)) continue;
        f(KernelQuery{stages[s].spec, layout, layout, specs_of(stages, s + 1, count - 1)}, s);
      }
    }
  }
}

// Stages that one operator could compute, all in one layout, and the time that this takes.
struct Join {
  std::size_t first, count;
  double seconds;
};

// Removes the joins that are not in the fastest way to compute all stages in one layout. Returns the stages that are separate
// from those after them though an operator could compute both.
std::vector<std::size_t> keep_fastest_joins(const std::vector<double>& separate, std::vector<Join>& joins) {
  const std::size_t count = separate.size();
  // A stage that cannot have the layout makes no difference between the ways, unless it can be joined.
  constexpr double kProhibitive = 1e9;
  const auto seconds = [&](std::size_t s) {
    const bool covered = std::any_of(joins.begin(), joins.end(),
                                     [&](const Join& join) { return join.first <= s && s < join.first + join.count; });
    return separate[s] < kImpossible ? separate[s] : covered ? kProhibitive : 0;
  };
  std::vector<double> best(count + 1, 0);  // of the stages from one on
  std::vector<const Join*> chosen(count, nullptr);
  for (std::size_t s = count; s-- > 0;) {
    best[s] = seconds(s) + best[s + 1];
    for (const Join& join : joins) {
      if (join.first != s || join.seconds + best[s + join.count] >= best[s]) continue;
      best[s] = join.seconds + best[s + join.count];
      chosen[s] = &join;
    }
  }
  std::vector<std::size_t> separated;
  std::vector<Join> kept;
  for (std::size_t s = 0; s < count;) {
    const std::size_t together = chosen[s] == nullptr ? 1 : chosen[s]->count;
    const bool more = std::any_of(joins.begin(), joins.end(),
                                  [&](const Join& join) { return join.first == s && join.count > together; });
    if (chosen[s] != nullptr) kept.push_back(*chosen[s]);
    s += together;
    if (more) separated.push_back(s - 1);
  }
  joins = std::move(kept);
  return separated;
}

// Where all stages of a join have layout number `layout`, their times count as that of one operator.
void add_gain(Elimination& problem, const Join& join, std::size_t layout, const std::vector<double>& separate) {
  std::vector<std::size_t> variables;
  double gain = join.seconds;
  std::size_t place = 0;
  std::size_t combinations = 1;
  for (std::size_t s = join.first; s < join.first + join.count; ++s) {
    variables.push_back(s);
    gain -= separate[s];
    place = place * kLayouts.size() + layout;
    combinations *= kLayouts.size();
  }
  std::vector<double> gains(combinations, 0.0);
  gains[place] = gain;
  problem.add(variables, gains);
}

std::optional<Layout> layout_named(const std::string& name) {
  const auto* found = std::find_if(kLayouts.begin(), kLayouts.end(), [&](Layout l) { return to_string(l) == name; });
  return found == kLayouts.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

bool is_vector_layout(Layout layout) { return layout != Layout::nhwc; }
bool writes_vectors(const OpSpec& spec, Layout layout) {
  return is_vector_layout(layout) || std::holds_alternative<LinearSpec>(spec);
}

std::vector<KernelQuery> kernel_queries(OpFactory& ops, const std::vector<Stage>& stages) {
  std::vector<KernelQuery> queries;
  const auto add = [&](const KernelQuery& query) {
    if (std::find(queries.begin(), queries.end(), query) == queries.end()) queries.push_back(query);
  };
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const Layout to : kLayouts) {
      if (!is_usable(ops, stages, s, to)) continue;
      add({stages[s].spec, to, to});
      for (const StageInput& input : stages[s].inputs) {
        if (input.stage < 0) continue;
        const auto before = static_cast<std::size_t>(input.stage);
        for (const Layout from : kLayouts) {
          if (from != to && is_usable(ops, stages, before, from)) add(reorder_after(stages[before], from, to));
        }
      }
      if (s + 1 == stages.size() && !writes_vectors(stages[s].spec, to))
        add(reorder_after(stages[s], to, kLayoutOfReorderedLogits));
    }
  }
  each_join(ops, stages, [&](const KernelQuery& query, std::size_t /*first*/) { add(query); });
  std::stable_sort(queries.begin(), queries.end(), [](const KernelQuery& a, const KernelQuery& b) {
    return forward_multiply_adds(a.spec) > forward_multiply_adds(b.spec);
  });
  return queries;
}

LayoutPlan plan_layouts(OpFactory& ops, const std::vector<Stage>& stages, std::span<const KernelQuery> queries,
                        std::span<const KernelChoice> answers) {
  DDP_ASSERT(queries.size() == answers.size());
  const auto find = [&](const KernelQuery& query) -> const KernelChoice* {
    const auto found = std::find(queries.begin(), queries.end(), query);
    return found == queries.end() ? nullptr : &answers[static_cast<std::size_t>(found - queries.begin())];
  };
  const auto answer = [&](const KernelQuery& query) -> const KernelChoice& {
    const KernelChoice* found = find(query);
    DDP_ASSERT(found != nullptr);
    return *found;
  };
  constexpr std::size_t kChoices = kLayouts.size();
  Elimination problem(stages.size(), kChoices);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    std::vector<double> costs(kChoices, kImpossible);
    for (std::size_t l = 0; l < kChoices; ++l) {
      const Layout layout = kLayouts[l];
      if (!is_usable(ops, stages, s, layout)) continue;
      costs[l] = answer({stages[s].spec, layout, layout}).seconds;
      if (s + 1 == stages.size() && !writes_vectors(stages[s].spec, layout)) {
        costs[l] += answer(reorder_after(stages[s], layout, kLayoutOfReorderedLogits)).seconds;
      }
    }
    problem.add({s}, costs);
    for (const StageInput& input : stages[s].inputs) {
      if (input.stage < 0) continue;
      const auto before = static_cast<std::size_t>(input.stage);
      std::vector<double> transfers(kChoices * kChoices, kImpossible);
      for (std::size_t from = 0; from < kChoices; ++from) {
        for (std::size_t to = 0; to < kChoices; ++to) {
          if (!is_usable(ops, stages, before, kLayouts[from]) || !is_usable(ops, stages, s, kLayouts[to])) continue;
          transfers[from * kChoices + to] =
              from == to ? 0 : answer(reorder_after(stages[before], kLayouts[from], kLayouts[to])).seconds;
        }
      }
      problem.add({before, s}, transfers);
    }
  }
  std::array<std::vector<std::size_t>, kChoices> separations;  // stages that are faster without those after them
  std::array<std::vector<Join>, kChoices> joins;
  each_join(ops, stages, [&](const KernelQuery& query, std::size_t first) {
    const KernelChoice* joined = find(query);
    const auto layout = std::find(kLayouts.begin(), kLayouts.end(), query.to) - kLayouts.begin();
    if (joined == nullptr) return;
    joins.at(static_cast<std::size_t>(layout)).push_back({first, query.rest.size() + 1, joined->seconds});
  });
  for (std::size_t l = 0; l < kChoices; ++l) {
    std::vector<double> separate;
    for (const Stage& stage : stages) {
      const KernelChoice* choice = find({stage.spec, kLayouts[l], kLayouts[l]});
      separate.push_back(choice == nullptr ? kImpossible : choice->seconds);
    }
    separations[l] = keep_fastest_joins(separate, joins[l]);
    for (const Join& join : joins[l]) add_gain(problem, join, l, separate);
  }
  const Elimination::Best best = problem.minimize();
  DDP_ASSERT(best.cost < kImpossible);
  LayoutPlan plan;
  plan.predicted_seconds = best.cost;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Layout layout = kLayouts.at(best.choices[s]);
    const std::vector<std::size_t>& slow = separations[best.choices[s]];
    const bool separate = std::find(slow.begin(), slow.end(), s) != slow.end();
    plan.stages.push_back({stages[s].name, layout, answer({stages[s].spec, layout, layout}).kernels, separate});
  }
  return plan;
}

KernelChoice timed_answer(OpFactory& ops, const KernelQuery& query) {
  if (query.rest.empty()) return ops.chooser().choose(query.spec, query.from, query.to, ChoiceMode::timed);
  return {"", ops.chooser().joined_seconds(specs_of(query), query.to)};
}

LayoutPlan plan_layouts(Backend& backend, const std::vector<Stage>& stages, ChoiceMode mode) {
  OpFactory& ops = backend.ops();
  std::vector<KernelQuery> queries = kernel_queries(ops, stages);
  // Those that are not asked for are joined; those that are not expected to be faster have no finite time, unless they are the
  // beginning of others that are.
  const auto asks = [&](const KernelQuery& query) {
    if (mode == ChoiceMode::timed) return true;
    if (ops.chooser().expects_gain(specs_of(query))) return false;
    return std::none_of(queries.begin(), queries.end(), [&](const KernelQuery& other) {
      return begins(query, other) && ops.chooser().expects_gain(specs_of(other));
    });
  };
  std::vector<KernelQuery> asked;
  for (const KernelQuery& query : queries) {
    if (query.rest.empty() || asks(query)) asked.push_back(query);
  }
  queries = std::move(asked);
  std::vector<KernelChoice> answers;
  for (const KernelQuery& query : queries) {
    heartbeat();
    if (mode == ChoiceMode::timed) {
      answers.push_back(timed_answer(ops, query));
    } else {
      answers.push_back(query.rest.empty() ? ops.chooser().choose(query.spec, query.from, query.to, mode)
                                           : KernelChoice{"", std::numeric_limits<double>::infinity()});
    }
  }
  return plan_layouts(ops, stages, queries, answers);
}

std::string to_text(const LayoutPlan& plan) {
  std::string text = fmt::format("{}\npredicted {:.9f}\n", kTitle, plan.predicted_seconds);
  for (const StagePlan& stage : plan.stages) {
    text += fmt::format("{} {}{}{}{}{}\n", stage.name, to_string(stage.layout), stage.separate ? " " : "",
                        stage.separate ? kSeparate : "", stage.kernels.empty() ? "" : " ", stage.kernels);
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
    const bool separate = kernels == kSeparate || kernels.starts_with(fmt::format("{} ", kSeparate));
    if (separate) kernels.erase(0, std::min(kernels.size(), kSeparate.size() + 1));
    plan.stages.push_back({name, *known, kernels, separate});
  }
  return plan;
}

}  // namespace ddp
