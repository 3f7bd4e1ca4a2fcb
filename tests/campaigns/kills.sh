#!/usr/bin/env bash
# kills.sh PROGRAM MPIRUN [KILLS]: kills runs on two ranks, alternately under mpirun and launch/run, with SIGKILL at
# random times (a rank, mpirun, or all at once; during startup, training, writing, resuming and shutdown), and resumes
# them until they are complete. Each must end with the bytes and logs of an undisturbed run, and every job within 3 s of
# the kill (10% more on busy cores), of which mpirun takes 2 s to end the remaining ranks.
set -u
source "$(dirname "$0")/lib.sh"
kills=${3:-20}
run=$folder/run
whole=$folder/whole
length=(--epochs 20 --timeout 30)
launch_run=$(dirname "$0")/../../launch/run
limit=3300

# start: starts the job in the background; $job is the PID of mpirun or launch/run.
start() {
  if [ $((runs % 2)) -eq 0 ]; then
    DDP_TRAIN=$program "$launch_run" -np 2 -- "${tiny[@]}" "${length[@]}" --output "$run" --resume auto \
      >"$folder/out" 2>"$folder/err" &
  else
    "$mpirun" -q --oversubscribe --bind-to none -np 2 "$program" "${tiny[@]}" "${length[@]}" --output "$run" \
      --resume auto >"$folder/out" 2>"$folder/err" &
  fi
  job=$!
}
milliseconds() { echo $(($(date +%s%N) / 1000000)); }
# Zombies do not count as alive.
lives() {
  local fields
  read -r fields <"/proc/$1/stat" || return 1
  [[ ${fields##*) } != [ZX]* ]]
} 2>/dev/null
# percentile P SORTED...: the nearest-rank percentile.
percentile() {
  local sorted=("${@:2}")
  echo "${sorted[$(((${#sorted[@]} * $1 + 99) / 100 - 1))]}"
}
# summary NAME MILLISECONDS...
summary() {
  local sorted
  [ $# -gt 1 ] || return 0
  mapfile -t sorted < <(printf '%s\n' "${@:2}" | sort -n)
  echo "$1: ${#sorted[@]} kills; ms until the job ended: median $(percentile 50 "${sorted[@]}")," \
    "99 % $(percentile 99 "${sorted[@]}"), most ${sorted[-1]}"
}

runs=0
begin=$(milliseconds)
"$mpirun" -q --oversubscribe --bind-to none -np 2 "$program" "${tiny[@]}" "${length[@]}" --output "$whole" \
  >"$folder/out" 2>"$folder/err" || fail "the undisturbed run failed"
duration=$(($(milliseconds) - begin))
done_kills=0 hung=0 all=() of_ranks=() of_mpirun=() of_all=()
while [ "$done_kills" -lt "$kills" ]; do
  rm -rf "$run"
  runs=$((runs + 1))
  for attempt in $(seq 12); do
    start
    # The twelfth attempt is not killed.
    [ "$attempt" -eq 12 ] || [ "$done_kills" -ge "$kills" ] && break
    delay=$((RANDOM % (duration + duration / 10)))
    sleep "$((delay / 1000)).$(printf %03d $((delay % 1000)))"
    launcher=$job
    [ $((runs % 2)) -ne 0 ] || launcher=$(pgrep -P "$job" -x mpirun)
    if ! lives "${launcher:-none}"; then
      # A whole run has ended before: the machine is less busy than it was.
      [ "$attempt" -gt 1 ] || duration=$((duration * 9 / 10 + 1))
      break
    fi
    mapfile -t ranks < <(pgrep -P "$launcher" -f "^$program")
    kind=$((RANDOM % 4))
    case $kind in
    0) victims=("$launcher") ;;
    1) victims=("${ranks[@]:0:1}") ;;
    2) victims=("${ranks[@]:1:1}") ;;
    *) victims=("$launcher" "${ranks[@]}") ;;
    esac
    [ ${#victims[@]} -gt 0 ] || kind=0 victims=("$launcher")
    killed=$(milliseconds)
    kill -KILL "${victims[@]}" || true
    done_kills=$((done_kills + 1))
    while lives "$job" && [ $(($(milliseconds) - killed)) -lt 20000 ]; do sleep 0.02; done
    if lives "$job" && [ "$launcher" = "$job" ] && [ -z "$(pgrep -P "$job" -r R,S,D,T)" ]; then
      hung=$((hung + 1))
      kill -KILL "$job"
      continue
    fi
    ! lives "$job" || kill -KILL "$job" "$launcher"
    wait "$job"
    for rank in "${ranks[@]}"; do
      while lives "$rank" && [ $(($(milliseconds) - killed)) -lt 20000 ]; do sleep 0.02; done
      ! lives "$rank" || kill -KILL "$rank"
    done
    took=$(($(milliseconds) - killed))
    all+=("$took")
    case $kind in
    0) of_mpirun+=("$took") ;;
    3) of_all+=("$took") ;;
    *) of_ranks+=("$took") ;;
    esac
    [ "$took" -le "$limit" ] ||
      fail "kill $done_kills of ${victims[*]} (mpirun $launcher, ranks ${ranks[*]}) after $delay ms: the job took $took ms to end"
  done 2>/dev/null
  got=0
  wait "$job" 2>/dev/null || got=$?
  last="run $runs, after $done_kills kills in all"
  if [ "$got" -ne 0 ]; then
    fail "$last: the last attempt ends with $got"
    continue
  fi
  # Every earlier start without a checkpoint left a few lines.
  same_run "$whole" "$run" "$last"
done
echo "$done_kills kills in $runs runs, each taking about $duration ms if undisturbed"
# Open MPI 4.1.4 may deadlock in PMIx during shutdown; launch/run ends it then.
[ "$hung" -eq 0 ] || echo "$hung instances of mpirun without launch/run had no ranks left and did not exit"
summary "all" "${all[@]}"
summary "a rank" ${of_ranks[@]+"${of_ranks[@]}"}
summary "mpirun" ${of_mpirun[@]+"${of_mpirun[@]}"}
summary "mpirun and all ranks" ${of_all[@]+"${of_all[@]}"}
finish
