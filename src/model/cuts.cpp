#include "model/cuts.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace ddp {
namespace {

constexpr double kNoParts = std::numeric_limits<double>::infinity();

// Buffers are in the order of the stages. `begins(stage)`: where what a stage owns begins, -1: it owns nothing.
template <class Begins>
Range owned_by(const std::vector<Stage>& stages, const Range& some, std::int64_t all, Begins begins) {
  const auto first_from = [&](std::int64_t stage) {
    if (stage == 0) return std::int64_t{0};
    for (auto s = static_cast<std::size_t>(stage); s < stages.size(); ++s) {
      const std::int64_t begin = begins(stages[s]);
      if (begin >= 0) return begin;
    }
    return all;
  };
  return {first_from(some.begin), first_from(some.end)};
}

}  // namespace

std::vector<Cut> possible_cuts(const Graph& graph, const std::vector<Stage>& stages) {
  std::vector<Cut> cuts;
  // The earliest value that is read from a stage on.
  int earliest = std::numeric_limits<int>::max();
  for (std::size_t s = stages.size(); s-- > 1;) {
    for (const StageInput& input : stages[s].inputs) earliest = std::min(earliest, input.stage);
    if (earliest != static_cast<int>(s) - 1) continue;
    const auto place = static_cast<std::int64_t>(s);
    cuts.push_back({s, parameters_of(graph, stages, {place, place}).begin, 0});
  }
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

std::size_t most_parts(std::int64_t elements, std::span<const Cut> cuts) {
  std::size_t parts = 1;
  std::int64_t before = 0;
  for (const Cut& cut : cuts) {
    if (cut.offset == before || cut.offset == elements) continue;
    before = cut.offset;
    ++parts;
  }
  return parts;
}

std::vector<std::size_t> balanced_cuts(std::span<const double> seconds, std::int64_t elements,
                                       std::span<const Cut> cuts, std::size_t parts) {
  DDP_ASSERT(parts >= 1);
  // The ends of the parts: the beginning, the cuts, the end.
  std::vector<Cut> ends = {{0, 0, 0}};
  ends.insert(ends.end(), cuts.begin(), cuts.end());
  ends.push_back({seconds.size(), elements, 0});
  std::vector<double> until = {0};  // seconds of the stages before
  for (const double each : seconds) until.push_back(until.back() + each);
  const auto part = [&](std::size_t from, std::size_t to) {
    if (ends[from].offset == ends[to].offset) return kNoParts;
    return until[ends[to].stage] - until[ends[from].stage] + ends[from].seconds + ends[to].seconds;
  };
  // best[p][e]: the least time of the longest of p + 1 parts that end at e; from[p][e]: where the last of them begins.
  const std::size_t count = ends.size();
  std::vector<std::vector<double>> best(parts, std::vector<double>(count, kNoParts));
  std::vector<std::vector<std::size_t>> from(parts, std::vector<std::size_t>(count, 0));
  for (std::size_t e = 1; e < count; ++e) best[0][e] = part(0, e);
  for (std::size_t p = 1; p < parts; ++p) {
    for (std::size_t e = p + 1; e < count; ++e) {
      for (std::size_t begin = p; begin < e; ++begin) {
        const double longest = std::max(best[p - 1][begin], part(begin, e));
        if (longest >= best[p][e]) continue;
        best[p][e] = longest;
        from[p][e] = begin;
      }
    }
  }
  if (best[parts - 1][count - 1] == kNoParts) return {};
  std::vector<std::size_t> first(parts);
  std::size_t end = count - 1;
  for (std::size_t p = parts; p-- > 0;) {
    end = from[p][end];
    first[p] = ends[end].stage;
  }
  return first;
}

Range parameters_of(const Graph& graph, const std::vector<Stage>& stages, const Range& some) {
  return owned_by(stages, some, graph.flat_elements(), [&](const Stage& stage) {
    return stage.parameters.empty() ? std::int64_t{-1}
                                    : graph.parameters()[static_cast<std::size_t>(stage.parameters.front())].offset;
  });
}

Range statistics_of(const Graph& graph, const std::vector<Stage>& stages, const Range& some) {
  return owned_by(stages, some, graph.statistic_count(), [](const Stage& stage) { return stage.statistics; });
}

}  // namespace ddp
