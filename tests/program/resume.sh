#!/usr/bin/env bash
# Stopping after any step and resuming is bit-identical to not stopping.
set -u
source "$(dirname "$0")/lib.sh"

for ranks in 1 2; do
  whole=$folder/whole-$ranks
  run 0 120 "$ranks" "${small[@]}" --epochs 2 --output "$whole" --log-interval 1
  # In the first epoch, at its end, in the second, and before the last step.
  for steps in 3 8 11 15; do
    part=$folder/part-$ranks-$steps
    run 0 60 "$ranks" "${small[@]}" --epochs 2 --output "$part" --log-interval 1 --max-steps "$steps"
    run 0 60 "$ranks" "${small[@]}" --epochs 2 --output "$part" --log-interval 1 --resume auto
    same_tensors "$whole/latest" "$part/latest"
    losses() { grep '"loss"' "$1/metrics.jsonl" | sed 's/"images_per_second.*//'; }
    [ "$(losses "$whole")" = "$(losses "$part")" ] || fail "the losses of a run resumed at $steps differ"
    cut -d, -f1-6 "$whole/summary.csv" >"$folder/a"
    cut -d, -f1-6 "$part/summary.csv" >"$folder/b"
    [ "$steps" -eq 3 ] && ! cmp -s "$folder/a" "$folder/b" && fail "summary.csv of a run resumed at $steps differs"
  done
done

# A checkpoint given by its path, resumed in another folder.
run 0 60 1 "${small[@]}" --epochs 2 --output "$folder/every" --checkpoint-every 5 --keep-checkpoints 9
run 0 60 1 "${small[@]}" --epochs 2 --output "$folder/from-5" --resume "$folder/every/checkpoints/step-00000005"
same_tensors "$folder/whole-1/latest" "$folder/from-5/latest"

# A complete run is not changed.
run 0 60 1 "${small[@]}" --epochs 2 --output "$folder/from-5" --resume auto
same_tensors "$folder/whole-1/latest" "$folder/from-5/latest"
finish
