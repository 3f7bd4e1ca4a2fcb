#!/usr/bin/env bash
# links_test.sh ROOT: checks that every relative link and image in the Markdown files exists, with its section where it names one,
# that README.md is short, that no page of docs/ or bench/history/ has more lines than a reader finishes, and that src/README.md has
# a row for every folder of src/.
set -euo pipefail
cd "$1"
longest=130
longest_page=300
failures=0
fail() {
  echo "$1"
  failures=$((failures + 1))
}
# without_code FILE: prints its lines outside of fenced code blocks.
without_code() { awk '/^ *```/ { code = !code; next } !code' "$1"; }
# sections FILE: the names of its sections as links write them: small letters, "-" for spaces, without punctuation.
sections() {
  without_code "$1" | sed -nE 's/^#+ +//p' | sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g' | tr '[:upper:]' '[:lower:]' |
    sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}
mapfile -t pages < <(find . \( -path ./build -o -path ./bench/pages \) -prune -o -name '*.md' -print | grep -v '/\.' | sort)
for page in "${pages[@]}"; do
  while IFS= read -r target; do
    file=${target%%#*}
    [[ $file == *://* || $file == mailto:* ]] && continue
    linked=$page
    [ -z "$file" ] || linked=$(dirname "$page")/$file
    if [ ! -e "$linked" ]; then
      fail "$page: broken link to $target"
    elif [[ $target == *#* && $linked == *.md ]] && ! sections "$linked" | grep -qxF -- "${target#*#}"; then
      fail "$page: $linked has no section #${target#*#}"
    fi
  done < <(without_code "$page" | grep -oE '\]\([^) ]+\)|(src|srcset)="[^"]+"' | sed -E 's/^\]\(//; s/\)$//; s/^src(set)?="//; s/"$//')
done
lines=$(wc -l <README.md)
[ "$lines" -le $longest ] || fail "README.md: $lines lines; at most $longest, details belong in docs/"
for page in docs/*.md bench/history/*.md; do
  lines=$(wc -l <"$page")
  [ "$lines" -le $longest_page ] || fail "$page: $lines lines; at most $longest_page, divide it by what a reader looks for"
done
for page in docs/architecture.md docs/performance.md; do
  lines=$(wc -l <"$page")
  [ "$lines" -le 200 ] || fail "$page: $lines lines; at most 200, details belong on pages of their own"
done
# Every room of src/ is a row of its tour, and every row a room.
rooms() { find src -mindepth 2 -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \) -printf '%h\n' | sort -u | sed 's|^src/||'; }
# shellcheck disable=SC2016  # backquotes of Markdown
rows() { sed -nE 's/^\| `([a-z0-9_\/]+)` \|.*/\1/p' src/README.md | sort -u; }
while read -r room; do fail "src/README.md has no row for $room; one line says what is changed there"; done < <(comm -23 <(rooms) <(rows))
while read -r room; do fail "src/README.md has a row for $room, which is no folder with sources"; done < <(comm -13 <(rooms) <(rows))
[ "$failures" -eq 0 ] || exit 1
echo "links_test: the links of ${#pages[@]} pages point to files and sections"
