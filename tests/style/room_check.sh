#!/usr/bin/env bash
# room_check.sh [ROOT]: checks that no folder of src/ has more than 30 files, so that one look shows what it consists of. Prints one
# line for each violation and exits with 1 if there are any.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

most=30

breaks=0
complain() {
  echo "$1"
  breaks=$((breaks + 1))
}

folders=0
while IFS= read -r folder; do
  folders=$((folders + 1))
  files=$(find "$folder" -maxdepth 1 -type f | wc -l)
  [ "$files" -le $most ] || complain "$folder: $files files; $most at most, divide it by concept"
done < <(find src -type d 2>/dev/null | sort)
[ "$folders" -gt 0 ] || complain "there is no folder $PWD/src"

if [ "$breaks" -gt 0 ]; then
  echo "room_check: $breaks breaks of the rules"
  exit 1
fi
echo "room_check: $folders folders have at most $most files"
