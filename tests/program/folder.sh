#!/usr/bin/env bash
# The run folder belongs to one run: locked, never partially written, nothing lost, and interrupted endings completed.
set -u
source "$(dirname "$0")/lib.sh"
exact=("${small[@]}" --deterministic --logical-shards 2 --epochs 3)

everything() { (cd "$1" && find . -type f -exec md5sum {} + && find . -type l -printf '%p %l\n') | sort; }
# start OUTPUT ARGUMENTS...: starts one rank in the background and waits until it trains.
start() {
  "$program" "${small[@]}" --epochs 5000 --output "$@" >"$folder/started.out" 2>"$folder/started.err" &
  job=$!
  for _ in $(seq 200); do
    [ -e "$1/run.lock" ] && [ -s "$1/summary.csv" ] && [ -e "$1/latest" ] && return
    sleep 0.05
  done
  fail "the run in $1 did not start"
}
ends() { # ends CODE SECONDS
  local got=0
  timeout "$2" tail --pid="$job" -f /dev/null || fail "the run did not end within $2 s"
  kill -9 "$job" 2>/dev/null
  wait "$job" || got=$?
  [ "$got" -eq "$1" ] || fail "exit code $got instead of $1 of the run in the background: $(cat "$folder/started.err")"
}

# Two runs in one folder: the second always exits with 8, and the first is not affected.
start "$folder/one"
for resume in none auto "$folder/one/latest"; do
  run 8 20 2 "${small[@]}" --output "$folder/one" --resume "$resume"
  one_line "$folder/one is in use by process $job on host .*; wait for it, stop it, or use another --output"
done
kill -USR1 "$job"
ends 75 20
if [ -e "$folder/one/earlier-1" ] || [ -e "$folder/one/run.lock" ]; then fail "the second run left traces"; fi

# The lock of a killed process does not block others.
start "$folder/killed"
kill -KILL "$job"
ends 137 5
[ -e "$folder/killed/run.lock" ] || fail "there is no lock"
run 0 20 1 "${small[@]}" --output "$folder/killed" --resume auto --epochs 5000 --max-steps 1
grep -q 'took over the lock of process' "$folder/err" || fail "the takeover of the lock is not reported"

# The lock of a lost host, which has shown no sign of life for 52 s: two runs wait longer than --hang-timeout; one takes
# it over, the other one is rejected, and leaves nothing in the folder of the first.
mkdir "$folder/lost"
echo '{"host":"lost","boot":"b","pid_namespace":"p","pid":1,"started":1,"since":"then\u001b[31m","token":"t"}' >"$folder/lost/run.lock"
touch -d '52 seconds ago' "$folder/lost/run.lock"
pids=()
for n in 1 2; do
  "$program" "${small[@]}" --epochs 5000 --hang-timeout 2 --output "$folder/lost" >"$folder/$n.out" 2>"$folder/$n.err" &
  pids+=($!)
done
got=0
wait -n "${pids[@]}" || got=$?
[ "$got" -eq 8 ] || fail "exit code $got instead of 8 of a run that waited for a lock: $(cat "$folder"/[12].err)"
grep -q "$folder/lost is in use by process" "$folder"/[12].err || fail "not reported: $(cat "$folder"/[12].err)"
grep -q 'held by process 1 on host lost since then' "$folder"/[12].err || fail "nobody waited: $(cat "$folder"/[12].err)"
if grep -q $'\e' "$folder"/[12].err; then fail "control characters of a lock reach the terminal"; fi
for _ in $(seq 400); do
  if [ -e "$folder/lost/latest" ]; then break; fi
  sleep 0.05
done
if compgen -G "$folder/lost/.lock-*" || compgen -G "$folder/lost/hang-*"; then fail "the rejected run left files"; fi
for job in "${pids[@]}"; do kill -USR1 "$job" 2>/dev/null && ends 75 20; done

# A folder deleted or moved while the run writes to it.
for way in moved deleted; do
  start "$folder/gone"
  if [ "$way" = moved ]; then mv "$folder/gone" "$folder/moved"; else until rm -rf "$folder/gone" 2>/dev/null; do :; done; fi
  ends 8 3
  grep -q "$folder/gone was deleted, moved or replaced" "$folder/started.err" || fail "$way: not reported"
  [ ! -e "$folder/gone" ] || fail "$way: the folder was created again"
done

# A rejected run changes nothing, however late it is rejected.
run 0 60 1 "${exact[@]}" --output "$folder/run"
before=$(everything "$folder/run")
for refused in "--seed 5" "--momentum 0" "--model mnist-slim" "--global-batch 100" "--resume $folder/nowhere"; do
  # shellcheck disable=SC2086  # two words each
  run 8 20 2 "${exact[@]}" --output "$folder/run" --resume auto $refused
done
run 2 20 1 "${exact[@]}" --output "$folder/run" --lr nonsense
run 4 20 1 "${exact[@]}" --output "$folder/run" --dataset mnist --data-dir "$folder/nowhere"
[ "$(everything "$folder/run")" = "$before" ] || fail "a rejected run changed the folder"

