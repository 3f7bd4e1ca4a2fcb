#include "train/plan/time_kernels.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <system_error>

#include "base/error.h"
#include "base/status/heartbeat.h"
#include "base/status/set_up_progress.h"
#include "job/report.h"
#include "machine/topology.h"

namespace ddp {
namespace {

// The ranks that take part, ascending.
std::vector<int> sharing_ranks(const MpiSession& session, Communicator& ranks, const Device& device,
                               const OpFactory& ops) {
  if (ranks.size() == 1 || device.gpu_module != nullptr) return {0};
  const Topology topology = discover_topology(session);
  const std::vector<std::string> kernels = ranks.all_gather_text(ops.traits().fingerprint, "the kernels of each rank");
  std::vector<int> sharing;
  for (std::size_t r = 0; r < kernels.size(); ++r) {
    if (topology.ranks[r].host == topology.ranks[0].host && kernels[r] == kernels[0]) {
      sharing.push_back(static_cast<int>(r));
    }
  }
  return sharing;
}

std::string to_line(const KernelChoice& choice) { return fmt::format("{} {}\n", choice.seconds, choice.kernels); }

KernelChoice choice_from(std::istream& lines) {
  KernelChoice choice;
  std::string line;
  std::getline(lines, line);
  std::istringstream words(line);
  std::string seconds;
  words >> seconds;
  // Streams do not read infinity, the time of what cannot be joined.
  const auto read = std::from_chars(seconds.data(), seconds.data() + seconds.size(), choice.seconds);
  DDP_ASSERT(read.ec == std::errc());
  std::getline(words >> std::ws, choice.kernels);
  return choice;
}

}  // namespace

TimedKernels time_kernels(const MpiSession& session, Communicator& ranks, const Device& device, OpFactory& ops,
                          const std::vector<Stage>& stages) {
  TimedKernels timed;
  timed.queries = kernel_queries(ops, stages);
  const std::vector<int> sharing = sharing_ranks(session, ranks, device, ops);
  timed.ranks = static_cast<int>(sharing.size());
  // Queries are in order of their work, so that dealing them out gives each rank about as much.
  const auto mine = std::find(sharing.begin(), sharing.end(), ranks.rank());
  const std::string answers = together(session, [&] {
    std::string text;
    const SetUpProgress progress("timing kernels", std::ssize(timed.queries));
    if (mine == sharing.end()) return text;
    for (auto q = static_cast<std::size_t>(mine - sharing.begin()); q < timed.queries.size(); q += sharing.size()) {
      heartbeat();
      progress.advance(std::ssize(sharing));
      text += to_line(timed_answer(ops, timed.queries[q]));
    }
    return text;
  });
  const std::vector<std::string> all = ranks.all_gather_text(answers, "the times of kernels");
  if (ranks.rank() != 0) return timed;
  std::vector<std::istringstream> texts;
  for (const int rank : sharing) texts.emplace_back(all[static_cast<std::size_t>(rank)]);
  for (std::size_t q = 0; q < timed.queries.size(); ++q) timed.answers.push_back(choice_from(texts[q % texts.size()]));
  return timed;
}

}  // namespace ddp
