#include "explain/report/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

namespace ddp {
namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 272;
constexpr double kLeft = 64;
constexpr double kRight = 22;
constexpr double kTop = 12;
constexpr double kBottom = 52;
constexpr std::size_t kMostPoints = 600;
constexpr std::size_t kColours = 8;
// A series of up to so many points has dots, so that a single one is visible.
constexpr std::size_t kFewPoints = 30;
// The share of the colour in the hottest cell.
constexpr double kMostHeat = 0.65;

struct Interval {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  void widen() {
    if (high - low > 1e-12 * std::max(std::abs(low), std::abs(high))) return;
    const double size = std::max(1e-9, std::abs(high) * 0.1);
    low -= size;
    high += size;
  }
};

// From data to the picture.
struct Axes {
  Interval x;
  Interval y;
  bool log_x = false;
  double place_x(double value) const {
    const auto scaled = [this](double v) { return log_x ? std::log(v) : v; };
    const double share = (scaled(value) - scaled(x.low)) / (scaled(x.high) - scaled(x.low));
    return kLeft + share * (kWidth - kLeft - kRight);
  }
  double place_y(double value) const {
    return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  }
};

// Multiples of 1, 2 or 5 times a power of ten, about `count` of them.
std::vector<double> ticks(const Interval& interval, int count) {
  const double raw = (interval.high - interval.low) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double fraction = raw / power;
  const double step = power * (fraction < 1.5 ? 1 : fraction < 3.5 ? 2 : fraction < 7.5 ? 5 : 10);
  std::vector<double> values;
  for (double n = std::ceil(interval.low / step); n * step <= interval.high * (1 + 1e-12) + 1e-300; ++n) {
    values.push_back(n * step);
    if (values.size() > 20) break;
  }
  return values;
}

// On a logarithmic axis 1, 2 and 5 times the powers of ten.
std::vector<double> log_ticks(const Interval& interval) {
  std::vector<double> values;
  for (double power = std::pow(10, std::floor(std::log10(interval.low))); power <= interval.high; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (power * factor >= interval.low && power * factor <= interval.high) values.push_back(power * factor);
    }
  }
  return values;
}

std::string x_tick(double x, double y, const std::string& text) {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>", x, y, html_text(text));
}

std::string x_ticks(const Axes& axes, const LineChart& chart) {
  std::string svg;
  const double y = kHeight - kBottom + 16;
  for (std::size_t i = 0; i < chart.x_names.size(); ++i) {
    svg += x_tick(axes.place_x(static_cast<double>(i)), y, chart.x_names[i]);
  }
  if (!chart.x_names.empty()) return svg;
  for (const double tick : chart.log_x ? log_ticks(axes.x) : ticks(axes.x, 6)) {
    svg += x_tick(axes.place_x(tick), y, fmt::format("{:.6g}", tick + 0.0));
    if (chart.steps_per_unit > 0) {
      svg += x_tick(axes.place_x(tick), y + 14, fmt::format("{:.0f}", tick * chart.steps_per_unit + 0.0));
    }
  }
  return svg;
}

std::string axes_svg(const Axes& axes, const LineChart& chart) {
  std::string svg;
  for (const double tick : ticks(axes.y, 5)) {
    const double y = axes.place_y(tick);
    svg += fmt::format(
        "<line class='grid' x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}'/><text x='{:.1f}' y='{:.1f}' "
        "text-anchor='end'>{:.4g}</text>",
        kLeft, kWidth - kRight, y, y, kLeft - 6, y + 4, tick + 0.0);
  }
  return svg + x_ticks(axes, chart) + x_tick((kLeft + kWidth - kRight) / 2, kHeight - 6, chart.x_label);
}

std::string begin_figure(const std::string& title, const std::string& label, double height) {
  return fmt::format(
      "<figure><figcaption>{}</figcaption><svg viewBox='0 0 {} {:.0f}' role='img' aria-label='{}'><title>{}</title>",
      html_text(title), kWidth, height, html_text(label), html_text(label));
}

std::string legend(const std::vector<std::string>& names) {
  std::string html = "<ul class='legend'>";
  for (std::size_t i = 0; i < names.size(); ++i) {
    html += fmt::format("<li><span class='key k{}'></span>{}</li>", i % kColours, html_text(names[i]));
  }
  return html + "</ul>";
}

std::string markers(const Series& series, const Axes& axes, std::size_t colour) {
  std::string svg;
  for (const auto& [x, y] : series.points) {
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    svg += fmt::format("<circle class='f{}' cx='{:.1f}' cy='{:.1f}' r='3.5'/>", colour % kColours, axes.place_x(x),
                       axes.place_y(y));
  }
  return svg;
}

