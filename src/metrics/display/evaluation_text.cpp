#include "metrics/display/evaluation_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/text/text.h"
#include "base/text/text_table.h"

namespace ddp {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// Classes in a table; of more, the worst.
constexpr std::size_t kListedClasses = 30;
// Classes of a matrix that fits a terminal.
constexpr std::size_t kMatrixClasses = 12;
constexpr std::size_t kWorstClasses = 5;
constexpr std::size_t kMostAnswers = 3;

std::string image_count(std::int64_t count) { return format_count(static_cast<std::uint64_t>(count)); }

std::string accuracy_text(double share) {
  return std::isfinite(share) ? fmt::format("{:.2f} %", 100 * share) : kUnknownCell;
}

// "dog (5), bird (2)": the wrong answers, the most frequent first.
std::string mistakes(const std::vector<std::int64_t>& answers, std::size_t own, const std::vector<std::string>& names) {
  std::vector<std::size_t> order(answers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return answers[a] > answers[b]; });
  std::vector<std::string> parts;
  for (const std::size_t answer : order) {
    if (answer == own || answers[answer] == 0) continue;
    if (parts.size() == kMostAnswers) break;
    parts.push_back(fmt::format("{} ({})", names[answer], image_count(answers[answer])));
  }
  return join(parts);
}

std::string class_table(const EvalRecord& evaluation, const std::vector<std::int64_t>& samples,
                        const std::vector<std::string>& names, const std::vector<std::size_t>& listed) {
  const bool confused = !evaluation.confusion.empty();
  Rows rows = {{"class", "images", "accuracy", confused ? "taken for" : ""}};
  for (const std::size_t c : listed) {
    rows.push_back({names[c], image_count(samples[c]), accuracy_text(evaluation.class_accuracy[c]),
                    confused ? mistakes(evaluation.confusion[c], c, names) : ""});
  }
  return text_table(rows, std::vector{Align::left, Align::right, Align::right, Align::left});
}

std::string matrix(const EvalRecord& evaluation, const std::vector<std::string>& names) {
  Rows rows = {{"class \\ answer"}};
  std::vector<Align> columns(names.size() + 1, Align::right);
  columns[0] = Align::left;
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  for (std::size_t c = 0; c < names.size(); ++c) {
    std::vector<std::string> row = {names[c]};
    for (const std::int64_t count : evaluation.confusion[c]) row.push_back(count == 0 ? "." : image_count(count));
    rows.push_back(std::move(row));
  }
  return text_table(rows, columns);
}

}  // namespace

std::string evaluation_text(const EvalRecord& evaluation, const std::vector<std::int64_t>& samples,
                            std::vector<std::string> names) {
  const std::size_t classes = samples.size();
  for (std::size_t c = names.size(); c < classes; ++c) names.push_back(std::to_string(c));
  const std::int64_t all = std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
  std::string text =
      fmt::format("images      {} of {} {}\n", image_count(all), classes, classes == 1 ? "class" : "classes");
  text += fmt::format("accuracy    {} (top 1)\n", accuracy_text(evaluation.val_accuracy));
  if (evaluation.top5_accuracy) text += fmt::format("top 5       {}\n", accuracy_text(*evaluation.top5_accuracy));
  text += fmt::format("loss        {:.4f}\n\n", evaluation.val_loss);
  std::vector<std::size_t> listed(classes);
  std::iota(listed.begin(), listed.end(), std::size_t{0});
  std::vector<std::size_t> worst = worst_first(evaluation.class_accuracy);
  if (classes > kListedClasses) {
    listed = worst;
    listed.resize(std::min(listed.size(), kListedClasses));
    text += fmt::format("the {} worst classes; --json lists all\n", listed.size());
  }
  text += class_table(evaluation, samples, names, listed);
  if (classes > kWorstClasses && classes <= kListedClasses) {
    worst.resize(std::min(worst.size(), kWorstClasses));
    std::vector<std::string> parts;
    for (const std::size_t c : worst)
      parts.push_back(fmt::format("{} {}", names[c], accuracy_text(evaluation.class_accuracy[c])));
    text += fmt::format("\nworst classes: {}\n", join(parts));
  }
  if (!evaluation.confusion.empty() && classes <= kMatrixClasses && classes > 1)
    text += "\n" + matrix(evaluation, names);
  return text;
}

std::vector<std::size_t> worst_first(const std::vector<double>& class_accuracy) {
  std::vector<std::size_t> order;
  for (std::size_t c = 0; c < class_accuracy.size(); ++c) {
    if (std::isfinite(class_accuracy[c])) order.push_back(c);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return class_accuracy[a] < class_accuracy[b]; });
  return order;
}

}  // namespace ddp
