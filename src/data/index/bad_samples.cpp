#include "data/index/bad_samples.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text/utf8.h"

namespace ddp {

void BadSamples::report(const std::string& path, const std::string& reason) {
  const std::string file = escape_name(path);
  const std::scoped_lock lock(mutex_);
  if (!files_.insert(file).second) return;
  const auto count = static_cast<std::int64_t>(files_.size());
  check(count <= allowed_ || allowed_ > 0, ExitCode::data,
        "{}: {}; repair or remove it, or skip up to N such files with --max-bad-samples N", file, reason);
  check(count <= allowed_, ExitCode::data,
        "{}: {}; with it {} files could not be read, more than --max-bad-samples {}; repair or remove them", file,
        reason, count, allowed_);
  log_warning("{}: {}; another sample stands in for it (bad file {} of at most {})", file, reason, count, allowed_);
}

std::int64_t BadSamples::count() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::int64_t>(files_.size());
}

}  // namespace ddp
