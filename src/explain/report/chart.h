// Charts as SVG inside of an HTML page, coloured by the page's style sheet (report.cpp), readable without colours too;
// line charts also as files.
//
//   LineChart chart{"training loss", "step", {{"runs/a", {{1, 2.3}, {50, 1.1}}}}};
//   std::string svg = line_chart(chart);
//   svg += heat_map({"share of time", {"rank 0", "rank 1"}, {"forward", "backward"}, {{0.3, 0.7}, {0.2, 0.8}}});
//
// Every chart has an accessible name. Values that are not finite are gaps.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ddp {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // by increasing x
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::vector<Series> series;
  bool from_zero = false;                 // the axis of y begins at 0
  bool markers = false;                   // a dot at every point; few points have one anyway
  bool lines = true;                      // between the points
  bool log_x = false;                     // all x are positive
  double steps_per_unit = 0;              // a second row of numbers below the axis: x times this; 0: none
  std::vector<std::string> x_names = {};  // of x = 0, 1, ..., in place of numbers
};
// "" if no series has a finite point.
std::string line_chart(const LineChart& chart);
// The same as a file of its own, with its colours, title and legend.
std::string svg_file(const LineChart& chart);

// Columns of parts that add up, such as phases over time.
struct StackChart {
  std::string title;
  std::string x_label;
  std::vector<std::string> parts;
  std::vector<std::pair<double, std::vector<double>>> columns;  // x, and a value for each part
};
std::string stack_chart(const StackChart& chart);

struct HeatMap {
  std::string title;
  std::vector<std::string> rows;
  std::vector<std::string> columns;
  std::vector<std::vector<double>> values;  // [row][column], not negative
  bool percent = true;                      // shown as shares, otherwise as counts
};
// With the numbers in the cells if there are at most 20 columns. Darker is more, relative to the largest value.
std::string heat_map(const HeatMap& map);

// Text inside of HTML and its attributes.
std::string html_text(const std::string& text);

}  // namespace ddp
