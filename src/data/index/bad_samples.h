// Counts unreadable samples, each once, and ends the run if there are too many.
//
//   BadSamples bad(/*allowed=*/10);
//   bad.report("data/cats/7.jpg", "is truncated");   // a warning, or Error(data) at the eleventh
//
// report() is thread-safe. Each rank counts only the samples that it reads itself.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>

namespace ddp {

class BadSamples {
 public:
  explicit BadSamples(std::int64_t allowed) : allowed_(allowed) {}

  // Throws Error(data) if the file exceeds the allowed number. One that was reported before is not counted again.
  void report(const std::string& path, const std::string& reason);
  std::int64_t count() const;

 private:
  std::int64_t allowed_;
  mutable std::mutex mutex_;
  std::set<std::string> files_;
};

}  // namespace ddp
