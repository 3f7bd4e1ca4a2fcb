#!/usr/bin/env bash
# supervise_test.sh LAUNCH_FOLDER: tests launch/supervise with a small program instead of ddp_train: its log, its readers, and
# what is left of it after SIGKILL. tests/campaigns/supervise.sh tests restarts of ddp_train itself.
set -euo pipefail
launch=$1
on_terminal=$(cd "$(dirname "$0")/../support" && pwd)/on_terminal.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# shellcheck source=tests/launch/failures.sh
source "$(dirname "$0")/failures.sh" out

cat >"$folder/program" <<'PROGRAM'
#!/usr/bin/env bash
case $* in *--dump-config) echo "output = $FOLDER/run  # command line" && exit ;; esac
# launch/supervise passes options only.
case ${1#--} in
fail) printf 'ddp_train: error: class \e]0;title\a is missing\n' >&2 && exit 4 ;;
hold)
  [ ! -e "$FOLDER/again" ] || exit 0
  mkdir "$FOLDER/held" 2>/dev/null || exit 8
  trap 'sleep 0.5; rmdir "$FOLDER/held"; touch "$FOLDER/again"; exit 1' TERM
  ;;
*) trap 'echo "ddp_train: stopped by SIGUSR1 after step 5; resume with --resume auto" >&2; exit 75' USR1 ;;
esac
echo $$ >"$FOLDER/up"
for ((i = 0; i < 600; i++)); do
  echo "line $i"
  sleep 0.1
done
PROGRAM
chmod +x "$folder/program"
export DDP_TRAIN=$folder/program FOLDER=$folder

# expect CODE PATTERN COMMAND...: the command exits with this code, and its output matches.
expect() {
  local code=$1 pattern=$2 got=0
  shift 2
  timeout 60 "$@" >"$folder/out" 2>&1 || got=$?
  if [ "$got" -ne "$code" ] || ! grep -qE -- "$pattern" "$folder/out"; then fail "code $got instead of $code, or no '$pattern', from $*"; fi
}
started() {
  local i
  for ((i = 0; i < 300; i++)); do
    [ ! -s "$folder/up" ] || return 0
    sleep 0.1
  done
  fail "the job does not start"
}
lives() { grep -qs '^State:[[:space:]]*[^Z]' "/proc/$1/status"; }

# What a message quotes does not change the terminal.
expect 4 '^supervise: ended with code 4 after 0 restarts' "$launch/supervise" -np 1 -- --fail
expect 8 '^supervise: cannot write the log .*[?]' "$launch/supervise" -np 1 --log "$folder/no"$'\e'"where/log/" -- --fail
if grep -q $'\e' "$folder/out"; then fail "a control character reaches the terminal"; fi

# The log: an own link is followed, those of others and their files are not.
ln -s "$folder/elsewhere" "$folder/own"
expect 4 'ended with code 4' "$launch/supervise" -np 1 --log "$folder/own" -- --fail
[ -s "$folder/elsewhere" ] || fail "the own link is not followed"
if [ "$(id -u)" -eq 0 ]; then
  ln -s "$folder/target" "$folder/run.supervise.log.link"
  chown -h 12345 "$folder/run.supervise.log.link"
  expect 8 '^supervise: the log .* is a file or link of another user' "$launch/supervise" -np 1 --log "$folder/run.supervise.log.link" -- --fail
  [ ! -e "$folder/target" ] || fail "the link of another user is followed"
  echo kept >"$folder/target"
  expect 8 'is a file or link of another user' "$launch/supervise" -np 1 --log "$folder/run.supervise.log.link" -- --fail
  [ "$(cat "$folder/target")" = kept ] || fail "the file behind the link of another user was changed"
  : >"$folder/theirs"
  chown 12345 "$folder/theirs"
  expect 8 'is a file or link of another user' "$launch/supervise" -np 1 --log "$folder/theirs" -- --fail
else
  echo "SKIPPED: logs of other users, since this is not root"
fi
expect 4 'ended with code 4' "$launch/supervise" -np 1 --log /dev/null -- --fail

# If nobody reads the output any more, the ranks save and stop, and there is no restart.
got=0
"$launch/supervise" -np 1 -- --print 2>"$folder/out" | head -n 3 >/dev/null || got=${PIPESTATUS[0]}
[ "$got" -eq 141 ] || fail "exit code $got instead of 141 from launch/supervise | head"
grep -q '^supervise: ended with code 141 after 0 restarts: the reader' "$folder/out" || fail "launch/supervise | head is not explained"

# Ctrl-C is called so, though launch/run receives another signal.
rm -f "$folder/up"
TERM=xterm expect 75 'ddp_train: stopped by Ctrl-C after step 5' python3 "$on_terminal" "$folder/up" "$launch/supervise" -np 1 -- --print

# SIGKILL to launch/run: the next attempt begins when the ranks of the last one have ended.
rm -f "$folder/up"
"$launch/supervise" -np 1 -- --hold >"$folder/out" 2>&1 &
job=$!
started
rank=$(cat "$folder/up")
mpirun=$(awk '$1 == "PPid:" { print $2 }' "/proc/$rank/status")
kill -KILL "$(awk '$1 == "PPid:" { print $2 }' "/proc/$mpirun/status")"
got=0
for ((i = 0; i < 200; i++)); do
  lives "$job" || break
  sleep 0.1
done
if lives "$job"; then
  fail "the supervised job does not end; its ranks go on after SIGKILL to launch/run"
  kill -KILL "$mpirun" "$rank" "$job" 2>/dev/null || true
fi
wait "$job" || got=$?
[ "$got" -eq 0 ] || fail "exit code $got instead of 0 after SIGKILL to launch/run"
grep -q 'restart 1 from' "$folder/out" || fail "no restart after SIGKILL to launch/run"
if grep -q 'restart 2 from' "$folder/out"; then fail "the restart met ranks of the attempt before"; fi

# SIGKILL to launch/supervise ends all of it.
rm -f "$folder/up"
"$launch/supervise" -np 1 -- --print >"$folder/out" 2>&1 &
job=$!
started
rank=$(cat "$folder/up")
kill -KILL "$job"
wait "$job" 2>/dev/null || true
for ((i = 0; i < 100; i++)); do
  lives "$rank" || break
  sleep 0.1
done
if lives "$rank"; then
  fail "10 s after SIGKILL to launch/supervise a rank goes on"
  pkill -KILL -f "^[^ ]*mpirun .*$folder/program" || true
fi

if [ "$failures" -ne 0 ]; then exit 1; fi
echo "launch/supervise does what it promises"
