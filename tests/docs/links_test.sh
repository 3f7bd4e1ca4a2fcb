#!/usr/bin/env bash
# links_test.sh ROOT: checks that every relative link and image in the Markdown files exists, and that README.md is
# short.
set -euo pipefail
cd "$1"
longest=130
failures=0
# without_code FILE: prints its lines outside of fenced code blocks.
without_code() { awk '/^ *```/ { code = !code; next } !code' "$1"; }
mapfile -t pages < <(find . -path ./build -prune -o -name '*.md' -print | grep -v '/\.' | sort)
for page in "${pages[@]}"; do
  while IFS= read -r target; do
    file=${target%%#*}
    [[ -z $file || $file == *://* || $file == mailto:* ]] && continue
    if [ ! -e "$(dirname "$page")/$file" ]; then
      echo "$page: broken link to $target"
      failures=$((failures + 1))
    fi
  done < <(without_code "$page" | grep -oE '\]\([^) ]+\)|(src|srcset)="[^"]+"' | sed -E 's/^\]\(//; s/\)$//; s/^src(set)?="//; s/"$//')
done
lines=$(wc -l <README.md)
if [ "$lines" -gt $longest ]; then
  echo "README.md: $lines lines; at most $longest, details belong in docs/"
  failures=$((failures + 1))
fi
[ "$failures" -eq 0 ] || exit 1
echo "links_test: the links of ${#pages[@]} pages point to files"
