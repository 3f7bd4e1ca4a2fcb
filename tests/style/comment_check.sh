#!/usr/bin/env bash
# comment_check.sh [ROOT]: comments are sentences or noun phrases: none begins with "Of ..." as a possessive without its noun
# (not "Of this rank; ..." but "Times of this rank; ..."). Prints one line for each violation and exits with 1 if there are any.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

mapfile -t files < <(find src tests bench launch -name build -prune -o -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \
  -o -name '*.inc' -o -name '*.py' -o -name '*.sh' -o -name CMakeLists.txt -o -path 'launch/*' -o -path 'bench/*' ! -name '*.*' \) -print 2>/dev/null | sort)
if [ ${#files[@]} -eq 0 ]; then
  echo "there is no source file under $PWD"
  exit 1
fi
breaks=$(grep -nHIE '(//|^[[:space:]]*#) Of ' "${files[@]}" || true)
if [ -n "$breaks" ]; then
  echo "$breaks"
  echo "comment_check: $(wc -l <<<"$breaks") comments begin with 'Of': say what it is that belongs to it"
  exit 1
fi
echo "comment_check: the comments of ${#files[@]} files begin with their noun"
