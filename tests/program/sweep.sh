#!/usr/bin/env bash
# ddp_train sweep: all settings are trained whatever becomes of one of them, on several ranks at once and several ranks each,
# and a sweep that is stopped or killed continues.
set -u
source "$(dirname "$0")/lib.sh"
tiny=(--dataset glyphs --train-limit 100 --test-limit 50 --global-batch 20 --momentum 0.9 --threads 1 --epochs 3)
table() { cut -d, -f2,3,4,9 "$folder/$1/leaderboard.csv" | tail -n +2 | sort -n | tr '\n' ' '; }
expect_table() { [ "$(table "$1")" = "$2" ] || fail "the leaderboard is $(table "$1")in place of $2from $last"; }

# One of four settings diverges. The results do not depend on the number of ranks that share the trials.
for ranks in 1 2; do
  run 0 120 "$ranks" sweep "${tiny[@]}" --deterministic --sweep lr=0.01,0.02,1e6,0.03 --output "$folder/on-$ranks"
  grep -q 'warning: .*trial 3 (lr=1e6) failed: exit code 6: .*not finite' "$folder/err" || fail "trial 3 is not named by $last"
  expect_table "on-$ranks" '1,finished,3,0.01 2,finished,3,0.02 3,failed,0,1e6 4,finished,3,0.03 '
  for trial in 1 2 4; do same_tensors "$folder/on-$ranks/trial-000$trial/latest" "$folder/on-1/trial-000$trial/latest"; done
done
# A trial is what the same options train alone.
run 0 60 1 "${tiny[@]}" --deterministic --lr 0.02 --output "$folder/alone"
same_tensors "$folder/alone/latest" "$folder/on-1/trial-0002/latest"

# Two ranks a trial.
run 0 120 4 sweep "${tiny[@]}" --sweep lr=0.01,0.02 --sweep momentum=0,0.9 --ranks-per-trial 2 --output "$folder/pairs"
expect_table pairs '1,finished,3,0.01 2,finished,3,0.01 3,finished,3,0.02 4,finished,3,0.02 '
grep -q 'ranks  *2 ranks on 1 host' "$folder/pairs/trial-0004.log" || fail "trial 4 did not run on two ranks"

# Successive halving: all are tried, few trained to the end.
run 0 120 2 sweep "${tiny[@]}" --epochs 4 --train-limit 2000 --sweep lr=0.001,0.002,0.003,0.004,0.1,0.005 --sweep-halving 3 --output "$folder/halving"
table halving | grep -q paused || fail "nothing is paused: $(table halving)"
table halving | grep -q finished || fail "nothing is finished: $(table halving)"
if table halving | grep -qE 'waiting|failed'; then fail "not all were tried: $(table halving)"; fi

# A killed trial is named; a stopped sweep, and one whose ranks are killed, continues.
long=(sweep "${tiny[@]}" --epochs 200 --sweep "lr=0.001,0.002,0.003" --output "$folder/long")
begin() {
  last="2 ranks: $*"
  OMPI_MCA_orte_tmpdir_base=$words "$mpirun" -q --oversubscribe -np 2 "$program" "$@" >"$folder/out" 2>"$folder/err" &
  job=$!
}
ends() {
  local got=0
  wait "$job" || got=$?
  [ "$got" -eq "$1" ] || fail "exit code $got in place of $1 from $last"
}
gone() { ! pgrep -f "$folder/long/configs" >/dev/null; }
begin "${long[@]}"
for trial in 1 2; do await test -e "$folder/long/trial-000$trial/latest" || fail "no trial $trial from $last"; done
pkill -KILL -f "$folder/long/configs/trial-0002"
await grep -q 'trial 2: failed.*ended by signal 9' "$folder/out" || fail "the killed trial is not named by $last"
kill -USR1 "$(pgrep -P "$job" -f "^$program" | tail -n 1)"
ends 75
grep -q 'continue with --resume auto' "$folder/err" || fail "no word of how to continue from $last"
await gone || fail "trials are left by $last"
begin "${long[@]}" --resume auto
await grep -q 'continued' "$folder/out" || fail "not continued: $last"
await pgrep -f "$folder/long/configs" >/dev/null
pkill -KILL -f "^$program sweep.*$folder/long"
wait "$job"
await gone || fail "trials outlive $last"
[ "$(table long | grep -o finished | wc -l)" -eq 0 ] || fail "trials end too early for this test"
bad_sweep() { # bad_sweep CODE PATTERN ARGUMENTS...
  run "$1" 30 2 sweep "${tiny[@]}" "${@:3}"
  one_line "$2"
}
bad_sweep 2 'holds a sweep already; continue it with --resume auto' --sweep lr=0.1 --output "$folder/on-1"
bad_sweep 2 'has other settings or options' --sweep lr=0.1 --resume auto --output "$folder/on-1"
bad_sweep 2 "unknown option 'lrr' in the setting lrr=1; did you mean lr" --sweep lrr=1 --output "$folder/bad"
bad_sweep 2 'the setting lr=x: not a number' --sweep lr=x --output "$folder/bad"
bad_sweep 2 'the setting run=x: --run applies to the whole command' --sweep run=x --output "$folder/bad"
bad_sweep 2 'with lr=1 warmup-epochs=9: --warmup-epochs 9 is greater' --sweep lr=1 --sweep warmup-epochs=9 --output "$folder/bad"
bad_sweep 2 '--sweep lr=: has no values' --sweep lr= --output "$folder/bad"
bad_sweep 2 'sweep requires --sweep' --output "$folder/bad"
bad_sweep 2 '--ranks-per-trial 3 does not divide the 2 ranks' --sweep lr=1 --ranks-per-trial 3 --output "$folder/bad"
: >"$folder/file"
bad_sweep 8 'file' --sweep lr=1 --output "$folder/file/sweep"
mkdir "$folder/taken"
: >"$folder/taken/trial-0002"
bad_sweep 8 'cannot create the folder .*/taken/trial-0002' --sweep lr=1,2 --output "$folder/taken"
[ ! -e "$folder/bad" ] || fail "a rejected sweep has left $folder/bad"
run 2 30 1 --lr 0.1 --sweep lr=1
one_line '--sweep applies to the command sweep only'
finish
