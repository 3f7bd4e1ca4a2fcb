#!/usr/bin/env bash
# Signals: save and stop, save and continue; and ranks that die.
set -u
source "$(dirname "$0")/lib.sh"

# start OUTPUT RANKS ARGUMENTS...: starts a long run in the background and waits for its first steps.
start() {
  output=$1
  "$mpirun" -q --oversubscribe --bind-to none -np "$2" "$program" "${small[@]}" --epochs 2000 --log-interval 1 \
    --output "$output" --checkpoint-every 100000 --timeout 5 "${@:3}" >"$folder/out" 2>"$folder/err" &
  job=$!
  for _ in $(seq 300); do
    [ -f "$output/metrics.jsonl" ] && [ "$(wc -l <"$output/metrics.jsonl")" -gt 2 ] && return
    sleep 0.1
  done
  fail "the run did not start"
}
# ends CODE SECONDS
ends() {
  local got=0
  for _ in $(seq "$(($2 * 10))"); do
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 "$job" 2>/dev/null; then
    fail "the job did not end within $2 s"
    kill -9 "$job"
  fi
  wait "$job" || got=$?
  [ "$got" -eq "$1" ] || fail "exit code $got instead of $1"
}
rank_pids() { pgrep -P "$job"; }
# listening PID: the addresses at which a process listens, as in /proc/net/tcp, except loopback.
listening() {
  local sockets
  sockets=$(find "/proc/$1/fd" -lname 'socket:*' -printf '%l\n' 2>/dev/null | tr -dc '0-9\n')
  awk -v sockets="$sockets" '
    BEGIN { split(sockets, list, "\n"); for (i in list) mine[list[i]] }
    $4 == "0A" && ($10 in mine) && $2 !~ /^0100007F:/ && $2 !~ /^00000000000000000000000001000000:/ { print $2 }
  ' "/proc/$1/net/tcp" "/proc/$1/net/tcp6"
}

start "$folder/usr1" 2 --steps-in-flight 4
for pid in $(rank_pids); do
  [ -z "$(listening "$pid")" ] || fail "a rank of a job on one host listens at $(listening "$pid")"
done
kill -USR1 "$job"
ends 75 10
[ -s "$folder/usr1/latest/state.json" ] || fail "USR1 left no checkpoint"
grep -q 'resume with --resume auto' "$folder/err" || fail "USR1: no line says how to resume"
step=$(sed -n 's/.*"step": *\([0-9]*\),.*/\1/p' "$folder/usr1/latest/state.json")
run 0 60 2 "${small[@]}" --epochs 2000 --max-steps $((step + 3)) --output "$folder/usr1" --resume auto --log-interval 1
[ "$(grep -c '"loss"' "$folder/usr1/metrics.jsonl")" -eq $((step + 3)) ] || fail "a resumed log has gaps"

# A signal to a single rank, as a scheduler may send it.
start "$folder/int" 2
kill -INT "$(rank_pids | head -1)"
ends 75 10

start "$folder/hup" 2 --steps-in-flight 3
for pid in $(rank_pids); do kill -HUP "$pid"; done
for _ in $(seq 100); do [ -e "$folder/hup/latest" ] && break; sleep 0.1; done
[ -s "$folder/hup/latest/state.json" ] || fail "HUP left no checkpoint"
kill -0 "$job" || fail "HUP ended the job"
kill -USR1 "$job"
ends 75 10

# A request to stop does not wait for the end of an evaluation, which follows the checkpoint and is repeated later.
evaluated=(--model resnet18-d2l --dataset glyphs --train-limit 32 --global-batch 32 --epochs 1 --threads 1 --progress none
  --deterministic --output "$folder/evaluates")
for where in rank0 all; do
  rm -rf "$folder/evaluates"
  "$mpirun" -q --oversubscribe --bind-to none -np 2 "$program" "${evaluated[@]}" --test-limit 10000 --eval-on "$where" \
    >"$folder/out" 2>"$folder/err" &
  job=$!
  for _ in $(seq 600); do
    [ -e "$folder/evaluates/latest" ] && break
    sleep 0.1
  done
  sleep 0.5
  kill -USR1 "$job"
  ends 75 4
  [ ! -e "$folder/evaluates/latest/evaluation.json" ] || fail "the evaluation ended before it was stopped"
  grep -q 'after step 1; .*--resume auto' "$folder/err" || fail "no line says how to resume"
  run 0 60 2 "${evaluated[@]}" --test-limit 32 --resume auto
  [ -s "$folder/evaluates/latest/evaluation.json" ] || fail "the evaluation was not repeated"
  [ "$(grep -c '"val_loss"' "$folder/evaluates/metrics.jsonl")" -eq 1 ] || fail "other than one evaluation in the log"
done

# Many signals during oneDNN kernels: the process survives all of them.
start "$folder/storm" 1
for _ in $(seq 60); do pkill -HUP -P "$job"; sleep 0.05; done
kill -0 "$job" 2>/dev/null || fail "the process did not survive its signals"
kill -USR1 "$job"
ends 75 10

# A hanging rank is detected by the watchdogs of the others.
start "$folder/hang" 2
hung=$(rank_pids | tail -1)
kill -STOP "$hung"
ends 7 25
kill -CONT "$hung" 2>/dev/null
grep -q 'rank' "$folder/err" || fail "the rank that hung is not named"

# A rank without its launcher exits, whether MPI notices or not; here MPI is not involved.
(
  OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 "$program" "${small[@]}" --epochs 100000 --output "$folder/orphan" \
    >"$folder/out" 2>"$folder/err" &
  echo $! >"$folder/orphan.pid"
  sleep 2
)
orphan=$(cat "$folder/orphan.pid")
lives() { [[ $(ps -o stat= -p "$orphan") == [!Z]* ]]; }
for _ in $(seq 60); do
  lives || break
  sleep 0.05
done
if lives; then
  fail "a rank outlives its launcher by 3 s"
  kill -KILL "$orphan"
fi

# A killed rank ends the job.
start "$folder/killed" 2
kill -KILL "$(rank_pids | tail -1)"
ends 137 10
# Rank 0, which mpirun terminates too, must release the lock, so that the next run neither waits nor takes it over.
[ -s "$folder/killed/metrics.jsonl" ] || fail "the run had not started"
[ ! -e "$folder/killed/run.lock" ] || fail "the lock of a run whose other rank was killed is left behind"
finish
