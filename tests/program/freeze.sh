#!/usr/bin/env bash
# --freeze: the weights of a run with a rate of 0 for the same parameters, less traffic, and a run that goes on.
set -u
source "$(dirname "$0")/lib.sh"

net=(--dataset synthetic --image-size 32 --train-limit 64 --test-limit 16 --global-batch 16 --model mobilenet-v3-small --lr 0.05
  --momentum 0.9 --epochs 2 --threads 1 --progress none --deterministic --logical-shards 4)
parts='features.0.*,features.1.*,features.2.*,features.3.*'
rates=${parts//,/=0,}=0
run 0 120 1 "${net[@]}" --lr-for "$rates" --output "$folder/slow"
for ranks in 1 2; do
  run 0 120 "$ranks" "${net[@]}" --freeze "$parts" --output "$folder/frozen-$ranks"
  same_files "$folder/slow/latest/model.safetensors" "$folder/frozen-$ranks/latest/model.safetensors"
done
run 0 120 2 "${net[@]}" --freeze "$parts" --max-steps 3 --output "$folder/part"
run 0 120 1 "${net[@]}" --freeze "$parts" --resume auto --output "$folder/part"
same_tensors "$folder/frozen-1/latest" "$folder/part/latest"

# Only the classifier is trained: its gradient alone is sent, 10 x 1,025 floats with what fills them up to 256 bytes.
run 0 120 2 "${net[@]}" --freeze 'features.*,classifier.0.*' --output "$folder/head"
python3 - "$folder/head" <<'END' || fail "more than the gradient of the classifier is sent"
import json, sys
sent = sum(json.load(open(sys.argv[1] + "/timing.json"))["run"]["bucket_bytes"])
sys.exit(not 41000 <= sent <= 41500)
END
# Nothing at all is trained.
run 0 120 2 "${net[@]}" --freeze '*' --output "$folder/nothing"
run 0 120 1 "${net[@]}" --lr 0 --momentum 0 --output "$folder/still"
same_files "$folder/nothing/latest/model.safetensors" "$folder/still/latest/model.safetensors"
run 0 60 1 bench "${net[@]}" --freeze "$parts" --stages
finish
