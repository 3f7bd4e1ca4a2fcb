#!/usr/bin/env bash
# sweep.sh PROGRAM MPIRUN [ROUNDS [measure]]: sweeps of 16 settings, one of which diverges while another is killed, over 2 and over 4
# ranks; then the same sweep with mpirun killed at a random moment, and continued. Prints the time of each sweep relative to the
# best packing of its trials. With `measure`, on a quiet machine, the trials are long enough to time, 1 and 2 ranks take turns, and
# a sweep that takes more than 1.1 times its best packing, or a 2nd rank that trains fewer than 1.9 times the trials, is a failure.
set -u
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
rounds=${3:-1} mode=${4:-test}
images=100
[ "$mode" != measure ] || images=6000
settings=0.001,0.002,0.003,0.004,1e6,0.006,0.007,0.008,0.009,0.01,0.011,0.012,0.013,0.014,0.015,0.016
diverges=5 killed=9
trials=16
options=(sweep --dataset glyphs --train-limit "$images" --test-limit 50 --global-batch 20 --momentum 0.9 --threads 1 --epochs 3
  --progress none --deterministic --plan-cache "$folder/plans" --sweep "lr=$settings")

# begin RANKS OUTPUT ARGUMENTS...: starts a sweep; sets job and began.
begin() {
  last="$1 ranks: sweep in $2"
  began=$EPOCHREALTIME
  "$mpirun" -q --oversubscribe --bind-to none -np "$1" "$program" "${options[@]}" --output "$2" "${@:3}" >"$folder/out" 2>"$folder/err" &
  job=$!
}
# ends CODE: sets seconds.
ends() {
  local got=0
  wait "$job" || got=$?
  seconds=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')
  [ "$got" -eq "$1" ] || fail "exit code $got instead of $1 from $last"
}
# board OUTPUT TRIAL: the leaderboard without this trial, and without the places and times.
board() { awk -F, -v out="$2" 'NR > 1 && $2 != out { print $2, $3, $4, $5, $6, $7, $9 }' "$1/leaderboard.csv"; }
count() { awk -F, -v state="$2" '$3 == state' "$1/leaderboard.csv" | wc -l; }
reason() { awk -F, -v trial="$2" '$2 == trial && $3 == "failed"' "$1/leaderboard.csv"; }
# Trials, or ranks of the sweep, which outlive mpirun for up to 2 s and start further trials.
running() { pgrep -f -- "$1/configs/|--output $1( |\$)" >/dev/null; }
gone() { ! running "$1"; }
# packing BOARD GROUPS: the seconds of the trials, the longest first, each given to the group that is free first.
packing() {
  awk -F, 'NR > 1 { print $8 }' "$1/leaderboard.csv" | sort -gr | awk -v groups="$2" '
    { least = 1; for (g = 2; g <= groups; g++) if (used[g] + 0 < used[least] + 0) least = g; used[least] += $1 }
    END { for (g = 1; g <= groups; g++) if (used[g] > most) most = used[g]; print most }'
}
# at_most VALUE LIMIT
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }'; }
packed() { # packed OUTPUT RANKS
  local ideal ratio
  ideal=$(packing "$1" "$2")
  ratio=$(awk -v a="$seconds" -v b="$ideal" 'BEGIN { printf "%.3f", a / b }')
  printf '%d ranks: %.1f s, %s times the best packing (%.1f s)\n' "$2" "$seconds" "$ratio" "$ideal"
  if [ "$mode" = measure ] && ! at_most "$ratio" 1.1; then fail "$last takes $ratio times its best packing"; fi
}

