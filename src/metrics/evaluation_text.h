// The result of an evaluation for people: accuracy, loss, a table of the classes, and which class was taken for which.
//
//   const std::vector<double> accuracy = {0.95, 0.7};                              // of each class
//   const std::vector<std::vector<std::int64_t>> confusion = {{19, 1}, {3, 7}};    // [class][answer]
//   fmt::print("{}", evaluation_text({0.31, 0.87, std::nullopt, accuracy, confusion}, {20, 10}, {"cat", "dog"}));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

struct EvaluatedClasses {
  double loss = 0;
  double accuracy = 0;  // 0 to 1
  std::optional<double> top5_accuracy;
  std::vector<double> class_accuracy;                // NaN: no samples
  std::vector<std::vector<std::int64_t>> confusion;  // [class][answer]; empty for many classes
};

// `samples` of each class; `names` of the classes, or empty: their numbers. Of many classes only the worst are listed.
std::string evaluation_text(const EvaluatedClasses& evaluation, const std::vector<std::int64_t>& samples,
                            std::vector<std::string> names);

}  // namespace ddp
