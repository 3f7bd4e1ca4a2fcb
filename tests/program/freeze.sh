#!/usr/bin/env bash
# --freeze: the weights of a run with a rate of 0 for the same parameters, less traffic, and a run that goes on;
# --frozen-statistics: batch normalisation that keeps its running statistics.
set -u
source "$(dirname "$0")/lib.sh"

net=(--dataset synthetic --image-size 32 --train-limit 64 --test-limit 16 --global-batch 16 --model mobilenet-v3-small --lr 0.05
  --momentum 0.9 --epochs 2 --threads 1 --progress none --deterministic --logical-shards 4)
parts='features.0.*,features.1.*,features.2.*,features.3.*'
rates=${parts//,/=0,}=0
update=(--freeze "$parts" --frozen-statistics update)
run 0 120 1 "${net[@]}" --lr-for "$rates" --output "$folder/slow"
for ranks in 1 2; do
  run 0 120 "$ranks" "${net[@]}" "${update[@]}" --output "$folder/frozen-$ranks"
  same_files "$folder/slow/latest/model.safetensors" "$folder/frozen-$ranks/latest/model.safetensors"
done
run 0 120 2 "${net[@]}" "${update[@]}" --max-steps 3 --output "$folder/part"
run 0 120 1 "${net[@]}" "${update[@]}" --resume auto --output "$folder/part"
same_tensors "$folder/frozen-1/latest" "$folder/part/latest"

# The default keeps the statistics of these layers, and of these only, on any number of ranks and in a run that goes on.
run 0 120 1 "${net[@]}" --freeze "$parts" --output "$folder/keep-1"
grep -qE '^ +frozen +[0-9]+ of 34 batch normalizations keep their running statistics' "$words/out" ||
  fail "the header does not count what is frozen"
run 0 120 2 "${net[@]}" --freeze "$parts" --max-steps 3 --output "$folder/keep-2"
run 0 120 1 "${net[@]}" --freeze "$parts" --resume auto --output "$folder/keep-2"
same_tensors "$folder/keep-1/latest" "$folder/keep-2/latest"
grep -q '^frozen-statistics = keep' "$folder/keep-1/config.cfg" || fail "the run does not store what it does with statistics"
python3 - "$folder/keep-1" "$folder/frozen-1" <<'END' || fail "statistics that are kept change, or others are kept"
import json, re, struct, sys
def statistics(run):
    data = open(run + "/latest/model.safetensors", "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    for name, tensor in json.loads(data[8:8 + size]).items():
        if "running" not in name:
            continue
        begin, end = tensor["data_offsets"]
        values = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
        first = 0.0 if name.endswith("mean") else 1.0
        yield name, all(value == first for value in values)
for run, kept in zip(sys.argv[1:], (True, False)):
    for name, same in statistics(run):
        if same != (kept and re.match(r"features\.[0-3]\.", name) is not None):
            sys.exit(f"{run} {name}")
END
# A run that is resumed with other frozen parameters says so, and does not blame the processor.
run 0 120 1 "${net[@]}" --freeze "$parts" --max-steps 3 --output "$folder/other"
run 0 120 1 "${net[@]}" --max-steps 4 --lr 0.06 --momentum 0.8 --clip-norm 5 --nesterov --resume auto --output "$folder/other"
for change in '--freeze unset instead of features.0.\*' '--lr 0.06 instead of 0.05' '--momentum 0.8' '--clip-norm 5' '--nesterov on'; do
  grep -qE -- "^ +resumed .*$change" "$words/out" || fail "the header does not list '$change'"
done
if grep -q 'another kind of processor' "$words/err"; then fail "the processor is blamed"; fi
grep -q 'its steps need other kernels, which are chosen' "$words/err" || fail "nothing says that kernels are chosen"

# Only the classifier is trained: its gradient alone is sent, 10 x 1,025 floats with what fills them up to 256 bytes.
run 0 120 2 "${net[@]}" --freeze 'features.*,classifier.0.*' --output "$folder/head"
python3 - "$folder/head" <<'END' || fail "more than the gradient of the classifier is sent"
import json, sys
sent = sum(json.load(open(sys.argv[1] + "/timing.json"))["run"]["bucket_bytes"])
sys.exit(not 41000 <= sent <= 41500)
END
# Nothing at all is trained.
run 0 120 2 "${net[@]}" --freeze '*' --frozen-statistics update --output "$folder/nothing"
run 0 120 1 "${net[@]}" --lr 0 --momentum 0 --output "$folder/still"
same_files "$folder/nothing/latest/model.safetensors" "$folder/still/latest/model.safetensors"
run 0 60 1 bench "${net[@]}" --freeze "$parts" --stages
grep -qE '^features.0.0 .* +– +– +– +–$' "$words/out" || fail "the table times a backward pass that is not computed"
if grep -qE '[0-9]{4,}%' "$words/out"; then fail "a stage has a multiple of the peak"; fi
run 2 60 1 "${net[@]}" --frozen-statistics keep --output "$folder/none"
one_line '--frozen-statistics has no effect without --freeze'
finish
