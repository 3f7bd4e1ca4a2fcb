#!/usr/bin/env bash
# interface_check.sh [ROOT]: how many virtual functions a class of src/ declares, and which files ask whether device memory
# is host memory. Prints one line for each break of a rule and ends with 1, or with 0 where there is none.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

# A larger interface is several, and a test that stands in for it writes out what it does not test.
most_virtuals=11
# Helpers that save a copy where device memory is host memory. Everything else is the same on both.
memory_helpers='src/backend/host_mirror.cpp src/backend/staging.cpp src/comm/staged.cpp'

breaks=0
complain() {
  echo "$1"
  breaks=$((breaks + 1))
}

mapfile -t sources < <(find src -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | sort)
[ ${#sources[@]} -gt 0 ] || complain "there is no source file under $PWD/src"

# Lines that begin with "virtual" after a class's opening line, without its destructor.
while IFS=: read -r file class count; do
  [ -n "$file" ] || continue
  complain "$file: class $class declares $count virtual functions; $most_virtuals at most, split the interface"
done < <([ ${#sources[@]} -eq 0 ] || awk -v most=$most_virtuals '
  function report() { if (count > most) print file ":" class ":" count; count = 0 }
  FNR == 1 { report(); file = FILENAME; class = "" }
  /^[[:space:]]*(class|struct)[[:space:]]+[A-Za-z_]+[^;]*$/ { report(); class = $2 }
  /^[[:space:]]*virtual[[:space:]]/ && !/~/ { ++count }
  END { report() }' "${sources[@]}")

while IFS=: read -r file line _; do
  [ -n "$file" ] || continue
  [[ " $memory_helpers " == *" $file "* ]] ||
    complain "$file:$line: calls on_host(); only $memory_helpers may"
done < <([ ${#sources[@]} -eq 0 ] || grep -nHE '(\.|->)on_host\(\)' "${sources[@]}" || true)

if [ "$breaks" -gt 0 ]; then
  echo "interface_check: $breaks breaks of the rules"
  exit 1
fi
echo "interface_check: ${#sources[@]} source files keep the rules"
