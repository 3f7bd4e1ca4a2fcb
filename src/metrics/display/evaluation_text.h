// The result of an evaluation for people: accuracy, loss, a table of the classes, and which class was taken for which.
//
//   const std::vector<double> accuracy = {0.95, 0.7};                              // of each class
//   const std::vector<std::vector<std::int64_t>> confusion = {{19, 1}, {3, 7}};    // [class][answer]
//   fmt::print("{}", evaluation_text({7, 1, 0.31, 0.87, std::nullopt, accuracy, confusion}, {20, 10}, {"cat", "dog"}));
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "metrics/logs/run_log.h"

namespace ddp {

// `samples` of each class; `names` of the classes, or empty: their numbers. Of many classes only the worst are listed.
std::string evaluation_text(const EvalRecord& evaluation, const std::vector<std::int64_t>& samples,
                            std::vector<std::string> names);

// The classes with samples, those with the lowest accuracy first.
std::vector<std::size_t> worst_first(const std::vector<double>& class_accuracy);

}  // namespace ddp
