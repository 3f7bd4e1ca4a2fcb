// The settings that a sweep trains: all combinations of --sweep, random draws from them, or the lines of a file.
//
//   const std::vector<Setting> settings = expand_sweep({.axes = {"lr=0.1,0.3", "optimizer=sgd,adamw"}}, /*seed=*/1);
//   text_of(settings[1]);   // "lr=0.1 optimizer=adamw"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options/options.h"
#include "options/parse.h"

namespace ddp {

// The options of one trial that differ from those of the command.
using Setting = std::vector<OptionSetting>;

// The grid varies the last axis fastest. With draws, each axis is drawn independently: uniformly from a list V1,V2,...,
// from LOW..HIGH uniformly, from log:LOW..HIGH uniformly in the logarithm; draw N is a function of (seed, N). A list file has
// one setting per line, words KEY=VALUE, blank lines and comments from # on.
// Throws Error(usage) for an axis without values, a range without draws, an axis given twice, equal settings, no settings at
// all, or more than options.max_trials of them.
std::vector<Setting> expand_sweep(const SweepOptions& options, std::uint64_t seed);

// "lr=0.1 optimizer=adamw"
std::string text_of(const Setting& setting);

}  // namespace ddp
