#!/usr/bin/env bash
# run_test.sh LAUNCH_FOLDER PROGRAM_FOLDER: tests launch/run with a small program instead of ddp_train: exit codes, signals, the
# ends of its readers and of itself, invalid arguments.
set -euo pipefail
launch=$1
on_terminal=$(cd "$(dirname "$0")/../support" && pwd)/on_terminal.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

cat >"$folder/program" <<'PROGRAM'
#!/usr/bin/env bash
rank=$OMPI_COMM_WORLD_RANK
case $1 in
ranks) echo "rank $rank of $OMPI_COMM_WORLD_SIZE says $2${3:+ ${!3}}" ;;
break) exit 1 ;;
print)
  trap 'echo "ddp_train: stopped by SIGUSR1 after step 5; resume with --resume auto" >&2; exit 75' USR1
  [ -z "${2:-}" ] || touch "$2"
  for ((i = 0; i < 600; i++)); do
    echo "line $i"
    sleep 0.05
  done
  ;;
fail) [ "$rank" != 1 ] || { echo "rank 1 fails" >&2; exit 4; } ;;
crash) [ "$rank" != 1 ] || kill -SEGV $$ ;;
wait)
  trap 'echo "rank $rank stops" >&2; exit 75' USR1
  [ -z "${BUSY:-}" ] || trap '' USR1
  trap 'echo "rank $rank saves" >&2' HUP
  touch "$2/up.$rank"
  for ((i = 0; i < 600; i++)); do sleep 0.1; done
  ;;
esac
PROGRAM
chmod +x "$folder/program"
export DDP_TRAIN=$folder/program
[ ! -e "$2/libddp_loopback.so" ] || ln -s "$2/libddp_loopback.so" "$folder/"

# expect CODE PATTERN COMMAND...: the command exits with this code, and its output matches.
expect() {
  local code=$1 pattern=$2 got=0
  shift 2
  timeout 60 "$@" >"$folder/out" 2>&1 || got=$?
  judge "$code" "$got" "$pattern" "$*"
}
judge() {
  if [ "$1" -ne "$2" ] || ! grep -qE -- "$3" "$folder/out"; then
    echo "FAILED: exit code $2 instead of $1, or no line with '$3', from: $4"
    sed 's/^/    /' "$folder/out"
    failures=$((failures + 1))
  fi
}
# Starts two waiting ranks; sets `job` once they are running.
start_waiting() {
  rm -f "$folder"/up.*
  # Background jobs of this shell would ignore INT.
  env --default-signal=INT "$launch/run" -np 2 -- wait "$folder" >"$folder/out" 2>&1 &
  job=$!
  for ((i = 0; i < 600; i++)); do
    if [ -e "$folder/up.0" ] && [ -e "$folder/up.1" ]; then break; fi
    sleep 0.1
  done
}
# gone SECONDS PID...: whether these processes have ended, or do so in that time.
gone() {
  local i seconds=$1 pid left
  shift
  for ((i = 0; i < seconds * 10; i++)); do
    left=
    # A zombie has ended.
    for pid in "$@"; do if grep -qs '^State:[[:space:]]*[^Z]' "/proc/$pid/status"; then left+=" $pid"; fi; done
    [ -n "$left" ] || return 0
    sleep 0.1
  done
  return 1
}
# listening PID: the addresses at which a process listens, as in /proc/net/tcp, except loopback.
listening() {
  local sockets
  sockets=$(find "/proc/$1/fd" -lname 'socket:*' -printf '%l\n' 2>/dev/null | tr -dc '0-9\n')
  awk -v sockets="$sockets" '
    BEGIN { split(sockets, list, "\n"); for (i in list) mine[list[i]] }
    $4 == "0A" && ($10 in mine) && $2 !~ /^0100007F:/ && $2 !~ /^00000000000000000000000001000000:/ { print $2 }
  ' "/proc/$1/net/tcp" "/proc/$1/net/tcp6"
}
# kills PATTERN rank|mpirun: SIGKILL ends the job within 3 s, with a single line that explains it.
kills() {
  local job victim got=0 begin took
  start_waiting
  victim=$(pgrep -P "$job" -x mpirun)
  [ "$2" = mpirun ] || victim=$(pgrep -P "$victim" | tail -n 1)
  begin=$(date +%s%N)
  kill -KILL "$victim"
  wait "$job" || got=$?
  took=$((($(date +%s%N) - begin) / 1000000))
  judge 137 "$got" "$1" "SIGKILL to $2"
  if [ "$took" -gt 3000 ] || [ "$(grep -c . "$folder/out")" -ne 1 ]; then
    echo "FAILED: after SIGKILL to $2 the job took $took ms to end, and said:"
    sed 's/^/    /' "$folder/out"
    failures=$((failures + 1))
  fi
}
# signals CODE PATTERN SIGNAL...: sends these signals to the job once all ranks are running.
signals() {
  local code=$1 pattern=$2 job got=0 name
  shift 2
  start_waiting
  for name in "$@"; do
    kill "-$name" "$job"
    sleep 0.5
  done
  wait "$job" || got=$?
  judge "$code" "$got" "$pattern" "signals $*"
}

