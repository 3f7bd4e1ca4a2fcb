# Shared by the campaigns, which source it as `source lib.sh PROGRAM MPIRUN`. Each takes the number of trials as its
# last argument: few as a test, many by hand.
# shellcheck shell=bash
source "$(dirname "${BASH_SOURCE[0]}")/../program/lib.sh"

# 60 images in 3 steps per epoch: a complete run in a fraction of a second.
# shellcheck disable=SC2034
tiny=(--dataset glyphs --train-limit 60 --test-limit 20 --global-batch 20 --lr 0.05 --momentum 0.9 --threads 1
  --progress none --deterministic --log-interval 1 --keep-checkpoints 2 --logical-shards 2)

# alone ARGUMENTS...: runs one process without mpirun and returns its exit code.
alone() { timeout -s KILL 20 "$program" "$@" >"$folder/out" 2>"$folder/err"; }

losses() { grep '"loss"' "$1/metrics.jsonl" | sed 's/,"images_per_second.*//'; }
evaluations() { grep '"val_loss"' "$1/metrics.jsonl"; }

# same_run EXPECTED RUN WHEN: compares an undisturbed run with one that was killed and resumed: the same weights,
# optimizer state, evaluations, logs and links, and no temporary files.
same_run() {
  local expected=$1 run=$2 link
  for link in latest best; do
    [ "$(readlink "$run/$link")" = "$(readlink "$expected/$link")" ] ||
      fail "$3: $link points to '$(readlink "$run/$link")', not '$(readlink "$expected/$link")'"
  done
  for file in model.safetensors optimizer.safetensors evaluation.json; do
    cmp -s "$expected/latest/$file" "$run/latest/$file" || fail "$3: latest/$file differs"
  done
  cmp -s <(losses "$expected") <(losses "$run") || fail "$3: the losses differ"
  cmp -s <(evaluations "$expected") <(evaluations "$run") || fail "$3: the evaluations differ"
  cmp -s <(cut -d, -f1-6 "$expected/summary.csv") <(cut -d, -f1-6 "$run/summary.csv") || fail "$3: summary.csv differs"
  cmp -s <(grep -vE '^(output|resume) = ' "$expected/config.cfg") <(grep -vE '^(output|resume) = ' "$run/config.cfg") ||
    fail "$3: config.cfg differs"
  local left
  left=$(find "$run" -mindepth 1 -maxdepth 2 \( -name '.*' -o -name run.lock \))
  [ -z "$left" ] || fail "$3: left over: $left"
}

# The process IDs of the ranks of the run $run.
running_ranks() { pgrep -f "^$program .*--output $run( |\$)"; }

# kill_at_random KILLS RANKS SECONDS: while the supervised job $job trains in $run on RANKS ranks, kills a rank, mpirun or all ranks
# at random moments, until $done_kills is KILLS, the job has ended, or the time is over.
done_kills=0 killed_at='' job='' whole=''
kill_at_random() {
  local kills=$1 wanted=$2 end=$((SECONDS + $3)) newest launcher ranks victims
  while [ "$done_kills" -lt "$kills" ] && kill -0 "$job" 2>/dev/null; do
    [ "$SECONDS" -lt "$end" ] || { fail "only $done_kills kills" && return; }
    sleep "$((RANDOM % 2)).$((RANDOM % 10))"
    mapfile -t ranks < <(running_ranks)
    [ ${#ranks[@]} -eq "$wanted" ] || continue
    launcher=$(pgrep -f "^mpirun .*--output $run( |\$)") || continue
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
}

# ended_by_itself NAME KILLS MINIMUM: the job $job, called NAME, ends with 0 after KILLS kills and at least MINIMUM restarts, with the
# bytes and logs of the run in $whole. Sets `restarts`.
ended_by_itself() {
  local got=0
  last="$1, killed $done_kills times"
  wait "$job" || got=$?
  [ "$got" -eq 0 ] || fail "exit code $got from $last"
  [ "$done_kills" -eq "$2" ] || fail "the run ended after $done_kills kills"
  same_run "$whole" "$run" "$last"
  restarts=$(grep -c 'restart [0-9]' "$run.supervise.log")
  [ "$restarts" -ge "$3" ] || fail "$restarts restarts in the log of $last"
  grep -q "finished after $restarts restarts" "$run.supervise.log" || fail "the log does not say how $last ended"
}
