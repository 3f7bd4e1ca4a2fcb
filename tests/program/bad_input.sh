#!/usr/bin/env bash
# Every invalid input gives one clear line and the documented exit code on all ranks within seconds, and damages no
# file.
set -u
source "$(dirname "$0")/lib.sh"

# bad_on RANKS CODE PATTERN ARGUMENTS...
bad_on() {
  local words=$folder/$1-ranks failures=0
  mkdir -p "$words"
  # Each has its own run folder, because only one process at a time can use it.
  run "$2" 10 "$1" --output "$folder/run-$1" "${@:4}"
  one_line "$3"
  return "$failures"
}

# bad CODE PATTERN ARGUMENTS...: on one rank and on two, simultaneously, because a failing job mostly waits for mpirun.
bad() {
  local job
  for ranks in 1 2; do bad_on "$ranks" "$@" & done
  for job in $(jobs -p); do wait "$job" || failures=$((failures + 1)); done
}

# Options.
bad 2 'epochs' --epoch 3
bad 2 'lenet' --model lenett
bad 2 'fashion-mnist' --dataset fashion-mnst
bad 2 'lr' --lr banana
bad 2 'momentum' --momentum 1.5
bad 2 'train' trian
bad 2 "freeze: no parameter of the model matches 'norm\*'; there are conv1.weight, " --freeze 'norm*'
bad 2 'epochs' --epochs 0
bad 2 '--balance on cannot be combined with --steps-in-flight of more than 1' --balance on --steps-in-flight 2
bad 2 'no-such.cfg' --config "$folder/no-such.cfg"
printf 'modle = lenet\n' >"$folder/bad.cfg"
bad 2 'bad.cfg.*model' --config "$folder/bad.cfg"
bad 2 'global-batch' --global-batch 0
run 2 10 2 --global-batch 1
one_line 'global-batch'
run 2 10 2 -b 32
one_line 'global-batch.*batch-per-rank'

# Data: a small set of files, each of which is damaged.
idx() { # idx IMAGES LABELS: an IDX pair of 28x28 zeros
  printf '%b' "\\0\\0\\010\\03\\0\\0\\0$(printf '\\0%o' "$1")\\0\\0\\0\\034\\0\\0\\0\\034" && head -c $((784 * $1)) /dev/zero
}
labels() { printf '%b' "\\0\\0\\010\\01\\0\\0\\0$(printf '\\0%o' "$1")" && head -c "$1" /dev/zero; }
fresh() {
  rm -rf "$folder/data" && mkdir -p "$folder/data/mnist"
  data=$folder/data/mnist
  idx 40 >"$data/train-images-idx3-ubyte"
  labels 40 >"$data/train-labels-idx1-ubyte"
  idx 8 | gzip >"$data/t10k-images-idx3-ubyte.gz"
  labels 8 | gzip >"$data/t10k-labels-idx1-ubyte.gz"
}
mnist=(--dataset mnist --data-dir "$folder/data" --global-batch 8 --epochs 1 --progress none)
fresh
run 0 30 2 "${mnist[@]}" --output "$folder/run" # the files are good before they are damaged
rm -rf "$folder/run"
bad 4 'get-data' --dataset mnist --data-dir "$folder/nowhere"
fresh; rm "$data/train-labels-idx1-ubyte"
bad 4 'train-labels' "${mnist[@]}"
fresh; truncate -s 1000 "$data/train-images-idx3-ubyte"
bad 4 'train-images' "${mnist[@]}"
fresh; head -c 100 /dev/zero >>"$data/train-images-idx3-ubyte"
bad 4 'train-images' "${mnist[@]}"
fresh; head -c 31376 /dev/urandom >"$data/train-images-idx3-ubyte"
bad 4 'train-images' "${mnist[@]}"
fresh; printf '\0\0\10\3\177\377\377\377\0\0\0\34\0\0\0\34' >"$data/train-images-idx3-ubyte"
bad 4 'train-images' "${mnist[@]}"
fresh; truncate -s 60 "$data/t10k-images-idx3-ubyte.gz"
bad 4 't10k-images' "${mnist[@]}"
fresh; head -c 200 /dev/urandom >"$data/t10k-images-idx3-ubyte.gz"
bad 4 't10k-images' "${mnist[@]}"
fresh; printf '\12' | dd of="$data/train-labels-idx1-ubyte" bs=1 seek=20 conv=notrunc status=none
bad 4 'label' "${mnist[@]}"
fresh; labels 39 >"$data/train-labels-idx1-ubyte"
bad 4 '40.*39|39.*40' "${mnist[@]}"
for run in "$folder"/run "$folder"/run-*; do
  [ ! -e "$run" ] || fail "a run that could not start left $(ls -R "$run")"
