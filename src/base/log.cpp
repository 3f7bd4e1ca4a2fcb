#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

namespace ddp {
namespace {

struct Speaker {
  int rank = 0;
  int size = 1;
  std::shared_ptr<spdlog::logger> logger;

  Speaker() : logger(std::make_shared<spdlog::logger>("ddp", std::make_shared<spdlog::sinks::stderr_sink_mt>())) {
    logger->set_pattern("%v");
    logger->flush_on(spdlog::level::trace);
  }
};

Speaker& speaker() {
  static Speaker instance;
  return instance;
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

void log_set_level(LogLevel level) { speaker().logger->set_level(to_spdlog(level)); }

void log_line(LogLevel level, std::string_view text) {
  Speaker& who = speaker();
  if (level == LogLevel::info && who.rank != 0) return;
  who.logger->log(to_spdlog(level), prefix(level, who) + std::string(text));
}

}  // namespace ddp
