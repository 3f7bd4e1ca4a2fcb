#!/usr/bin/env bash
# discovery_check.sh BUILD_FOLDER: CTest lists the cases of a test program by running it. Therefore such a program needs
# a long discovery timeout for slow disks, and must not load CUDA's libraries of hundreds of megabytes.
set -euo pipefail
build=$1
breaks=0
programs=0
# The output of gtest_discover_tests: TEST_EXECUTABLE [==[path]==] and TEST_DISCOVERY_TIMEOUT [==[seconds]==]
while IFS= read -r list; do
  program=$(sed -n 's/.*TEST_EXECUTABLE \[==\[\([^]]*\)\]==\].*/\1/p' "$list" | head -n 1)
  seconds=$(sed -n 's/.*TEST_DISCOVERY_TIMEOUT \[==\[\([^]]*\)\]==\].*/\1/p' "$list" | head -n 1)
  [ -n "$program" ] || continue
  programs=$((programs + 1))
  if [ "${seconds:-5}" -lt 60 ]; then
    echo "$program: ${seconds:-5} s to list its cases; 60 s at least (ddp_test in cmake/DdpTargets.cmake)"
    breaks=$((breaks + 1))
  fi
  if [ -x "$program" ] && ldd "$program" | grep -qE 'lib(cudnn|cublas|cublasLt|nccl|cudart)[.]so'; then
    echo "$program: loads CUDA's libraries to list its cases; make it a WHOLE (ddp_test in cmake/DdpTargets.cmake)"
    breaks=$((breaks + 1))
  fi
done < <(find "$build/tests" -name CTestTestfile.cmake -exec sed -n 's/^ *include("\(.*_include[.]cmake\)")$/\1/p' {} +)
if [ "$programs" -lt 5 ]; then
  echo "only $programs programs found whose cases CTest lists in $build/tests"
  breaks=$((breaks + 1))
fi
[ "$breaks" -eq 0 ] || exit 1
echo "discovery_check: $programs programs list their cases quickly"
