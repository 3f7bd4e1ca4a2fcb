#!/usr/bin/env bash
# recording_cost.sh PROGRAM [PAIRS] [MODEL]: what recording costs a step. Pairs of short runs on one rank, with --recording on (and event
# files and a trace) and off, one directly after the other and in changing order, since other programs come and go. Prints the
# median of the ratios of their images per second.
set -eu
program=$(realpath "$1") pairs=${2:-20} model=${3:-lenet}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
options=(--dataset glyphs --model "$model" --global-batch 128 --train-limit 25600 --test-limit 10 --epochs 3 --eval-every 0 --threads 1
  --checkpoint-every 100000 --progress none --plan-cache "$folder/plans")

# rate MODE: images per second of the epochs behind the first.
rate() {
  rm -rf "$folder/run"
  "$program" "${options[@]}" --recording "$1" --tensorboard "$1" --trace "$1" --output "$folder/run" >/dev/null 2>&1
  tail -n 2 "$folder/run/summary.csv" | awk -F, '{ seconds += 1 / $NF } END { print 2 / seconds }'
}

rate on >/dev/null # plans
for ((pair = 0; pair < pairs; pair++)); do
  if [ $((pair % 2)) -eq 0 ]; then
    with=$(rate on) without=$(rate off)
  else
    without=$(rate off) with=$(rate on)
  fi
  awk -v a="$without" -v b="$with" 'BEGIN { print a / b }'
done | sort -g | awk '{ v[NR] = $1 } END { printf "%d pairs: a step with recording takes %+.2f%% (median; quartiles %+.2f%% and %+.2f%%)\n", NR,
  100 * (v[int((NR + 1) / 2)] - 1), 100 * (v[int((NR + 3) / 4)] - 1), 100 * (v[int((3 * NR + 1) / 4)] - 1) }'
