#include "options/table/effects.h"

#include <gtest/gtest.h>

#include "options/table/table.h"

namespace ddp {
namespace {

// compare names causes by this: a new option says what it changes in effects.cpp.
TEST(Effects, EveryOptionSaysWhatItChanges) {
  for (const OptionSpec& spec : option_table()) {
    ASSERT_TRUE(spec.effects.has_value()) << "--" << spec.key << " is missing in options/table/effects.cpp";
    EXPECT_TRUE(!spec.command_line_only || *spec.effects == OptionEffects(Effect::nothing)) << spec.key;
  }
  EXPECT_EQ(effects_of("learning-rate"), std::nullopt);
}

}  // namespace
}  // namespace ddp
