#!/usr/bin/env bash
# interface_check.sh [ROOT]: checks how many virtual functions a class of src/ declares, which files ask whether device memory is
# host memory, and that text for a terminal passes through print_text(). Prints one line for each violation and exits with 1 if
# there are any.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

# Larger interfaces should be split: a test that implements one would have to define functions that it does not test.
most_virtuals=11
# Interfaces that every new operator implements stay as narrow as they are.
narrower='Op=3 OpFactory=5 OpJoiner=1 MatrixUpdateFactory=1 DeviceQueue=8 FlatMath=8 KernelCandidates=6'
# Helpers that avoid a copy if device memory is host memory. All other code is the same for both.
memory_helpers='src/backend/host_mirror.cpp src/backend/staging.cpp src/comm/sums/staged.cpp'

breaks=0
complain() {
  echo "$1"
  breaks=$((breaks + 1))
}

mapfile -t sources < <(find src -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | sort)
[ ${#sources[@]} -gt 0 ] || complain "there is no source file under $PWD/src"

# Lines that begin with "virtual" after the opening line of a class, except its destructor.
while IFS=: read -r file class count most; do
  [ -n "$file" ] || continue
  complain "$file: class $class declares $count virtual functions; $most at most, split the interface"
done < <([ ${#sources[@]} -eq 0 ] || awk -v most=$most_virtuals -v narrower="$narrower" '
  BEGIN { n = split(narrower, pairs); for (i = 1; i <= n; ++i) { split(pairs[i], pair, "="); own[pair[1]] = pair[2] } }
  function report(    limit) {
    limit = class in own ? own[class] : most
    if (count > limit) print file ":" class ":" count ":" limit
    count = 0
  }
  FNR == 1 { report(); file = FILENAME; class = "" }
  /^[[:space:]]*(class|struct)[[:space:]]+[A-Za-z_]+[^;]*$/ { report(); class = $2 }
  /^[[:space:]]*virtual[[:space:]]/ && !/~/ { ++count }
  END { report() }' "${sources[@]}")

while IFS=: read -r file line _; do
  [ -n "$file" ] || continue
  [[ " $memory_helpers " == *" $file "* ]] ||
    complain "$file:$line: calls on_host(); only $memory_helpers may"
done < <([ ${#sources[@]} -eq 0 ] || grep -nHE '(\.|->)on_host\(\)' "${sources[@]}" || true)

# Names come from files of other people; only an escape sequence of our own is printed as it is.
while IFS=: read -r file line _; do
  [ -n "$file" ] || continue
  complain "$file:$line: calls fmt::print(); print_text() of base/output.h keeps control characters from the terminal"
done < <([ ${#sources[@]} -eq 0 ] || grep -nHE '^[^/]*fmt::print\("' "${sources[@]}" |
  grep -vE '^src/base/output\.h:|fmt::print\("\\x1b\[' || true)

if [ "$breaks" -gt 0 ]; then
  echo "interface_check: $breaks breaks of the rules"
  exit 1
fi
echo "interface_check: ${#sources[@]} source files keep the rules"
