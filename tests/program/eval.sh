#!/usr/bin/env bash
# ddp_train eval and report: a run is enough, from any folder and without its training images; tables for people, JSON for
# machines.
set -u
source "$(dirname "$0")/lib.sh"
golden=$(dirname "$0")/../golden/images
data="$folder/my images"
for split in train val; do
  for class in 'grün' $'caf\xe9' 'red one'; do
    mkdir -p "$data/$split/$class"
    for copy in 1 2; do cp "$golden/photo.jpg" "$data/$split/$class/a$copy.jpg"; done
    cp "$golden/grey.jpg" "$data/$split/$class/c.jpg"
  done
done

# Nothing but the run is named: data, image size, channels, normalisation, batch and model are those of the run.
run 0 60 2 --dataset folder --data-dir "$data" --image-size 32x28 --image-channels 1 --normalize standard --model lenet \
  --global-batch 4 --epochs 2 --ema-decay 0.5 --threads 1 --progress none --output "$folder/a run"
grep -qE '^accuracy [0-9.]+ % \(top 1\) on 9 test images after epoch 2' "$folder/out" || fail "no result at the end"
grep -q '^time by phase ' "$folder/out" || fail "no time by phase"
# Other kernels may be chosen for the evaluation, so that the last digits differ.
loss_of() { grep -o '"val_loss":[^,]*' "$1" | tail -1 | cut -d: -f2 | xargs printf '%.5f'; }
logged=$(loss_of "$folder/a run/metrics.jsonl")
mv "$data/train" "$folder/elsewhere"
mkdir "$folder/empty" && cd "$folder/empty" || exit 1
run 0 30 1 eval --run "$folder/a run" --json
[ "$(loss_of "$folder/out")" = "$logged" ] || fail "eval --run has another loss than $logged"
python3 - "$folder/out" <<'PYTHON' || fail "the line of --json"
import json, sys
line = json.loads(open(sys.argv[1], encoding='utf-8').read())
assert line['classes'] == ['caf\\xE9', 'grün', 'red one'], line
assert line['samples'] == 9 and sum(map(sum, line['confusion'])) == 9, line
PYTHON
run 0 30 2 eval --run "$folder/a run" --checkpoint best
for word in 'images      9 of 3 classes' 'accuracy  ' 'class .* images  accuracy  taken for' '^grün ' '^caf.xE9 ' 'class . answer'; do
  grep -qE "$word" "$folder/out" || fail "no '$word' in the table"
done
# What the user says counts.
run 4 30 1 eval --run "$folder/a run" --device cpu --data-dir "$folder/nowhere"
one_line "cannot be listed|no image folder"
run 2 30 1 train --json
one_line '[-]-json applies to the command eval only'

# The report has the names of the classes.
run 0 30 1 report "$folder/a run" --to "$folder/report.html"
for word in 'What was learned' 'grün' 'mpirun -np 2 ddp_train' 'begun 20' 'accuracy on the test images, percent'; do
  grep -q "$word" "$folder/report.html" || fail "no '$word' in the report"
done
finish