done

# The run folder.
touch "$folder/file"
bad 8 'file' "${small[@]}" --output "$folder/file/run"
if [ -w /proc/sys ] || [ "$(id -u)" -eq 0 ]; then bad 8 '/proc' "${small[@]}" --output /proc/run; fi

# A full disk, simulated by a file size limit: the job ends, and no link points to an incomplete checkpoint.
whole=$program
printf '#!/usr/bin/env bash\nulimit -f 300\nexec "%s" "$@"\n' "$whole" >"$folder/limited"
chmod +x "$folder/limited"
program=$folder/limited
run 8 60 1 "${small[@]}" --epochs 1 --output "$folder/full"
program=$whole
one_line 'File too large'
[ ! -e "$folder/full/latest" ] || fail "latest points to an incomplete checkpoint"
# An export replaces an earlier one completely or not at all.
run 0 60 1 "${small[@]}" --epochs 1 --output "$folder/source"
mkdir "$folder/exports"
for name in net.safetensors net.onnx; do
  echo 'an earlier export' >"$folder/exports/$name"
  program=$folder/limited
  run 8 60 1 export --run "$folder/source" --to "$folder/exports/$name"
  program=$whole
  one_line 'File too large'
  [ "$(cat "$folder/exports/$name")" = 'an earlier export' ] || fail "a failed export changed $name"
done
[ "$(find "$folder/exports" -mindepth 1 | wc -l)" -eq 2 ] || fail "a failed export leaves $(ls -A "$folder/exports")"

# Checkpoints.
run 0 60 2 "${small[@]}" --epochs 2 --output "$folder/kept" --keep-checkpoints 2
newest=$folder/kept/checkpoints/step-00000016
older=$folder/kept/checkpoints/step-00000008
sum() { (cd "$1" && cat ./*) | md5sum; }
before=$(sum "$older")
cp -r "$newest" "$folder/good"
bad 8 'nowhere' "${small[@]}" --resume "$folder/nowhere"
truncate -s 5000 "$newest/model.safetensors"
bad 8 'model.safetensors' "${small[@]}" --resume "$newest"
rm -rf "$newest" && cp -r "$folder/good" "$newest"
printf 'X' | dd of="$newest/optimizer.safetensors" bs=1 seek=3000 conv=notrunc status=none
bad 8 'optimizer.safetensors' "${small[@]}" --resume "$newest"
# --resume auto falls back to the newest intact one and reports it.
run 0 60 2 "${small[@]}" --epochs 2 --output "$folder/kept" --resume auto
grep -q 'step-00000016' "$folder/err" || fail "the damaged checkpoint is not reported"
rm -rf "$folder/other" && cp -r "$folder/good" "$folder/other"
sed -i 's/"format_version": *[0-9]*/"format_version": 99/' "$folder/other/MANIFEST.json"
bad 8 'version|MANIFEST' "${small[@]}" --resume "$folder/other"
bad 8 'seed' "${small[@]}" --seed 5 --resume "$folder/good"
bad 8 'momentum|optimizer' "${small[@]}" --momentum 0 --resume "$folder/good"
[ "$(sum "$older")" = "$before" ] || fail "an older checkpoint was changed"

# A non-finite loss: no update, and the previous checkpoint is kept.
run 6 60 2 "${small[@]}" --epochs 3 --lr 1000000 --output "$folder/inf" --log-interval 1
one_line 'is not finite.*--lr'
# Finite losses but non-finite running statistics: nothing is saved. Sums in fp32 overflow as well, in the gradient before; those
# in double, of the kernels that are chosen here, do not.
DDP_INSTRUCTION_SET=baseline run 6 60 2 "${small[@]}" --model mnist-slim --weight-decay 1000 --decay decoupled --lr 100000 --checkpoint-every 1 \
  --output "$folder/diverged"
one_line "(running_var' contains non-finite values; it was not saved|the weights were not updated), and the checkpoint of step 2 is kept"
[ "$(readlink "$folder/diverged/latest")" = checkpoints/step-00000002 ] || fail "latest is not the previous checkpoint"
# Finite weights but non-finite outputs: never the best, and no evaluation result.
run 0 60 2 "${small[@]}" --lr 30000 --schedule constant --max-steps 2 --output "$folder/overflow"
[ ! -e "$folder/overflow/best" ] || fail "non-finite outputs are the best"
grep -q '"val_loss":null' "$folder/overflow/metrics.jsonl" || fail "no val_loss null"
run 6 60 2 eval "${small[@]}" --device cpu --resume "$folder/overflow"
one_line 'loss on the test set is not finite'
[ ! -s "$folder/out" ] || fail "eval prints a line with a non-finite loss"
finish
