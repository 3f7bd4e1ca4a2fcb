#!/usr/bin/env bash
# One rank and several are the same computation: losses within 1e-5, and with --deterministic the same bits, also when
# a run goes on with another number of ranks.
set -u
source "$(dirname "$0")/lib.sh"

losses() { grep '"loss"' "$1/metrics.jsonl" | sed 's/.*"loss":\([0-9.e+-]*\),.*/\1/'; }
for reduction in ring root tree; do
  for ranks in 1 2 3 4; do
    [ "$reduction" != ring ] && [ "$ranks" -eq 4 ] && continue
    run 0 120 "$ranks" "${small[@]}" --max-steps 30 --log-interval 1 --reduction "$reduction" \
      --output "$folder/$reduction-$ranks"
    paste <(losses "$folder/ring-1") <(losses "$folder/$reduction-$ranks") |
      awk 'NF != 2 || ($1 - $2) / $1 > 1e-5 || ($2 - $1) / $1 > 1e-5 { bad = 1 } END { exit bad || NR != 30 }' ||
      fail "the losses of $ranks ranks by $reduction differ from those of one"
  done
done

exact=("${small[@]}" --deterministic --logical-shards 4 --epochs 2)
for ranks in 1 2 3 4; do
  run 0 120 "$ranks" "${exact[@]}" --output "$folder/exact-$ranks"
  same_tensors "$folder/exact-1/latest" "$folder/exact-$ranks/latest"
done
run 0 60 3 "${exact[@]}" --output "$folder/moved" --max-steps 5
run 0 60 1 "${exact[@]}" --output "$folder/moved" --max-steps 11 --resume auto
run 0 60 4 "${exact[@]}" --output "$folder/moved" --resume auto
same_tensors "$folder/exact-1/latest" "$folder/moved/latest"

# Batch statistics of each shard, dropout and augmentation do not depend on ranks either.
deep=("${small[@]}" --model mnist-slim --random-crop-padding 2 --deterministic
  --logical-shards 4 --epochs 1)
for ranks in 1 2 3 4; do
  run 0 120 "$ranks" "${deep[@]}" --output "$folder/deep-$ranks"
  same_tensors "$folder/deep-1/latest" "$folder/deep-$ranks/latest"
done
run 0 60 2 "${deep[@]}" --output "$folder/deep-moved" --max-steps 3
run 0 60 3 "${deep[@]}" --output "$folder/deep-moved" --resume auto
same_tensors "$folder/deep-1/latest" "$folder/deep-moved/latest"
finish
