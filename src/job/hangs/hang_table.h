// The table of a hang: what every rank is doing, with the ranks marked for which the others wait, and why.
//
//   set_hang_folder("runs/a");                           // by the command, once it is known
//   std::vector<RankState> ranks = rank_states(60);      // job/hangs/pulse_exchange.h
//   mark_suspects(ranks, {.kind = Finding::Kind::silent, .ranks = {1}});
//   fmt::print(stderr, "{}", short_hang_table(ranks));
//   const std::string path = write_hang_table(hang_table(ranks), /*rank=*/0);   // "runs/a/hang-20260301-120000.txt"
//
// It is made by the lowest rank that is heard, of what the ranks tell one another from a thread of their own
// (job/hangs/pulse_exchange.h).
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "job/hangs/pulse_board.h"

namespace ddp {

// What is known of one rank.
struct RankState {
  int rank = 0;
  std::string host;
  pid_t process = 0;
  Pulse pulse;
  Report report;
  double seconds_stuck = 0;
  double seconds_silent = 0;
  bool silent = false;
  bool gone = false;     // its process has ended; known on its host only
  bool answers = false;  // its process is there and not stopped; known on its host only
  std::string suspect;   // why the others wait for it, or ""
};

// Into a text of fixed length, cut off if it is longer.
template <std::size_t kSize>
void copy_text(std::array<char, kSize>& to, const std::string& from) {
  to.fill(0);
  std::copy_n(from.begin(), std::min(from.size(), kSize - 1), to.begin());
}

// What a rank is doing that leaves the run because of an error which it does not report itself: this and the error.
inline constexpr std::string_view kLeavingAfter = "leaving after: ";

// "rank 2 on host a (process 4711) is in its loader (step 7, data)", of a suspect.
std::string suspect_text(const RankState& state);

// Fills in `suspect`. In a cycle the ranks that are behind the others, or elsewhere, are suspects; there may be none.
void mark_suspects(std::vector<RankState>& ranks, const Finding& finding);

// One line for each rank, below a line that explains the table.
std::string hang_table(const std::vector<RankState>& ranks);

// At most `most` of the lines: the suspects, then the others by rank.
std::string short_hang_table(const std::vector<RankState>& ranks, std::size_t most = 32);

// The run folder. Unless it exists on this host, tables are not written.
void set_hang_folder(const std::filesystem::path& folder);
// Writes the table to hang-TIME.txt, or hang-TIME-rankN.txt for a `rank` other than 0, since both sides of a broken link write
// one. Returns its path, or "" if it could not be written within two seconds.
std::string write_hang_table(const std::string& text, int rank);

}  // namespace ddp
