#!/usr/bin/env bash
# data_races.sh [TARGETS...]: builds unit tests of code with several threads under ThreadSanitizer and runs them; by default
# unit_comm, unit_gradients and unit_loader. Takes about ten minutes on two cores, most of them for the build.
#
# Tests with seven threads, and those that only compute, are left out: they take minutes each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(unit_comm unit_gradients unit_loader)
cmake --preset tsan >/dev/null
cmake --build --preset tsan -j "$(nproc)" --target "${targets[@]}"
# libgomp and MPI synchronise in ways that ThreadSanitizer does not see.
export TSAN_OPTIONS=suppressions=$PWD/tests/tsan.supp
ctest --preset tsan -j "$((2 * $(nproc)))" -R "^($(IFS='|' && echo "${targets[*]}"))[.]" -E 'On7( |$)' --no-tests=error
