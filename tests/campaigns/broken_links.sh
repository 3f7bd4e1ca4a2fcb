#!/usr/bin/env bash
# broken_links.sh PROGRAM LAUNCH_FOLDER [TRIALS]: the link between two network namespaces as hosts goes down at a random moment of
# a run. The run must end with code 7 within --hang-timeout and ten seconds, and name the rank behind the link with its host,
# step and phase; the table must mark it alone; on both hosts nothing may be left running. The first trial loses the link while the
# ranks start, before they have met: it ends long before --hang-timeout, on both hosts. Ends with 77 and the reason where namespaces
# are not allowed.
set -u
program=$(realpath "$1") launch=$(realpath "$2") trials=${3:-2}
source "$(dirname "$0")/../support/hosts.sh" 2 10.77.3
export DDP_TRAIN=$program
hang_timeout=5
failures=0
fail() {
  echo "FAILED: trial $trial: $1"
  sed 's/^/    /' "$folder/said" | tail -20
  failures=$((failures + 1))
}
milliseconds() { echo $(($(date +%s%N) / 1000000)); }
# The newest step that rank 0 has logged.
logged() { sed -n 's/^{"step":\([0-9]*\),.*"loss".*/\1/p' "$run/metrics.jsonl" 2>/dev/null | tail -n 1; }
# Processes of the trial, by their environment.
left_running() {
  local path
  grep -lsaF "LINK_TRIAL=$run" /proc/[0-9]*/environ | while read -r path; do
    { tr '\0' ' ' <"${path%environ}cmdline"; } 2>/dev/null
  done
}

# Until the ranks have met, mpirun's keep-alive ends its side, and the ranks behind the link end themselves and their daemon.
trial=0
for ((attempt = 0; attempt < 3; attempt++)); do
  run=$folder/run-early
  link_up 1
  rm -rf "$run"
  LINK_TRIAL=$run on_host 0 timeout -k 5 100 "$launch/run" \
    --hosts 10.77.3.10:1,10.77.3.11:1 -- --dataset glyphs --train-limit 1000 --test-limit 200 --threads 1 --progress none \
    --device cpu --epochs 100000 --output "$run" >"$folder/said" 2>&1 &
  job=$!
  for ((i = 0; i < 1000; i++)); do
    ! ps -o comm= -p "$(ip netns pids "$name-1" | tr '\n' ',')$$" | grep -q '^ddp_train' || break
    sleep 0.02
  done
  link 1 down
  down=$(milliseconds)
  begun=$(ls "$run" 2>/dev/null)
  got=0
  wait "$job" || got=$?
  took=$(($(milliseconds) - down))
  for ((i = 0; i < 400; i++)); do
    remaining=$(left_running)
    [ -n "$remaining" ] || break
    sleep 0.1
  done
  [ -z "$begun" ] || continue
  both=$(($(milliseconds) - down))
  [ "$got" -eq 7 ] || fail "exit code $got in place of 7"
  [ "$took" -le 25000 ] || fail "$took ms until the end"
  [ "$both" -le 35000 ] || fail "$both ms until both hosts are free; left running: $remaining"
  echo "a link lost before the ranks have met: $took ms until the end, $both ms on both hosts"
  break
done

slowest=0
for ((trial = 1; trial <= trials; trial++)); do
  run=$folder/run-$trial
  link_up 1
  LINK_TRIAL=$run on_host 0 timeout -k 5 90 "$launch/run" \
    --hosts 10.77.3.10:1,10.77.3.11:1 -- --dataset glyphs --train-limit 1000 --test-limit 200 --threads 1 --progress none \
    --device cpu --epochs 100000 --eval-every 0 --checkpoint-every 1000000 --log-interval 1 --hang-timeout $hang_timeout \
    --output "$run" >"$folder/said" 2>&1 &
  job=$!
  for ((i = 0; i < 200; i++)); do
    [ -z "$(logged)" ] || break
    sleep 0.1
  done
  # The ranks tell each other their steps four times a second.
  sleep "1.$((RANDOM % 10))$((RANDOM % 10))"
  earlier=$(logged)
  sleep 0.5
  before=$(logged)
  link 1 down
  down=$(milliseconds)
  got=0
  wait "$job" || got=$?
  took=$(($(milliseconds) - down))
  after=$(logged)
  [ "$took" -le "$slowest" ] || slowest=$took
  [ "$got" -eq 7 ] || fail "exit code $got in place of 7"
  [ "$took" -le $(((hang_timeout + 10) * 1000)) ] || fail "$took ms until the end"
  said=$(grep -oE 'rank 1 on host host1 \(process [0-9]+\) is silent: .* \(step [0-9]+, [a-z]+[^)]*\)' "$folder/said" | head -n 1)
  step=$(sed -nE 's/.*\(step ([0-9]+), .*/\1/p' <<<"$said") phase=$(sed -nE 's/.*\(step [0-9]+, ([a-z]+).*/\1/p' <<<"$said")
  # The step in its last message, which may be a quarter of a second old and another late, however many steps that is, or even the
  # one in which rank 0 waits for it.
  if [ -z "$step" ]; then
    fail "rank 1 is not named"
  else
    if [ "$step" -lt "$earlier" ] || [ "$step" -gt $((after + 1)) ]; then
      fail "step $step, and rank 0 logged $earlier to $after, $before when the link went down"
    fi
    case $phase in data | forward | backward | reduction | update) ;; *) fail "phase '$phase'" ;; esac
  fi
  mapfile -t tables < <(find "$run" -name 'hang-*.txt' ! -name '*-rank1.txt')
  [ ${#tables[@]} -eq 1 ] || fail "${#tables[@]} tables"
  marked=$(grep -hE '^->' ${tables[@]+"${tables[@]}"} </dev/null)
  if ! grep -qE '^-> +1 +host1 .* silent' <<<"$marked" || [ "$(wc -l <<<"$marked")" -ne 1 ]; then fail "marked: $marked"; fi
  for ((i = 0; i < 150; i++)); do
    remaining=$(left_running)
    [ -n "$remaining" ] || break
    sleep 0.1
  done
  [ -z "$remaining" ] || fail "left running 15 s later: $remaining"
  echo "trial $trial: $took ms; ${said:-nothing}"
  rm -rf "$run"
done
echo "$trials links went down, $failures checks failed, at most $slowest ms until the end"
[ "$failures" -eq 0 ]
