#!/usr/bin/env bash
# supervise.sh PROGRAM MPIRUN [KILLS]: a job of 4 ranks under launch/supervise is killed at random moments (a rank, mpirun, or
# all at once) and ends by itself with the bytes and logs of an undisturbed run. Then what must not be restarted: usage
# errors, missing data, requests to stop, runs without progress.
set -u
source "$(dirname "$0")/lib.sh"
kills=${3:-20}
supervise=$(realpath "$(dirname "$0")/../../launch/supervise")
export DDP_TRAIN=$program
run=$folder/run
whole=$folder/whole
length=(--epochs $((30 + 70 * kills)) --logical-shards 4 --timeout 30)

# supervised CODE SECONDS ARGUMENTS...
supervised() {
  local code=$1 limit=$2 got=0
  shift 2
  last="supervise $*"
  timeout -k 5 "$limit" "$supervise" "$@" >"$folder/out" 2>"$folder/err" || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got in place of $code from $last"
}
# ended CODE: the job in the background ends with this code within a minute.
ended() {
  local code=$1 got=0 i
  for ((i = 0; i < 600; i++)); do
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 "$job" 2>/dev/null; then
    fail "$last does not end; still running: $(pgrep -af "$folder" | cut -c1-150)"
    pkill -KILL -f "$folder"
  fi
  wait "$job" 2>/dev/null || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got in place of $code from $last"
}
said() { grep -qE -- "$1" "$folder/err" || fail "no line with '$1' from $last"; }

"$mpirun" -q --oversubscribe --bind-to none -np 4 "$program" "${tiny[@]}" "${length[@]}" --output "$whole" \
  >"$folder/out" 2>"$folder/err" || fail "the run that nobody disturbs"

"$supervise" -np 4 --max-restarts 1000 -- "${tiny[@]}" "${length[@]}" --output "$run" >"$folder/out" 2>"$folder/err" &
job=$!
begin=$SECONDS
kill_at_random "$kills" 4 $((120 + 20 * kills))
ended_by_itself "a supervised job of 4 ranks" "$kills" "$kills"
echo "$done_kills kills, $restarts restarts, $((SECONDS - begin)) s"

# What a restart cannot mend.
supervised 2 30 -np 1 -- --lr nonsense
[ "$(wc -l <"$folder/err")" -eq 1 ] || fail "more than one line from $last"
supervised 4 30 -np 1 -- --dataset mnist --data-dir "$folder/nowhere" --output "$folder/no-data"
said '^supervise: ended with code 4 after 0 restarts'
supervised 6 60 -np 1 -- "${tiny[@]}" --lr 1e6 --epochs 50 --output "$folder/infinite"
said '^supervise: ended with code 6 after [01] restarts: values were not finite at step [0-9]+ again'
supervised 2 30 --max-restarts many -- --lr 1
supervised 2 30 -np 0 -- --lr 1
supervised 2 30 --hosts 'a b' -- --lr 1
for command in eval sweep report; do
  supervised 2 30 -np 1 -- "$command" --run "$run"
  said "only training is supervised, not '$command'"
done
supervised 8 30 -np 1 --log /proc/nowhere/log -- "${tiny[@]}"

# A run folder that cannot be written: a limited number of attempts, then its code.
: >"$folder/file"
supervised 8 60 -np 1 --max-stalled 1 --log "$folder/log" -- "${tiny[@]}" --output "$folder/file/run"
said '^supervise: ended with code 8 after 1 restarts: 2 attempts without a new checkpoint'

# A request to stop reaches the ranks, and is no failure.
last="a supervised job that is told to stop"
"$supervise" -np 2 -- "${tiny[@]}" --epochs 100000 --output "$folder/stopped" >"$folder/out" 2>"$folder/err" &
job=$!
await test -e "$folder/stopped/latest"
kill -TERM "$job"
ended 75
said '^supervise: ended with code 75 after 0 restarts: it was asked to stop'

# So is Ctrl-C, which reaches the scripts but not the ranks.
last="a supervised job, and Ctrl-C on its terminal"
got=0
python3 "$(dirname "$0")/../support/on_terminal.py" "$folder/key/latest" "$supervise" -np 2 -- "${tiny[@]}" --epochs 100000 \
  --output "$folder/key" >"$folder/err" 2>&1 || got=$?
[ "$got" -eq 75 ] || fail "exit code $got in place of 75 from $last"
said '^supervise: ended with code 75 after 0 restarts: it was asked to stop'

# USR1 to the ranks alone, as from a scheduler: that is no request to this script. TERM right after a restart is one, and must
# not be lost while launch/run starts.
last="a supervised job whose ranks get USR1"
"$supervise" -np 2 -- "${tiny[@]}" --epochs 100000 --output "$folder/again" >"$folder/out" 2>"$folder/err" &
job=$!
await test -e "$folder/again/latest"
pkill -USR1 -f "^$program.*$folder/again"
await grep -q 'restart 1 from step' "$folder/err"
said '^supervise: code 75.* restart 1 from step [0-9]+$'
kill -TERM "$job"
ended 75
finish
