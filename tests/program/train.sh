#!/usr/bin/env bash
# A complete run on two ranks writes the documented files and learns.
set -u
source "$(dirname "$0")/lib.sh"

run 0 120 2 "${small[@]}" --epochs 12 --lr 0.1 --log-interval 1 --output "$folder/run" --progress lines
for file in config.cfg metrics.jsonl summary.csv latest/model.safetensors best/MANIFEST.json \
  checkpoints/step-00000096/state.json; do
  [ -s "$folder/run/$file" ] || fail "$file is missing"
done
[ "$(grep -c '"loss"' "$folder/run/metrics.jsonl")" -eq 96 ] || fail "not 96 training lines"
[ "$(grep -c '"val_accuracy"' "$folder/run/metrics.jsonl")" -eq 12 ] || fail "not 12 evaluation lines"
for key in step epoch loss lr images_per_second data_wait forward backward exposed_communication optimizer evaluation \
  checkpoint; do
  head -1 "$folder/run/metrics.jsonl" | grep -q "\"$key\":" || fail "a training line has no $key"
done
[ "$(wc -l <"$folder/run/summary.csv")" -eq 13 ] || fail "summary.csv does not have 13 lines"
grep -qE '^(slowest rank|the ranks are balanced): ' "$folder/out" || fail "no summary of the slowest rank"
grep -q '128 global = 2 ranks x 64' "$folder/out" || fail "no batch arithmetic in the header"
# The first losses are about ln 10; the last far below.
first=$(sed -n 1p "$folder/run/metrics.jsonl" | sed 's/.*"loss":\([0-9.e-]*\).*/\1/')
last_loss=$(grep '"loss"' "$folder/run/metrics.jsonl" | tail -1 | sed 's/.*"loss":\([0-9.e-]*\).*/\1/')
awk -v a="$first" -v b="$last_loss" 'BEGIN { exit !(a > 2.2 && a < 2.4 && b < 0.7 * a) }' ||
  fail "the loss went from $first to $last_loss"

# The stored configuration reproduces the run bit-identically.
run 0 60 2 --config "$folder/run/config.cfg" --output "$folder/again"
same_tensors "$folder/run/latest" "$folder/again/latest"

# While rank 0 writes a checkpoint, the other ranks' waiting time counts as the checkpoint phase, not as communication.
run 0 120 2 "${small[@]}" --epochs 1 --checkpoint-every 1 --progress lines --summary full --output "$folder/often"
awk '$1 == "checkpoint" { found = 1; even = $2 > 0.75 * $5 } END { exit !(found && even) }' "$folder/out" ||
  fail "the ranks do not share the time of the checkpoints: $(grep -E '^ *checkpoint' "$folder/out")"

# eval prints the result of the last evaluation.
run 0 60 2 eval --json "${small[@]}" --output "$folder/run"
accuracy=$(grep '"val_accuracy"' "$folder/run/metrics.jsonl" | tail -1 | sed 's/.*"val_accuracy":\([0-9.]*\).*/\1/')
grep -q "\"val_accuracy\":$accuracy," "$folder/out" || fail "eval does not say $accuracy"

# Evaluations use plain cross-entropy regardless of the training loss.
grep -o '"val_loss":[^,]*' "$folder/out" >"$folder/plain"
run 0 60 2 eval --json "${small[@]}" --label-smoothing 0.3 --output "$folder/run"
same_files "$folder/plain" <(grep -o '"val_loss":[^,]*' "$folder/out")
# The line is valid JSON for any folder name.
cp -r "$folder/run" "$folder/a \"quoted\" name"
run 0 60 1 eval --json "${small[@]}" --output "$folder/a \"quoted\" name"
grep -q 'a \\"quoted\\" name' "$folder/out" || fail "quotes in a path are not escaped"

# A second run in the same folder keeps the first.
run 0 60 1 "${small[@]}" --max-steps 2 --output "$folder/run"
[ -s "$folder/run/earlier-1/latest/model.safetensors" ] || fail "the earlier run is gone"
same_tensors "$folder/run/earlier-1/checkpoints/step-00000096" "$folder/again/latest"

# The ranks of a host share the timing, and larger batches, which are timed alike, its result.
run 0 60 2 plan --model mnist-towers --global-batch 160
grep -qE 'timed in .* by 2 ranks' "$folder/out" || fail "the ranks do not share the timing of kernels"
run 0 60 2 plan --model mnist-towers --global-batch 256
grep -q 'from the cache' "$folder/out" || fail "a plan is for one batch only"
run 0 60 1 plan "${small[@]}"
grep -q 'arena, shared by liveness' "$folder/out" || fail "plan does not print the arena"
grep -qE '^conv1 .*%$' "$folder/out" || fail "plan does not print how fast the stages are"
# Neither requires the files of a data set.
run 0 60 1 plan --model lenet --dataset mnist --data-dir "$folder/nowhere" --global-batch 64
grep -q 'random pixels of 1x28x28 replace the images' "$folder/err" || fail "plan does not say what replaces the images"
run 0 60 2 bench --dataset mnist --data-dir "$folder/nowhere" --global-batch 64
run 0 60 2 bench --global-batch 64
grep -q '"samples_per_second":' "$folder/out" || fail "bench prints no speed"
printf '\n\n' >"$folder/requests"
run 0 60 2 bench --global-batch 64 --on-request <"$folder/requests"
[ "$(grep -c '"samples_per_second":' "$folder/out")" -eq 2 ] || fail "bench does not answer two requests with two lines"
grep -q '^measured peak: ' "$folder/out" && fail "bench prints the stages without being told to"
run 0 60 2 bench --global-batch 64 --stages
grep -q '^measured peak: .* GFLOP/s' "$folder/out" || fail "bench --stages does not measure the peak"
grep -qE '^conv1 .*%$' "$folder/out" || fail "bench --stages does not print the share of the peak"
tail -1 "$folder/out" | grep -q '"samples_per_second":' || fail "the result is not the last line of bench --stages"
run 2 20 1 train --stages
one_line '--stages applies to the command bench only'
run 2 20 1 train --on-request
one_line '--on-request applies to the command bench only'
run 6 60 2 bench --global-batch 64 --lr 100000
grep -q 'non-finite values, so their time is meaningless; lower --lr' "$folder/err" || fail "bench times meaningless steps"
finish
