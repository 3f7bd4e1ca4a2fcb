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
# wait_for_restarts N: until the log names N restarts. Two losses at once would be one failure.
wait_for_restarts() {
  local log=$run.supervise.log
  for ((i = 0; i < 600; i++)); do
    [ -e "$log" ] && [ "$(grep -c 'restart [0-9]' "$log")" -ge "$1" ] && return
    sleep 0.1
  done
}
length=(--epochs $((30 + 70 * kills)) --logical-shards 4 --timeout 30 --hang-timeout 15)

"$mpirun" -q --oversubscribe --bind-to none -np 4 "$program" "${tiny[@]}" "${length[@]}" --output "$whole" \
  >"$folder/out" 2>"$folder/err" || fail "the run that nobody disturbs"

on_host 0 "$launch/supervise" --hosts 10.77.4.10:2,10.77.4.11:2 --max-restarts 1000 -- "${tiny[@]}" "${length[@]}" \
  --output "$run" >"$folder/out" 2>"$folder/err" &
job=$!
begin=$SECONDS
kill_at_random $((kills / 2)) 4 $((120 + 20 * kills))
wait_for_restarts "$done_kills"
for ((i = 0; i < 600; i++)); do
  mapfile -t ranks < <(running_ranks)
  [ ${#ranks[@]} -ne 4 ] || break
  sleep 0.1
done
touch "$folder/down-1"
link 1 down
echo "host 1 is lost after $done_kills kills"
wait_for_restarts $((done_kills + 1))
kill_at_random "$kills" 2 $((120 + 20 * kills))
ended_by_itself "a supervised job of 4 ranks on two hosts" "$kills" $((kills + 1))
grep -q "hosts: 10.77.4.10:2, of 10.77.4.10:2,10.77.4.11:2" "$run.supervise.log" || fail "the log does not name the lost host"
echo "$done_kills kills and a lost host, $restarts restarts, $((SECONDS - begin)) s"
finish
