// Names that the examples in the headers of sweep use.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>
#include <vector>

#include "sweep/child_process.h"
#include "sweep/leaderboard.h"
#include "sweep/scheduler.h"
#include "sweep/settings.h"
#include "sweep/sweep_folder.h"

namespace ddp::sweep_examples {

using namespace std::chrono_literals;
extern const Options options;
extern const std::vector<Setting> settings;
extern const std::vector<TrialResult> results;

}  // namespace ddp::sweep_examples
