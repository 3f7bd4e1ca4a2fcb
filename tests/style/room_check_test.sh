#!/usr/bin/env bash
# Tests room_check.sh: a good tree passes, and each violation of a rule fails.
# shellcheck source=tests/style/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh" room_check.sh

# fill FOLDER COUNT: writes so many files.
fill() {
  local i
  for ((i = 1; i <= $2; ++i)); do put "$1/f$i.cpp" 'int x;'; done
}
fill src/base 30
fill src/base/text 30
passes "a good tree"
fill src/base/text 31
rejects 'src/base/text: 31 files; 30 at most'
rm -r "$tree/src"
rejects 'there is no folder'

summary