expect 0 'rank 2 of 3 says two words' "$launch/run" -np 3 -- ranks 'two words'
expect 0 'rank 0 of 1 says x' "$launch/run" -np 1 ranks x
cd /
expect 0 'rank 0 of [0-9]+ says x' "$launch/run" -- ranks x
expect 4 '^rank 1 fails$' "$launch/run" -np 2 -- fail
if grep -q 'mpirun' "$folder/out"; then
  echo "FAILED: mpirun adds words of its own to a failing job"
  sed 's/^/    /' "$folder/out"
  failures=$((failures + 1))
fi
# mpirun itself exits with 0 if its output cannot be written.
got=0
"$launch/run" -np 2 -- ranks x >/dev/full 2>"$folder/out" || got=$?
judge 8 "$got" '^run: cannot write the standard output: No space left on device' 'an output that is full'
expect 139 'ended by signal 11 \(SEGV\)' "$launch/run" -np 2 -- crash
# If MPI cannot start, it exits with 1 and no message: launch/run gives the remedy, or reports insufficient shared
# memory.
mkdir "$folder/bin"
# shellcheck disable=SC2016  # for the script that is written
printf '#!/usr/bin/env bash\necho Filesystem\necho "shm 1 0 $FREE 0%% /dev/shm"\n' >"$folder/bin/df"
chmod +x "$folder/bin/df"
FREE=1 PATH=$folder/bin:$PATH expect 3 '^run: MPI could not start 2 ranks: /dev/shm has 1 MB free.*--shm-size' "$launch/run" -np 2 -- break
FREE=64 PATH=$folder/bin:$PATH expect 1 '^run: exit code 1 .*DDP_MPI_VERBOSE=1 ' "$launch/run" -np 2 -- break
DDP_MPI_VERBOSE=1 expect 4 'Primary job +terminated normally|mpirun' "$launch/run" -np 2 -- fail
# If /tmp is not writable, as in a container with --read-only, MPI's files are in shared memory.
TMPDIR=/nowhere expect 0 'rank 1 of 2 says x in /dev/shm' "$launch/run" -np 2 -- ranks 'x in' TMPDIR
# A full one is named with the space that it has.
cat >"$folder/bin/stat" <<'STAT'
#!/usr/bin/env bash
case "$1 ${*: -1}" in
"-f $FULL") echo '512 * 4096' ;;
-f*) echo "99999999 * 4096" ;;
*) exec /usr/bin/stat "$@" ;;
esac
STAT
chmod +x "$folder/bin/stat"
mkdir "$folder/full"
export FULL=$folder/full
TMPDIR=$FULL PATH=$folder/bin:$PATH expect 3 "^run: TMPDIR $FULL has 2 MiB free, and MPI needs 12 MiB there; .*set TMPDIR to another folder" \
  "$launch/run" -np 2 -- ranks x
