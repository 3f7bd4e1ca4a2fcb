#include "metrics/display/console.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/output.h"
#include "base/text/text.h"
#include "metrics/display/time_summary.h"

namespace ddp {
namespace {

constexpr double kSecondsBetweenDraws = 0.1;

ProgressStyle resolve(ProgressStyle style, const Terminal& terminal) {
  if (style != ProgressStyle::automatic) return style;
  return terminal.interactive() ? ProgressStyle::bar : ProgressStyle::lines;
}

// 80 columns.
std::string table_row(std::string_view epoch, std::string_view step, std::string_view train_loss,
                      std::string_view val_loss, std::string_view val_accuracy, std::string_view lr,
                      std::string_view rate, std::string_view time) {
  return fmt::format("{:>5}{:>10}{:>12}{:>10}{:>14}{:>10}{:>10}{:>9}", epoch, step, train_loss, val_loss, val_accuracy,
                     lr, rate, time);
}

std::string table_head() {
  return table_row("epoch", "step", "train loss", "val loss", "val accuracy", "lr", "images/s", "time");
}

// The epoch was completed by an earlier process, so its time is unknown.
std::string rate_text(const std::optional<double>& known) {
  if (!known) return "-";
  const double rate = *known;
  return format_count(rate > 0 && rate < 1e15 ? static_cast<std::uint64_t>(std::llround(rate)) : 0);
}

std::string time_text(const std::optional<double>& seconds) { return seconds ? format_duration(*seconds) : "-"; }

std::string row_of(const EpochRecord& record) {
  return table_row(std::to_string(record.epoch), format_count(static_cast<std::uint64_t>(record.step)),
                   loss_text(record.train_loss), record.val_loss ? loss_text(*record.val_loss) : "-",
                   record.val_accuracy ? fmt::format("{:.4f}", *record.val_accuracy) : "-",
                   fmt::format("{:.3g}", record.lr), rate_text(record.images_per_second), time_text(record.seconds));
}

std::string line_of(const EpochRecord& record, std::int64_t epochs) {
  const std::string total = std::to_string(std::max(epochs, record.epoch));
  std::string line = fmt::format("epoch {:>{}}/{}   done in {}   train loss {}", record.epoch, total.size(), total,
                                 time_text(record.seconds), loss_text(record.train_loss));
  if (record.val_loss) line += "   val loss " + loss_text(*record.val_loss);
  if (record.val_accuracy) line += fmt::format("   val accuracy {:.4f}", *record.val_accuracy);
  return line + "   " + rate_text(record.images_per_second) + " images/s";
}

}  // namespace

Console::Console(ProgressStyle style, std::FILE* out, double (*read_clock)())
    : out_(out),
      read_clock_(read_clock),
      terminal_(::fileno(out)),
      style_(resolve(style, terminal_)),
      utf8_(locale_is_utf8()) {}

Console::~Console() { clear_bar(); }

void Console::write(std::string_view text) {
  std::fflush(out_);
  static_cast<void>(write_patiently(::fileno(out_), text));
}

void Console::clear_bar() {
  // Moves the cursor to the beginning of the line and erases the line.
  if (bar_shown_) write("\r\x1b[K");
  bar_shown_ = false;
  last_draw_ = -1e9;
}

void Console::line(std::string_view text) {
  clear_bar();
  write(std::string(text) + "\n");
}

void Console::header(std::string_view title, std::span<const HeaderRow> rows) {
  int width = 0;
  for (const auto& [label, value] : rows) width = std::max(width, text_width(label));
  std::string text = paint(title, Paint::bold) + "\n";
  for (const auto& [label, value] : rows) {
    if (!label.empty() || !value.empty()) {
      const auto gap = static_cast<std::size_t>(width - text_width(label)) + 2;
      const auto column = static_cast<std::size_t>(width) + 4;
      text.append("  ").append(label).append(gap, ' ');
      text += terminal_.interactive() ? wrapped(value, terminal_.columns() - width - 5, column) : value;
    }
    text += '\n';
  }
  line(text);
}

std::optional<double> Console::eta(const TrainingProgress& progress, double time) const {
  const auto done = progress.step - first_step_;
  if (done <= 0) return std::nullopt;
  return (time - first_time_) / static_cast<double>(done) * static_cast<double>(progress.steps - progress.step);
}

double Console::note(const TrainingProgress& progress) {
  const double time = read_clock_();
  if (epochs_ == 0) {
    first_step_ = progress.step;
    first_time_ = time;
  }
  epochs_ = progress.epochs;
  return time;
}

void Console::update(const TrainingProgress& progress) {
  const double time = note(progress);
  if (style_ != ProgressStyle::bar || time - last_draw_ < kSecondsBetweenDraws) return;
  last_draw_ = time;
  bar_shown_ = true;
  write("\r" + progress_bar(progress, eta(progress, time), terminal_.columns(), utf8_) + "\x1b[K");
}

void Console::log(const TrainingProgress& progress) {
  const double time = note(progress);
  if (style_ == ProgressStyle::lines) line(progress_line(progress, eta(progress, time)));
}

void Console::epoch(const EpochRecord& record) {
  if (style_ == ProgressStyle::lines) {
    table_ += row_of(record) + "\n";
    line(line_of(record, epochs_));
    return;
  }
  if (!table_begun_) line(table_head());
  table_begun_ = true;
  line(row_of(record));
}

void Console::summary(const RunSummary& summary) {
  clear_bar();
  if (!table_.empty()) line("\n" + table_head() + "\n" + table_.substr(0, table_.size() - 1));
  table_.clear();
  if (!summary.result.empty()) line("\n" + paint(summary.result, Paint::good));
  if (!summary.verdict.empty()) {
    line("\n" + (summary.healthy ? summary.verdict : paint(summary.verdict, Paint::warning)));
  }
  const std::string slowest = slowest_rank_text(summary.ranks, summary.hosts);
  line("\n" + (summary.full ? time_table(summary.ranks) : time_line(summary.ranks)) + slowest);
}

void Console::waiting(std::string_view text) {
  if (style_ == ProgressStyle::none) return;
  if (style_ == ProgressStyle::lines) return line(text);
  bar_shown_ = true;
  write("\r" + shortened(text, terminal_.columns() - 1) + "\x1b[K");
}

}  // namespace ddp
