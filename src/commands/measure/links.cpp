#include "commands/measure/links.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "base/clock.h"
#include "base/text/text.h"

namespace ddp {
namespace {

constexpr std::size_t kFirstBytes = std::size_t{64} << 10U;
constexpr std::size_t kMostBytes = std::size_t{16} << 20U;
// A round trip of this duration is long enough to measure.
constexpr double kLongEnough = 0.1;
// No further round starts after this many seconds.
constexpr double kMostSeconds = 12;
// A host whose links are all slower than the median by this factor is named.
constexpr double kSlowFactor = 3;

void send_size(Communicator& ranks, int to, std::uint64_t size) { ranks.send(std::as_bytes(std::span(&size, 1)), to); }
std::uint64_t receive_size(Communicator& ranks, int from) {
  std::uint64_t size = 0;
  ranks.receive(std::as_writable_bytes(std::span(&size, 1)), from);
  return size;
}

// Round trips, each with a larger message than the last, until one takes long enough.
double ping(Communicator& ranks, int peer, std::vector<std::byte>& buffer) {
  double rate = 0;
  for (std::size_t size = kFirstBytes;; size *= 8) {
    const std::size_t bytes = std::min(size, kMostBytes);
    buffer.resize(bytes);
    send_size(ranks, peer, bytes);
    const double begin = now();
    ranks.send(buffer, peer);
    ranks.receive(buffer, peer);
    const double seconds = std::max(now() - begin, 1e-9);
    rate = 2 * static_cast<double>(bytes) / seconds;
    if (seconds >= kLongEnough || bytes == kMostBytes) break;
  }
  send_size(ranks, peer, 0);
  return rate;
}

void answer(Communicator& ranks, int peer, std::vector<std::byte>& buffer) {
  while (const std::uint64_t bytes = receive_size(ranks, peer)) {
    buffer.resize(bytes);
    ranks.receive(buffer, peer);
    ranks.send(buffer, peer);
  }
}

std::string rate_text(double rate) { return fmt::format("{:.3g} MB/s", rate * 1e-6); }

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Links measure_links(Communicator& ranks, const Topology& topology) {
  Links links;
  links.of_hosts = topology.hosts > 1;
  std::vector<int> ends;  // the measuring ranks, by position
  for (std::size_t rank = 0; rank < topology.ranks.size(); ++rank) {
    const Topology::RankHost& place = topology.ranks[rank];
    if (links.of_hosts && place.host != static_cast<int>(ends.size())) continue;
    ends.push_back(static_cast<int>(rank));
    links.names.push_back(links.of_hosts ? place.host_name : fmt::format("rank {}", rank));
  }
  const int count = static_cast<int>(ends.size());
  if (count < 2) return links;
  const auto own = std::find(ends.begin(), ends.end(), ranks.rank());
  const int mine = own == ends.end() ? -1 : static_cast<int>(own - ends.begin());
  // All pairs, in rounds in which no rank occurs twice (round-robin): one position is fixed, the others rotate.
  const int places = count + count % 2;
  std::vector<double> rates(static_cast<std::size_t>(count));  // of the links measured by this rank, by position
  std::vector<std::byte> buffer;
  const double begin = now();
  for (int round = 0; round < places - 1; ++round) {
    int peer = -1;
    if (mine == places - 1) {
      for (int i = 0; i < places - 1; ++i) {
        if ((2 * i) % (places - 1) == round) peer = i;
      }
    } else if (mine >= 0) {
      peer = (round - mine + places - 1) % (places - 1);
      if (peer == mine) peer = places - 1;
    }
    if (mine >= 0 && peer >= 0 && peer < count) {
      const int other = ends[static_cast<std::size_t>(peer)];
      if (mine < peer) {
        rates[static_cast<std::size_t>(peer)] = ping(ranks, other, buffer);
      } else {
        answer(ranks, other, buffer);
      }
    }
    double seconds = now() - begin;
    ranks.all_reduce(std::span(&seconds, 1), ReduceOp::max);
    if (seconds > kMostSeconds) break;
  }
  std::vector<double> all(rates.size() * static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(rates)), std::as_writable_bytes(std::span(all)));
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b) {
      const auto row = static_cast<std::size_t>(ends[static_cast<std::size_t>(a)]) * rates.size();
      const double rate = all[row + static_cast<std::size_t>(b)];
      if (rate > 0) links.measured.push_back({a, b, rate});
    }
  }
  return links;
}

double slowest_rate(const Links& links) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const Link& link : links.measured) slowest = std::min(slowest, link.rate);
  return slowest;
}

std::string describe(const Links& links) {
  if (links.measured.empty()) return "";
  const auto name = [&](int place) { return links.names[static_cast<std::size_t>(place)]; };
  std::vector<double> rates;
  for (const Link& link : links.measured) rates.push_back(link.rate);
  const double median = median_of(rates);
  const Link slowest = *std::min_element(links.measured.begin(), links.measured.end(),
                                         [](const Link& a, const Link& b) { return a.rate < b.rate; });
  std::string text = fmt::format("links   {} between {}: {} at the median, the slowest {} - {} with {}\n",
                                 links.measured.size(), counted(links.names.size(), links.of_hosts ? "host" : "rank"),
                                 rate_text(median), name(slowest.a), name(slowest.b), rate_text(slowest.rate));
  // A slow host makes all of its links slow; compare it with the links of the others.
  for (int place = 0; place < static_cast<int>(links.names.size()); ++place) {
    double best = 0;
    std::vector<double> others;
    for (const Link& link : links.measured) {
      if (link.a == place || link.b == place) {
        best = std::max(best, link.rate);
      } else {
        others.push_back(link.rate);
      }
    }
    if (best > 0 && !others.empty() && best * kSlowFactor < median_of(others)) {
      text += fmt::format("slow    {}: its links carry {} at most, those between the others {}\n", name(place),
                          rate_text(best), rate_text(median_of(others)));
    }
  }
  return text;
}

}  // namespace ddp