TMPDIR=/nowhere expect 0 '^run: warning: cannot create files in TMPDIR /nowhere; they are in /dev/shm instead' "$launch/run" -np 1 -- ranks x
rm -r "$FULL" "$folder/bin/stat"
# Each job has its own session directory of MPI, since a job that ends would remove a shared one; no files are left
# behind.
mkdir "$folder/tmp"
TMPDIR=$folder/tmp expect 0 "rank 1 of 2 says x in $folder/tmp/tmp[.]" "$launch/run" -np 2 -- ranks 'x in' \
  OMPI_MCA_orte_tmpdir_base
if [ -n "$(ls -A "$folder/tmp")" ]; then
  echo "FAILED: left in TMPDIR: $(ls -A "$folder/tmp")"
  failures=$((failures + 1))
fi
# MPICH's mpirun has other messages, exits with the number of a signal, and sometimes with 0 after forwarding a signal: the
# job has stopped nevertheless.
cat >"$folder/bin/mpirun" <<'HYDRA'
#!/usr/bin/env bash
case $* in
--version) echo 'HYDRA build details:' && exit ;;
*' killed') exit 9 ;;
*' words') echo "mpirun $*" && exit ;;
*' starters end') "$(dirname "$0")/srun" & exec sleep 60 ;;
esac
trap 'echo "ddp_train: stopped by SIGUSR1 after step 5; resume with --resume auto" >&2; exit 0' USR1
touch "${@: -1}"/up.{0,1}
for ((i = 0; i < 600; i++)); do sleep 0.1; done
HYDRA
chmod +x "$folder/bin/mpirun"
PATH=$folder/bin:$PATH signals 75 'stopped by SIGUSR1 after step 5' TERM
PATH=$folder/bin:$PATH expect 137 'ended by signal 9' "$launch/run" -np 2 -- killed
# It waits for ever where what was to start its ranks has ended.
printf '#!/bin/bash\nexit 6\n' >"$folder/bin/srun"
chmod +x "$folder/bin/srun"
PATH=$folder/bin:$PATH expect 7 '^run: ended mpirun, which hung: its ranks on this host are gone$' "$launch/run" -np 2 -- starters end
PATH=$folder/bin:$PATH expect 0 '^mpirun --bind-to none -np 999 /' "$launch/run" -np 999 -- words
PATH=$folder/bin:$PATH expect 0 '^mpirun --bind-to none -np 4 -hosts a:2,b:2 /' "$launch/run" --hosts a:2,b:2 -- words
rm "$folder/bin/mpirun"
for count in 0 -1 two ''; do expect 2 'is not a number of ranks|requires a number' "$launch/run" -np "$count" -- ranks x; done
expect 2 'requires a number of ranks' "$launch/run" -np
DDP_TRAIN=$folder/missing expect 3 'launch/build' "$launch/run" -np 1 -- ranks x

signals 75 'rank 1 stops' TERM
signals 75 'rank 1 stops' USR1
signals 75 'rank 0 stops' INT
signals 75 '^run: asked all ranks to save and stop' TERM
signals 75 'rank 1 saves' HUP TERM
# Once nobody reads its messages, a request still reaches the ranks, and none is left behind.
rm -f "$folder"/up.*
"$launch/run" -np 2 -- wait "$folder" 2> >(exec sleep 0.1) >"$folder/out" &
job=$!
for ((i = 0; i < 600; i++)); do
  if [ -e "$folder/up.0" ] && [ -e "$folder/up.1" ]; then break; fi
  sleep 0.1
done
victim=$(pgrep -P "$job" -x mpirun)
kill -TERM "$job"
wait "$job" || true
if kill -0 "$victim" 2>/dev/null; then
  echo "FAILED: after a request that nobody read of, mpirun is left behind"
  failures=$((failures + 1))
