#!/usr/bin/env bash
# scaling: measures 1, 2 and 3 ranks of one job, explains them, and draws the curve.
set -u
source "$(dirname "$0")/lib.sh"

given=(scaling --device cpu --dataset glyphs --train-limit 2000 --threads 1 --scaling-seconds 0.3)
run 0 120 3 "${given[@]}" --global-batch 96 --to "$folder/curve.svg"
for found in 'strong scaling' 'weak scaling' 'smaller batch' 'slower ranks' '^model: ' '^check: 3 ranks: ' '^the curve is in ' \
  '^3 ranks give [0-9.]*x the images/s of 1 rank'; do
  grep -q "$found" "$folder/out" || fail "no '$found' in the output"
done
# Both tables have a row for 1, 2 and 3 ranks; the shares that are lost and the efficiency add up to a step.
awk '
  /scaling: the same/ { tables++ }
  tables > 0 && NF == 7 && $1 == 1 { ones++ }
  tables > 0 && NF == 13 && $1 ~ /^[23]$/ {
    rows++
    sum = 0
    for (i = 7; i <= 13; ++i) sum += $i
    if (sum < 99 || sum > 101) { print "the shares of " $0 " add up to " sum; bad = 1 }
  }
  END { exit bad || tables != 2 || ones != 2 || rows != 4 }' "$folder/out" || fail "the tables are incomplete"
python3 - "$folder/curve.svg" <<'PYTHON' || fail "the curve is not an image"
import sys, xml.etree.ElementTree as xml
root = xml.parse(sys.argv[1]).getroot()
assert root.tag.endswith("svg") and root.get("aria-label")
lines = [e for e in root.iter() if e.tag.endswith("polyline")]
assert len(lines) >= 3 and len(lines[0].get("points").split()) == 3, lines
PYTHON
[ "$(find . -maxdepth 1 -name runs -newer "$folder/curve.svg" | wc -l)" -eq 0 ] || fail "a run folder is left"

run 0 60 1 "${given[@]}" --global-batch 32 --to "$folder/none.svg"
grep -q 'there is one rank only' "$folder/out" || fail "one rank is not called so"
[ ! -e "$folder/none.svg" ] || fail "a curve of one rank"

# Bad input ends all ranks, also those that wait.
run 2 60 2 "${given[@]}" --batch-size 32
one_line 'batch-per-rank'
run 2 60 2 "${given[@]}" --global-batch 32 --logical-shards 1
one_line 'logical-shards'
run 4 60 2 "${given[@]}" --dataset mnist --data-dir "$folder/nowhere"
one_line 'nowhere'
run 2 60 1 train --scaling-seconds 3
one_line 'applies to the command scaling only'
run 2 60 2 scaling somewhere
one_line "unexpected 'somewhere'"
run 8 60 2 "${given[@]}" --global-batch 32 --to "$folder/no/such/folder.svg"
one_line 'folder.svg'

finish
