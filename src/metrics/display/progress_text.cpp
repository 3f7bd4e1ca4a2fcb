#include "metrics/display/progress_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/text/text.h"

namespace ddp {
namespace {

constexpr int kLongestBar = 40;
constexpr int kShortestBar = 10;

// Counts and rates are never negative; a NaN rate is shown as 0.
std::string count_text(double count) {
  const bool countable = std::isfinite(count) && count > 0;
  return format_count(countable ? static_cast<std::uint64_t>(std::llround(std::min(count, 1e15))) : 0);
}

std::string count_text(std::int64_t count) { return format_count(static_cast<std::uint64_t>(std::max(count, {}))); }

// "3/10", with the first number padded to the width of the second.
std::string of_text(std::int64_t part, std::int64_t whole) {
  const std::string total = count_text(whole);
  return fmt::format("{:>{}}/{}", count_text(part), total.size(), total);
}

std::string eta_text(std::optional<double> eta) {
  if (!eta || !std::isfinite(*eta)) return "eta -";
  const double seconds = std::round(std::max(*eta, 0.0));
  return "eta " + (seconds < 60 ? fmt::format("{:.0f} s", seconds) : format_duration(seconds));
}

double fraction_done(const TrainingProgress& progress) {
  if (progress.steps <= 0) return 0;
  return std::clamp(static_cast<double>(progress.step) / static_cast<double>(progress.steps), 0.0, 1.0);
}

// `width` characters without the ends.
std::string bar_text(double fraction, int width, bool utf8) {
  std::string bar;
  if (!utf8) {
    const int full = static_cast<int>(fraction * width);
    bar.append(static_cast<std::size_t>(full), '#');
    bar.append(static_cast<std::size_t>(width - full), '-');
    return "[" + bar + "]";
  }
  // Blocks of one to eight eighths of a character.
  constexpr std::array<const char*, 8> blocks = {"▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  const int eighths = static_cast<int>(fraction * width * 8);
  for (int i = 0; i < width; ++i) {
    const int filled = std::clamp(eighths - i * 8, 0, 8);
    bar += filled == 0 ? " " : blocks[static_cast<std::size_t>(filled - 1)];
  }
  return "▕" + bar + "▏";
}

// "  62% of peak  compute", as far as it is known.
std::string speed_text(const TrainingProgress& progress, const std::string& gap) {
  std::string text;
  if (progress.peak_share >= 0) text += fmt::format("{}{:.0f}% of peak", gap, progress.peak_share * 100);
  if (!progress.limit.empty()) text += gap + progress.limit;
  return text;
}

}  // namespace

std::string limit_of(const PhaseTotals& phases) {
  const auto longest =
      std::max_element(kPhases.begin(), kPhases.end(), [&](Phase a, Phase b) { return phases[a] < phases[b]; });
  const double compute = phases[Phase::forward] + phases[Phase::backward];
  if (std::max(compute, phases[*longest]) <= 0) return "";
  if (compute >= phases[*longest]) return "compute";
  return *longest == Phase::exposed_communication ? "communication" : phase_label(*longest);
}

std::string loss_text(double loss) {
  return std::abs(loss) < 10'000 ? fmt::format("{:.4f}", loss) : fmt::format("{:.4g}", loss);
}

int text_width(const std::string& text) {
  // Counts all bytes except UTF-8 continuation bytes.
  return static_cast<int>(std::count_if(text.begin(), text.end(),
                                        [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }));
}

std::string wrapped(std::string_view text, int columns, std::size_t indent) {
  std::string lines;
  int width = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const int more = text_width(word);
    if (width > 0 && width + 1 + more > columns) {
      lines += "\n" + std::string(indent, ' ');
      width = 0;
    } else if (!lines.empty()) {
      lines += ' ';
      ++width;
    }
    lines += word;
    width += more;
  }
  return lines;
}

std::string shortened(std::string_view text, int columns) {
  std::size_t end = 0;
  for (int shown = 0; end < text.size() && shown < columns; ++shown) {
    do ++end;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U);
  }
  return std::string(text.substr(0, end));
}

std::string progress_bar(const TrainingProgress& progress, std::optional<double> eta, int columns, bool utf8) {
  const double fraction = fraction_done(progress);
  struct Part {
    std::string text;
    int rank;  // parts with the highest rank are dropped first
  };
  const std::string epoch = "epoch " + of_text(progress.epoch, progress.epochs) + " ";
  std::vector<Part> parts = {{"  step " + of_text(progress.step, progress.steps), 3},
                             {"  loss " + loss_text(progress.loss), 1},
                             {fmt::format("  {} images/s", count_text(progress.images_per_second)), 4},
                             {speed_text(progress, "  "), 5},
                             {"  " + eta_text(eta), 2}};
  const std::string percent = fmt::format(" {:3.0f}%", std::floor(fraction * 100));
  // Two for the ends of the bar; the last column stays free, because some terminals wrap after it.
  const int fixed = text_width(epoch) + text_width(percent) + 2 + 1;
  const auto room = [&] {
    int left = columns - fixed;
    for (const Part& part : parts) left -= text_width(part.text);
    return left;
  };
  while (room() < kShortestBar && !parts.empty()) {
    parts.erase(
        std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.rank < b.rank; }));
  }
  std::string line = epoch;
  if (room() > 0) line += bar_text(fraction, std::min(room(), kLongestBar), utf8);
  line += percent;
  for (const Part& part : parts) line += part.text;
  return line;
}

std::string progress_line(const TrainingProgress& progress, std::optional<double> eta) {
  return fmt::format("epoch {}   step {}   loss {:>6}   lr {:<8} {:>8} images/s{}   {}",
                     of_text(progress.epoch, progress.epochs), of_text(progress.step, progress.steps),
                     loss_text(progress.loss), fmt::format("{:.3g}", progress.lr),
                     count_text(progress.images_per_second), speed_text(progress, "   "), eta_text(eta));
}

}  // namespace ddp