fi
BUSY=yes signals 130 '^run: ended at once by the second request; nothing was saved since the last checkpoint$' INT INT
BUSY=yes signals 130 '^run: ended at once by the second request' USR1 USR1 TERM
kills 'rank [01] on host .* was ended by signal 9' rank
kills 'mpirun or a rank was ended by signal 9' mpirun

# Where nobody reads the output any more, the ranks save and stop, with the code of a shell for SIGPIPE and nothing misleading.
for reader in 'head -n 3' 'head -n 3 2>&1'; do
  got=0
  case $reader in
  *'2>&1') "$launch/run" -np 2 -- print 2>&1 | head -n 3 >/dev/null || got=${PIPESTATUS[0]} ;;
  *) "$launch/run" -np 2 -- print 2>"$folder/out" | head -n 3 >/dev/null || got=${PIPESTATUS[0]} ;;
  esac
  judge 141 "$got" '^ddp_train: stopped by a broken pipe [(]the reader of the output has exited[)] after step 5;' "| $reader"
  if grep -q '^run: ' "$folder/out"; then
    echo "FAILED: launch/run | $reader says more:"
    cat "$folder/out"
    failures=$((failures + 1))
  fi
done
# With closed streams it works as with /dev/null, and leaves nothing behind.
got=0
# shellcheck disable=SC2016  # expanded by the inner shell
setsid bash -c 'echo $$ >"$0/session"; "$1/run" -np 2 -- ranks x <&- >&- 2>&-' "$folder" "$launch" || got=$?
echo closed >"$folder/out"
judge 0 "$got" closed 'closed streams'
mapfile -t left < <(pgrep -s "$(cat "$folder/session")")
if ! gone 5 "${left[@]}"; then
  echo "FAILED: with closed streams some of the processes ${left[*]} are left behind"
  kill -KILL "${left[@]}" 2>/dev/null || true
  failures=$((failures + 1))
fi
# If this script is killed, so are mpirun and the ranks, though nobody tells them.
start_waiting
victim=$(pgrep -P "$job" -x mpirun)
mapfile -t ranks < <(pgrep -P "$victim")
outside=$(listening "$victim")
kill -KILL "$job"
wait "$job" 2>/dev/null || true
if ! gone 8 "$victim" "${ranks[@]}"; then
  echo "FAILED: 8 s after SIGKILL to launch/run some of $victim ${ranks[*]} are left"
  kill -KILL "$victim" "${ranks[@]}" 2>/dev/null || true
  failures=$((failures + 1))
fi
# A job on one host is not reached from others.
if [ -e "$folder/libddp_loopback.so" ] && [ -n "$outside" ]; then
  echo "FAILED: mpirun of a job on one host listens at $outside"
  failures=$((failures + 1))
fi
# On a terminal Ctrl-C is called so; the progress bar stays above the message.
rm -f "$folder"/up.*
got=0
TERM=xterm python3 "$on_terminal" "$folder/up.0" "$launch/run" -np 1 -- print "$folder/up.0" >"$folder/out" 2>&1 || got=$?
judge 75 "$got" $'\r\e\\[Kddp_train: stopped by Ctrl-C after step 5; resume with --resume auto' 'Ctrl-C on a terminal'
judge 75 "$got" $'^\r\e\\[Krun: asked all ranks to save and stop' 'Ctrl-C on a terminal'
if grep -q 'mpirun: ' "$folder/out"; then
  echo "FAILED: mpirun adds words of its own to Ctrl-C"
  cat "$folder/out"
  failures=$((failures + 1))
fi

for script in setup build run supervise test quickstart lint; do
  expect 0 "^${script}[: ]" "$launch/$script" --help
done
for script in setup build quickstart lint; do expect 2 'unknown argument' "$launch/$script" --nonsense; done

[ "$failures" -eq 0 ] && echo "launch/run does what it promises"