# whole_sweep RANKS: 14 of the 16 finish; the board and a warning name the others.
whole_sweep() {
  local out=$folder/on-$1 name row i
  begin "$1" "$out"
  printf -v name 'trial-%04d' "$killed"
  for ((i = 0; i < 6000; i++)); do
    pkill -KILL -f "$out/configs/$name" && break
    sleep 0.1
  done
  ends 0
  packed "$out" "$1"
  [ "$(board "$out" 0 | wc -l)" -eq "$trials" ] || fail "not $trials rows on the board of $last"
  [ "$(count "$out" finished)" -eq $((trials - 2)) ] || fail "$(count "$out" finished) trials finished by $last"
  row=$(reason "$out" "$diverges")
  [[ $row == *'not finite'* ]] || fail "the board does not say why trial $diverges failed: $row"
  row=$(reason "$out" "$killed")
  [[ $row == *'signal 9'* ]] || fail "the board does not say why trial $killed failed: $row"
  grep -q "warning: .*trial $diverges (lr=1e6) failed: exit code 6" "$folder/err" || fail "no warning of trial $diverges by $last"
  grep -q "warning: .*trial $killed (lr=0.009) failed: ended by signal 9" "$folder/err" || fail "no warning of trial $killed by $last"
}

# killed_sweep: mpirun is killed after the start of a random trial in the first half; the continued sweep has the results of a whole
# one. In every second round it is continued at once, while ranks of the killed one may still train.
killed_sweep() {
  local out=$folder/killed after name trial
  rm -rf "$out"
  begin 2 "$out"
  after=$((RANDOM % (trials / 2) + 1))
  printf -v name 'trial-%04d.log' "$after"
  await test -e "$out/$name" || fail "trial $after has not started by $last"
  sleep "0.$((RANDOM % 5))"
  kill -KILL "$job" 2>/dev/null || fail "the sweep ended before it was to be killed"
  wait "$job" 2>/dev/null
  if [ $((round % 2)) -eq 0 ]; then await gone "$out" || fail "trials outlive $last"; fi
  printf 'mpirun killed in trial %d with %d of %d ended\n' "$after" "$(($(count "$out" finished) + $(count "$out" failed)))" "$trials"
  begin 2 "$out" --resume auto
  ends 0
  diff <(board "$folder/on-2" "$killed") <(board "$out" "$killed") || fail "another leaderboard by $last, continued"
  for ((trial = 1; trial <= trials; trial++)); do
    if [ "$trial" -eq "$diverges" ] || [ "$trial" -eq "$killed" ]; then continue; fi
    printf -v name 'trial-%04d/latest' "$trial"
    same_tensors "$folder/on-2/$name" "$out/$name"
  done
}

whole_sweep 2
whole_sweep 4
cmp -s <(board "$folder/on-2" "$killed") <(board "$folder/on-4" "$killed") || fail "2 and 4 ranks have different leaderboards"
for ((round = 0; round < rounds; round++)); do killed_sweep; done

if [ "$mode" = measure ]; then
  # None diverges: of 15 trials that take equally long, 2 ranks cannot train more than 15/8 = 1.875 times as many an hour as 1.
  options[-1]="lr=${settings/1e6/0.005}"
  ratios=()
  for ((round = 0; round < rounds; round++)); do
    for ranks in $((1 + round % 2)) $((2 - round % 2)); do
      begin "$ranks" "$folder/timed-$round-$ranks"
      ends 0
      packed "$folder/timed-$round-$ranks" "$ranks"
      took[ranks]=$seconds
    done
    ratios+=("$(awk -v one="${took[1]}" -v two="${took[2]}" 'BEGIN { printf "%.3f", one / two }')")
    awk -v one="${took[1]}" -v two="${took[2]}" -v n="$trials" 'BEGIN {
      printf "trials an hour: %.0f on 1 rank, %.0f on 2 ranks\n", 3600 * n / one, 3600 * n / two }'
  done
  ratio=$(printf '%s\n' "${ratios[@]}" | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
  echo "ratio $ratio: trials an hour on 2 ranks over 1 (median of $rounds)"
  at_most 1.9 "$ratio" || fail "2 ranks train only $ratio times the trials of 1"
fi
finish
