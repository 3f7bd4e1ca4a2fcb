#!/usr/bin/env bash
# Tests room_check.sh: a good tree passes, and each violation of a rule fails.
# shellcheck source=tests/style/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh" room_check.sh

# fill FOLDER COUNT: writes so many files.
fill() {
  local i
  for ((i = 1; i <= $2; ++i)); do put "$1/f$i.cpp" 'int x;'; done
}
for larger in src/backend src/backend/cpu src/backend/cuda; do fill "$larger" 31; done
fill src/base 30
fill src/base/text 30
passes "a good tree"
fill src/base/text 31
rejects 'src/base/text: 31 files; 30 at most'
rm -r "$tree/src/base/text" "$tree/src/backend/f1.cpp"
rejects 'src/backend: 30 files; remove it from the larger folders'
rm -r "$tree/src"
rejects 'there is no folder'

summary