# Resuming from an older step forks the run; resuming from another run moves the one here. Nothing is deleted.
run 0 60 1 "${exact[@]}" --output "$folder/run" --resume "$folder/run/checkpoints/step-00000008"
grep -q 'the checkpoints of later steps were moved to .*earlier-1' "$folder/err" || fail "the move is not reported"
same_tensors "$folder/run/checkpoints/step-00000024" "$folder/run/earlier-1/checkpoints/step-00000024"
[ -e "$folder/run/earlier-1/checkpoints/step-00000016/MANIFEST.json" ] || fail "step 16 is gone"
[ "$(wc -l <"$folder/run/summary.csv")" -eq 4 ] || fail "summary.csv does not have one row per epoch"
run 0 60 1 "${exact[@]}" --output "$folder/other" --max-steps 8
run 0 60 1 "${exact[@]}" --output "$folder/run" --resume "$folder/other"
same_tensors "$folder/run/earlier-2/latest" "$folder/run/latest"

# Placeholders.
export SLURM_JOB_ID=
run 2 20 1 "${small[@]}" --output "$folder/slurm/%j"
one_line 'SLURM_JOB_ID is not set in the environment, but %j'
run 2 20 1 "${small[@]}" --output "$folder/slurm/%x"
one_line 'use %j .Slurm job ID'
SLURM_JOB_ID=7 SLURM_ARRAY_TASK_ID=3 run 0 20 1 "${small[@]}" --max-steps 1 --output "$folder/slurm/%j-%a"
[ -e "$folder/slurm/7-3/latest" ] || fail "no run in $folder/slurm/7-3"
run 0 20 1 --config "$folder/slurm/7-3/config.cfg" --resume auto
unset SLURM_JOB_ID

# Links in place of files are replaced, not followed.
echo mine >"$folder/mine"
mkdir "$folder/links"
ln -s "$folder/mine" "$folder/links/config.cfg"
run 0 20 1 "${small[@]}" --max-steps 1 --output "$folder/links"
rm "$folder/links/config.cfg" && ln -s "$folder/mine" "$folder/links/config.cfg"
run 0 20 1 "${small[@]}" --max-steps 1 --output "$folder/links" --resume auto
ln -s "$folder/mine" "$folder/model.safetensors"
run 0 20 1 export --run "$folder/links" --format safetensors --to "$folder/model.safetensors"
[ "$(cat "$folder/mine")" = mine ] || fail "a link was written through"
if [ -L "$folder/links/config.cfg" ] || [ -L "$folder/model.safetensors" ]; then fail "a link is still there"; fi

# Save first, then evaluate: unreadable images do not lose the epoch, and the evaluation is repeated later.
images=(--dataset folder --data-dir "$folder/images" --image-size 28 --global-batch 8 --epochs 2 --lr 0.01 --threads 1
  --progress none --deterministic)
golden=$(dirname "$0")/../golden/images
for class in train/a train/b val/a val/b; do
  mkdir -p "$folder/images/$class"
  for copy in 1 2 3 4; do
    cp "$golden/photo.jpg" "$folder/images/$class/a$copy.jpg"
    cp "$golden/rgb.png" "$folder/images/$class/b$copy.png"
  done
done
run 0 60 1 "${images[@]}" --output "$folder/pictures-whole"
victim=$folder/images/val/a/a2.jpg
cp "$victim" "$folder/whole.jpg"
head -c 900 "$folder/whole.jpg" >"$victim"
run 4 60 1 "${images[@]}" --output "$folder/pictures"
saved=$(ls "$folder/pictures/checkpoints")
if [ -z "$saved" ] || [ ! -e "$folder/pictures/latest/MANIFEST.json" ]; then fail "the epoch before the broken image is lost"; fi
cp "$folder/whole.jpg" "$victim"
run 0 60 1 "${images[@]}" --output "$folder/pictures" --resume auto
same_tensors "$folder/pictures-whole/latest" "$folder/pictures/latest"
cut -d, -f1-6 "$folder/pictures-whole/summary.csv" >"$folder/a"
cut -d, -f1-6 "$folder/pictures/summary.csv" >"$folder/b"
same_files "$folder/a" "$folder/b"
same_files "$folder/pictures-whole/latest/evaluation.json" "$folder/pictures/latest/evaluation.json"

# The rate of a resumed epoch uses only the images and time of this process.
run 0 60 1 "${small[@]}" --epochs 1 --max-steps 7 --output "$folder/rate"
run 0 60 1 "${small[@]}" --epochs 1 --output "$folder/rate" --resume auto
awk -F, 'END { images = $7 * $8; exit !(images > 103 && images < 105) }' "$folder/rate/summary.csv" ||
  fail "the last step's 104 images are not what $(tail -1 "$folder/rate/summary.csv") was measured on"

# Results that cannot be written.
for command in eval --help; do
  got=0
  "$program" "$command" "${small[@]}" --output "$folder/run" >/dev/full 2>"$folder/err" || got=$?
  last=$command
  [ "$got" -eq 8 ] || fail "exit code $got of $command >/dev/full"
  grep -q 'cannot write to standard output: No space left on device' "$folder/err" || fail "the reason is not reported"
done
finish
