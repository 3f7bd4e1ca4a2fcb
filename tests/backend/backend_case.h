// One set of tests for all backends: a program links the tests with one file that lists its backends.
//
//   std::vector<BackendCase> backend_cases() { return {{"cpu", make_cpu_backend, 1e-5}}; }
//   using Flat = EveryBackend;
//   TEST_P(Flat, BuffersAreAdded) { backend().math().add(...); ... }
//   DDP_ON_EVERY_BACKEND(On, Flat);
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace ddp {

struct BackendCase {
  std::string name;
  std::function<std::unique_ptr<Backend>()> make;
  // Maximum relative error against the double-precision reference.
  double tolerance = 1e-5;
  // Whether repeated runs on the same values are bit-identical.
  bool repeatable = true;
  // Why the backend cannot run on this machine, or empty; its tests are then skipped with this reason.
  std::function<std::string()> missing = [] { return std::string(); };
};

inline std::string backend_case_name(const testing::TestParamInfo<BackendCase>& backend) { return backend.param.name; }
inline void PrintTo(const BackendCase& backend, std::ostream* out) { *out << backend.name; }

// The backends of the program, one or more.
std::vector<BackendCase> backend_cases();

class EveryBackend : public testing::TestWithParam<BackendCase> {
 protected:
  void SetUp() override {
    const std::string missing = GetParam().missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
    backend_ = GetParam().make();
  }

  Backend& backend() const { return *backend_; }
  double tolerance() const { return GetParam().tolerance; }

 private:
  std::unique_ptr<Backend> backend_;
};

// For tests that make their backends themselves, of the kind of the program's first one.
class OwnBackend : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = backend_cases().front().missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

}  // namespace ddp

// Runs the tests of a fixture (EveryBackend or derived) on all backends of the program.
#define DDP_ON_EVERY_BACKEND(prefix, fixture) \
  INSTANTIATE_TEST_SUITE_P(prefix, fixture, testing::ValuesIn(backend_cases()), backend_case_name)
