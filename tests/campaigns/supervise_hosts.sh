#!/usr/bin/env bash
# supervise_hosts.sh PROGRAM MPIRUN [KILLS]: a job of 4 ranks under launch/supervise on two network namespaces as hosts is killed at
# random moments (a rank of either host, mpirun, or all ranks at once); in the middle host 1 is lost for good. It must end by
# itself, on the two ranks that are left, with the bytes and logs of a run that nobody disturbed. Ends with 77 and the
# reason where namespaces are not allowed.
set -u
source "$(dirname "$0")/lib.sh"
kills=${3:-20}
launch=$(realpath "$(dirname "$0")/../../launch")
source "$(dirname "$0")/../support/hosts.sh" 2 10.77.4
export DDP_TRAIN=$program
run=$folder/run whole=$folder/whole
length=(--epochs $((30 + 40 * kills)) --logical-shards 4 --timeout 30 --hang-timeout 15)

"$mpirun" -q --oversubscribe --bind-to none -np 4 "$program" "${tiny[@]}" "${length[@]}" --output "$whole" \
  >"$folder/out" 2>"$folder/err" || fail "the run that nobody disturbs"

on_host 0 "$launch/supervise" --hosts 10.77.4.10:2,10.77.4.11:2 --max-restarts 1000 -- "${tiny[@]}" "${length[@]}" \
  --output "$run" >"$folder/out" 2>"$folder/err" &
job=$!
done_kills=0 wanted=4 killed_at=
begin=$SECONDS
while [ "$done_kills" -lt "$kills" ] && kill -0 "$job" 2>/dev/null; do
  [ $((SECONDS - begin)) -lt $((240 + 20 * kills)) ] || { fail "only $done_kills kills" && break; }
  sleep "$((RANDOM % 2)).$((RANDOM % 10))"
  mapfile -t ranks < <(pgrep -f "^$program .*--output $run( |\$)")
  [ ${#ranks[@]} -eq "$wanted" ] || continue
  launcher=$(pgrep -f "^mpirun .*--output $run( |\$)") || continue
  if [ "$wanted" -eq 4 ] && [ "$done_kills" -ge $((kills / 2)) ]; then
    touch "$folder/down-1"
    link 1 down
    wanted=2
    echo "host 1 is lost after $done_kills kills"
    continue
  fi
  # Mostly behind a new checkpoint: a job without progress is given up.
  newest=$(readlink "$run/latest")
  [ "$newest" != "$killed_at" ] || [ $((RANDOM % 8)) -eq 0 ] || continue
  killed_at=$newest
  case $((RANDOM % 4)) in
  0) victims=("$launcher") ;;
  1) victims=("${ranks[@]}") ;;
  *) victims=("${ranks[RANDOM % ${#ranks[@]}]}") ;;
  esac
  kill -KILL "${victims[@]}" 2>/dev/null && done_kills=$((done_kills + 1))
done
got=0
wait "$job" || got=$?
last="a supervised job of 4 ranks on two hosts, killed $done_kills times"
[ "$got" -eq 0 ] || fail "exit code $got from $last"
[ "$done_kills" -eq "$kills" ] || fail "the run ended after $done_kills kills"
same_run "$whole" "$run" "$last"
restarts=$(grep -c 'restart [0-9]' "$run.supervise.log")
[ "$restarts" -gt "$done_kills" ] || fail "$restarts restarts in the log of $last"
grep -q "hosts: 10.77.4.10:2, of 10.77.4.10:2,10.77.4.11:2" "$run.supervise.log" || fail "the log does not name the lost host"
grep -q "finished after $restarts restarts" "$run.supervise.log" || fail "the log does not say how $last ended"
echo "$done_kills kills and a lost host, $restarts restarts, $((SECONDS - begin)) s"
finish
