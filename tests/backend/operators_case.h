// Fixture for tests that check an operator in every layout that a backend supports.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "backend/backend_case.h"
#include "backend/op_check.h"
#include "base/error.h"

namespace ddp {

class Operators : public EveryBackend {
 protected:
  // Checks `spec` in all supported pairs of layouts; returns the number of pairs.
  int check_in_every_layout(const OpSpec& spec, ChoiceMode mode, const std::string& what) {
    int layouts = 0;
    for (const Layout x : kLayouts) {
      for (const Layout y : kLayouts) {
        if (!backend().ops().supports(spec, x, y)) continue;
        ++layouts;
        const KernelChoice choice = backend().chooser().choose(spec, x, y, mode);
        EXPECT_GT(choice.seconds, 0) << what;
        const auto op = backend().ops().make_op(spec, x, y, choice.kernels);
        const std::int64_t active = random_between(1, batch_of(spec));
        check_op({backend(), *op, spec, x, y, active, tolerance(),
                  fmt::format("{} active {} {} to {} {}", what, active, to_string(x), to_string(y), choice.kernels)});
        if (HasFatalFailure()) return layouts;
      }
    }
    return layouts;
  }
};

}  // namespace ddp
