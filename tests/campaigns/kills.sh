#!/usr/bin/env bash
# kills.sh PROGRAM MPIRUN [KILLS]: runs on two ranks under mpirun are killed by SIGKILL at random moments (a rank, mpirun, or
# all at once; while they start, train, write, resume and end) and resumed until they are through. Each must end with the
# bytes and logs of a run that nobody disturbed, and no job may outlive its killed part by more than 10 s: mpirun alone takes
# 3 s, and more where other processes have the cores.
set -u
source "$(dirname "$0")/lib.sh"
kills=${3:-20}
run=$folder/run
whole=$folder/whole
length=(--epochs 40 --timeout 30)

job_of() { pgrep -f -- "--output $1( |\$)"; }
# start ARGUMENTS...: mpirun in the background; its children are the ranks.
start() {
  "$mpirun" -q --oversubscribe --bind-to none -np 2 "$program" "${tiny[@]}" "${length[@]}" --output "$run" \
    --resume auto >"$folder/out" 2>"$folder/err" &
  job=$!
}
milliseconds() { echo $(($(date +%s%N) / 1000000)); }

begin=$(milliseconds)
"$mpirun" -q --oversubscribe --bind-to none -np 2 "$program" "${tiny[@]}" "${length[@]}" --output "$whole" \
  >"$folder/out" 2>"$folder/err" || fail "the run that nobody disturbs"
duration=$(($(milliseconds) - begin))
done_kills=0 runs=0 slowest=0 while_alive=0 late=0
while [ "$done_kills" -lt "$kills" ]; do
  rm -rf "$run"
  runs=$((runs + 1))
  for attempt in $(seq 12); do
    start
    # At the twelfth the run may end.
    [ "$attempt" -eq 12 ] || [ "$done_kills" -ge "$kills" ] && break
    delay=$((RANDOM % (duration + duration / 10)))
    sleep "$((delay / 1000)).$(printf %03d $((delay % 1000)))"
    kill -0 "$job" 2>/dev/null || break
    mapfile -t ranks < <(pgrep -P "$job")
    case $((RANDOM % 4)) in
    0) victims=("$job") ;;
    1) victims=("${ranks[@]:0:1}") ;;
    2) victims=("${ranks[@]:1:1}") ;;
    *) victims=("$job" "${ranks[@]}") ;;
    esac
    [ ${#victims[@]} -gt 0 ] || victims=("$job")
    kill -KILL "${victims[@]}" 2>/dev/null && while_alive=$((while_alive + 1))
    done_kills=$((done_kills + 1))
    killed=$(milliseconds)
    wait "$job" 2>/dev/null
    for rank in "${ranks[@]}"; do
      while kill -0 "$rank" 2>/dev/null && [ $(($(milliseconds) - killed)) -lt 20000 ]; do sleep 0.02; done
      kill -0 "$rank" 2>/dev/null && kill -KILL "$rank"
    done
    took=$(($(milliseconds) - killed))
    [ "$took" -le "$slowest" ] || slowest=$took
    [ "$took" -le 3000 ] || late=$((late + 1))
    [ "$took" -le 10000 ] || fail "kill $done_kills of ${victims[*]} (mpirun $job, ranks ${ranks[*]}): the job lived on for $took ms"
  done 2>/dev/null
  got=0
  wait "$job" 2>/dev/null || got=$?
  last="run $runs, after $done_kills kills in all"
  if [ "$got" -ne 0 ]; then
    fail "$last: the last attempt ends with $got"
    continue
  fi
  # Every earlier start that had no checkpoint yet left its few lines.
  same_run "$whole" "$run" "$last"
done
echo "$done_kills kills ($while_alive of living processes) in $runs runs; $late jobs lived on for more than 3 s, the slowest for $slowest ms"
finish
