#include "base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/output.h"

namespace ddp {
namespace {

// Standard error; a reader that has stopped reading does not block the program.
class PatientSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    static_cast<void>(write_patiently(STDERR_FILENO, {line.data(), line.size()}));
  }
  void flush_() override {}
};

struct Speaker {
  int rank = 0;
  int size = 1;
  bool coloured = false;
  std::shared_ptr<spdlog::logger> logger;

  Speaker() : logger(std::make_shared<spdlog::logger>("ddp", std::make_shared<PatientSink>())) {
    logger->set_pattern("%v");
    logger->flush_on(spdlog::level::trace);
  }
};

Speaker& speaker() {
  // Never destroyed: a library may end the process by exit(), which is reported.
  static auto* const instance = new Speaker;
  return *instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      break;
  }
  return spdlog::level::err;
}

std::string prefix(LogLevel level, const Speaker& who) {
  std::string text = "ddp_train: ";
  if (level == LogLevel::warning) text += "warning: ";
  if (level == LogLevel::error) text += "error: ";
  if (who.size > 1 && level != LogLevel::info) text += "rank " + std::to_string(who.rank) + ": ";
  return text;
}

}  // namespace

void log_init(int rank, int size) {
  speaker().rank = rank;
  speaker().size = size;
}

int log_rank() { return speaker().rank; }

void log_set_level(LogLevel level) { speaker().logger->set_level(to_spdlog(level)); }

void log_set_colours(bool coloured) { speaker().coloured = coloured; }

void log_line(LogLevel level, std::string_view text) {
  Speaker& who = speaker();
  if (level == LogLevel::info && who.rank != 0) return;
  std::string line = prefix(level, who) + one_line(std::string(text));
  if (who.coloured && level == LogLevel::warning) line = "\x1b[33m" + line + "\x1b[0m";
  if (who.coloured && level == LogLevel::error) line = "\x1b[31m" + line + "\x1b[0m";
  who.logger->log(to_spdlog(level), line);
}

}  // namespace ddp
