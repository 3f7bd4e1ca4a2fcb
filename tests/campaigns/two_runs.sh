#!/usr/bin/env bash
# two_runs.sh PROGRAM MPIRUN [TIMES]: starts two runs in one folder at about the same time: exactly one of them must get
# it and complete normally, the other must exit with 8, and no byte of an earlier run may be lost.
set -u
source "$(dirname "$0")/lib.sh"
times=${3:-10}
run=$folder/run
for seed in 1 2; do
  alone "${tiny[@]}" --epochs 60 --seed "$seed" --output "$folder/seed-$seed" || fail "the run of seed $seed"
done
wins=(0 0 0) both=0
for ((n = 1; n <= times; n++)); do
  rm -rf "$run"
  earlier=no
  if [ $((n % 2)) -eq 0 ]; then
    earlier=yes
    cp -a "$folder/seed-1" "$run"
  fi
  pids=()
  for seed in 1 2; do
    timeout -s KILL 30 "$program" "${tiny[@]}" --epochs 60 --seed "$seed" --output "$run" \
      >"$folder/out-$seed" 2>"$folder/err-$seed" &
    pids+=($!)
    sleep "0.0$((RANDOM % 10))"
  done
  codes=(-)
  for pid in "${pids[@]}"; do
    got=0
    wait "$pid" || got=$?
    codes+=("$got")
  done
  cat "$folder"/err-? >"$folder/err"
  case "${codes[1]} ${codes[2]}" in
  "0 8") winner=1 loser=2 ;;
  "8 0") winner=2 loser=1 ;;
  "0 0")
    # The first run had ended before the second started: then it must be complete.
    both=$((both + 1))
    [ -d "$run/earlier-1" ] || fail "trial $n: both exited with 0, but one is lost"
    continue
    ;;
  *)
    fail "trial $n: the exit codes are ${codes[1]} and ${codes[2]}"
    continue
    ;;
  esac
  wins[winner]=$((wins[winner] + 1))
  grep -q "is in use by process" "$folder/err-$loser" || fail "trial $n: the loser does not say why"
  same_run "$folder/seed-$winner" "$run" "trial $n"
  [ "$earlier" = no ] || diff -r --no-dereference "$folder/seed-1" "$run/earlier-1" >/dev/null ||
    fail "trial $n: the earlier run is incomplete"
done
echo "$times times two runs: the first got the folder ${wins[1]} times, the second ${wins[2]}, one after the other $both"
finish