std::string polyline(const Series& series, const Axes& axes, std::size_t colour) {
  const std::size_t stride = series.points.size() / kMostPoints + 1;
  std::string svg;
  std::string path;
  const auto end_line = [&] {
    if (!path.empty()) svg += fmt::format("<polyline class='line s{}' points='{}'/>", colour % kColours, path);
    path.clear();
  };
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    // The last point is always shown.
    if (i % stride != 0 && i + 1 != series.points.size()) continue;
    const auto& [x, y] = series.points[i];
    if (!std::isfinite(x) || !std::isfinite(y)) {
      end_line();
      continue;
    }
    path += fmt::format("{:.1f},{:.1f} ", axes.place_x(x), axes.place_y(y));
  }
  end_line();
  return svg;
}

}  // namespace

std::string html_text(const std::string& text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

namespace {

struct DrawnLines {
  std::string svg;    // axes and lines; empty if there is nothing to draw
  std::string label;  // the accessible name
  std::vector<std::string> names;
};

DrawnLines draw_lines(const LineChart& chart) {
  Axes axes;
  DrawnLines lines;
  lines.label = chart.title + ": ";
  bool drawn = false;
  for (const Series& series : chart.series) {
    std::size_t finite = 0;
    double last = 0;
    for (const auto& [x, y] : series.points) {
      axes.x.include(x);
      axes.y.include(y);
      if (!std::isfinite(y)) continue;
      ++finite;
      last = y;
    }
    drawn = drawn || finite > 0;
    lines.names.push_back(series.name);
    lines.label += fmt::format("{}{} ends at {:.4g}", lines.names.size() > 1 ? ", " : "", series.name, last);
  }
  if (!drawn) return lines;
  if (chart.from_zero) axes.y.include(0);
  axes.log_x = chart.log_x;
  axes.x.widen();
  axes.y.widen();
  lines.svg = axes_svg(axes, chart);
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    if (chart.lines) lines.svg += polyline(chart.series[i], axes, i);
    if (chart.markers || chart.series[i].points.size() <= kFewPoints) lines.svg += markers(chart.series[i], axes, i);
  }
  return lines;
}

// The colours of the report's style sheet.
constexpr std::string_view kFileStyle = R"(
svg{background:#fff;font-family:system-ui,sans-serif}text{fill:#59636e;font-size:12px}.title{fill:#1b1f24;font-size:14px;
font-weight:600}.grid{stroke:#d1d9e0}.line{fill:none;stroke-width:2}
.s0{stroke:#0969da}.s1{stroke:#bc4c00;stroke-dasharray:7 3}.s2{stroke:#1a7f37;stroke-dasharray:2 3}
.s3{stroke:#8250df;stroke-dasharray:9 3 2 3}.f0{fill:#0969da}.f1{fill:#bc4c00}.f2{fill:#1a7f37}.f3{fill:#8250df}
@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#9198a1}.title{fill:#e6edf3}.grid{stroke:#3d444d}
.s0{stroke:#4493f8}.s1{stroke:#f0883e}.s2{stroke:#3fb950}.s3{stroke:#ab7df8}.f0{fill:#4493f8}.f1{fill:#f0883e}
.f2{fill:#3fb950}.f3{fill:#ab7df8}}
)";

}  // namespace

std::string line_chart(const LineChart& chart) {
  const DrawnLines lines = draw_lines(chart);
  if (lines.svg.empty()) return "";
  return begin_figure(chart.title, lines.label, kHeight) + lines.svg + "</svg>" +
         (lines.names.size() > 1 ? legend(lines.names) : "") + "</figure>";
}

std::string svg_file(const LineChart& chart) {
  constexpr double kTitle = 28;
  constexpr double kRow = 18;
  const DrawnLines lines = draw_lines(chart);
  const double height = kTitle + kHeight + kRow * static_cast<double>(lines.names.size()) + 6;
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1:.0f}' width='{0}' height='{1:.0f}' role='img' "
      "aria-label='{2}'><title>{2}</title><style>{3}</style><text class='title' x='{4}' y='19'>{5}</text>"
      "<g transform='translate(0 {6})'>{7}</g>",
      kWidth, height, html_text(lines.label), kFileStyle, kLeft, html_text(chart.title), kTitle, lines.svg);
  for (std::size_t i = 0; i < lines.names.size(); ++i) {
    const double y = kTitle + kHeight + kRow * (static_cast<double>(i) + 0.5);
    svg +=
        fmt::format("<line class='line s{}' x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}'/><text x='{}' y='{:.1f}'>{}</text>",
                    i % kColours, kLeft, kLeft + 28, y, y, kLeft + 36, y + 4, html_text(lines.names[i]));
  }
  return svg + "</svg>\n";
}

std::string stack_chart(const StackChart& chart) {
  if (chart.columns.size() < 2) return "";
  const std::size_t stride = chart.columns.size() / kMostPoints + 1;
  Axes axes;
  axes.y.include(0);
  for (const auto& [x, values] : chart.columns) {
    double sum = 0;
    for (const double value : values) sum += std::max(0.0, value);
    axes.x.include(x);
    axes.y.include(sum);
  }
  axes.x.widen();
  axes.y.widen();
  std::string svg = begin_figure(chart.title, fmt::format("{}, by {}", chart.title, chart.x_label), kHeight) +
                    axes_svg(axes, LineChart{chart.title, chart.x_label, {}});
  std::vector<double> below(chart.columns.size());
  for (std::size_t part = 0; part < chart.parts.size(); ++part) {
    std::string upper;
    std::string lower;
    for (std::size_t i = 0; i < chart.columns.size(); i += stride) {
      const auto& [x, values] = chart.columns[i];
      const std::string at = fmt::format("{:.1f},", axes.place_x(x));
      lower.insert(0, fmt::format("{}{:.1f} ", at, axes.place_y(below[i])));
      below[i] += std::max(0.0, values[part]);
      upper += fmt::format("{}{:.1f} ", at, axes.place_y(below[i]));
    }
    svg += fmt::format("<polygon class='area f{}' points='{}{}'/>", part % kColours, upper, lower);
  }
  return svg + "</svg>" + legend(chart.parts) + "</figure>";
}

namespace {

// As many characters as fit into `width`.
std::string brief_name(const std::string& name, double width) {
  constexpr double kCharacter = 6.2;
  const auto most = static_cast<std::size_t>(std::max(3.0, width / kCharacter));
  std::size_t characters = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if ((static_cast<unsigned char>(name[i]) & 0xC0U) == 0x80U) continue;
    if (++characters > most) return name.substr(0, i) + "…";
  }
  return name;
}

}  // namespace

std::string heat_map(const HeatMap& map) {
  constexpr double kRowHeight = 24;
  constexpr double kHead = 22;
  constexpr double kLabel = 110;
  constexpr std::size_t kMostNumbers = 20;
  double most = 0;
  for (const std::vector<double>& row : map.values) {
    for (const double value : row) most = std::max(most, value);
  }
  const bool numbers = map.columns.size() <= kMostNumbers;
  const double row_height =
      numbers ? kRowHeight : std::max(3.0, kRowHeight * 20 / static_cast<double>(map.rows.size()));
  const double width = (kWidth - kLabel) / static_cast<double>(std::max<std::size_t>(1, map.columns.size()));
  const double height = kHead + row_height * static_cast<double>(map.rows.size()) + 4;
  std::string svg = begin_figure(map.title, map.title, height);
  for (std::size_t c = 0; c < map.columns.size() && numbers; ++c) {
    svg += fmt::format("<text class='small' x='{:.1f}' y='15' text-anchor='middle'>{}</text>",
                       kLabel + (static_cast<double>(c) + 0.5) * width, html_text(brief_name(map.columns[c], width)));
  }
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    const double y = kHead + row_height * static_cast<double>(r);
    if (row_height > 10) {
      svg += fmt::format("<text class='small' x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>", kLabel - 6,
                         y + row_height / 2 + 4, html_text(brief_name(map.rows[r], kLabel)));
    }
    for (std::size_t c = 0; c < map.columns.size(); ++c) {
      const double value = map.values[r][c];
      const double shade = most > 0 ? value / most : 0;
      const double x = kLabel + static_cast<double>(c) * width;
      svg +=
          fmt::format("<rect class='heat' x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill-opacity='{:.3f}'/>",
                      x, y, width - 1, row_height - 1, kMostHeat * shade);
      if (!numbers || value <= 0) continue;
      svg += fmt::format(
          "<text class='small on' x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>", x + width / 2,
          y + row_height / 2 + 4,
          map.percent ? fmt::format("{:.{}f}%", value * 100, value < 0.1 ? 1 : 0) : fmt::format("{:.0f}", value));
    }
  }
  return svg + "</svg></figure>";
}

}  // namespace ddp
