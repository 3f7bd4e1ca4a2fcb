#!/usr/bin/env bash
# explain and compare, on runs and on what is not one.
set -u
source "$(dirname "$0")/lib.sh"

run 0 120 2 "${small[@]}" --deterministic --logical-shards 2 --epochs 4 --log-interval 10 --random-crop-padding 2 --output "$folder/a"
grep -qE '^(nothing is wrong|[a-z].*(bound|straggler|cores|path|rank|shards)[^:]*): ' "$folder/out" || fail "no verdict at the end of a run"
[ "$(wc -l <"$folder/a/steps.csv")" -eq 33 ] || fail "steps.csv has not 33 lines"
grep -q '"ranks":{"steps":' "$folder/a/metrics.jsonl" || fail "no phases of the ranks"
grep -q '"mfu":' "$folder/a/metrics.jsonl" || grep -q '"peak_flops":null' "$folder/a/timing.json" || fail "no mfu"
for key in val_top5_accuracy class_accuracy confusion; do
  grep -q "\"$key\":" "$folder/a/metrics.jsonl" || fail "no $key in an evaluation"
  grep -q "\"$key\":" "$folder/a/latest/evaluation.json" || fail "no $key in evaluation.json"
done
run 0 60 1 explain "$folder/a"
grep -q '^verdict: ' "$folder/out" || fail "explain prints no verdict"
grep -q '^a step takes ' "$folder/out" || fail "explain does not say what a step takes"

# Evaluations on the critical path; the cure is tried on as many ranks as the run had.
run 0 120 2 --dataset glyphs --train-limit 64 --test-limit 2000 --global-batch 32 --threads 1 --progress none --epochs 30 \
  --checkpoint-every 1000 --output "$folder/evaluates"
run 0 60 1 explain "$folder/evaluates"
grep -q '^verdict: evaluation on the critical path: ' "$folder/out" || fail "the evaluations are not blamed"
grep -q '^cure: --eval-every 10: ' "$folder/out" || fail "no cure"
run 2 60 1 explain "$folder/evaluates" --verify 40
one_line 'mpirun -np 2'
run 0 120 2 explain "$folder/evaluates" --verify 80
awk '/^verified: / { found = 1; sub("x", "", $4); gain = $4 } END { exit !(found && gain > 1.5) }' "$folder/out" ||
  fail "evaluating every tenth epoch did not help"
[ ! -e "$folder/evaluates/verify" ] || fail "the folder of the verification is left"

# The same run again has no difference, also on another number of ranks; another one does.
run 0 120 1 "${small[@]}" --deterministic --logical-shards 2 --epochs 4 --log-interval 10 --random-crop-padding 2 --output "$folder/b"
run 0 60 1 compare "$folder/a" "$folder/b"
grep -q '^no difference in the 32 steps' "$folder/out" || fail "runs on one and two ranks differ"
differs() { # KIND OPTIONS...
  local kind=$1
  shift
  run 0 120 1 "${small[@]}" --deterministic --logical-shards 2 --epochs 1 --random-crop-padding 2 "$@" --output "$folder/c-$kind"
  run 0 60 1 compare "$folder/a" "$folder/c-$kind"
  grep -q "^first difference at step .*: $kind: " "$folder/out" || fail "$* is not called $kind"
  grep -q '^options: ' "$folder/out" || fail "compare does not name the option"
}
differs 'data order' --seed 2
differs augmentation --cutout 4
differs schedule --schedule cosine
differs weights --init xavier
differs update --momentum 0.5

# What is no run is one line.
run 8 60 1 explain "$folder/nowhere"
one_line 'no such folder'
mkdir "$folder/empty"
run 8 60 1 explain "$folder/empty"
one_line 'not the folder of a run'
run 8 60 1 compare "$folder/a" "$folder/empty"
one_line 'no steps.csv'
cp -r "$folder/a" "$folder/damaged"
head -c 300 "$folder/a/timing.json" >"$folder/damaged/timing.json"
run 8 60 1 explain "$folder/damaged"
one_line 'timing.json: damaged'
rm "$folder/damaged/timing.json"
run 8 60 1 explain "$folder/damaged"
one_line 'older ddp_train'
run 2 60 1 explain
one_line 'requires the folder of a run'
run 2 60 1 compare "$folder/a"
one_line 'requires the folders of two runs'
# A run that still goes on.
sed 's/"complete":true/"complete":false/' "$folder/a/timing.json" >"$folder/damaged/timing.json"
run 0 60 1 explain "$folder/damaged"
grep -q '^the run has not ended, or was stopped; measured until step 32' "$folder/out" || fail "a running run is not called so"

finish
