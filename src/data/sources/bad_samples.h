// Keeps count of the samples that cannot be read, each once, and ends the run where there are too many.
//
//   BadSamples bad(/*allowed=*/10);
//   bad.report("data/cats/7.jpg", "is truncated");   // a warning, or Error(data) at the eleventh
//
// report() may be called by many threads at once. Every rank counts those that it meets itself.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>

namespace ddp {

class BadSamples {
 public:
  explicit BadSamples(std::int64_t allowed) : allowed_(allowed) {}

  // Throws Error(data) where `file` is one more than are allowed. A file that was reported before counts no second
  // time.
  void report(const std::string& file, const std::string& reason);
  std::int64_t count() const;

 private:
  std::int64_t allowed_;
  mutable std::mutex mutex_;
  std::set<std::string> files_;
};

}  // namespace ddp
