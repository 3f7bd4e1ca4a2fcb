#!/usr/bin/env bash
# causes.sh PROGRAM MPIRUN SLOW_IO.so [TRIALS] [NAME...]: plants causes of slowness in runs of two ranks, and checks that
# 'explain' names each, and how far the gain that it predicts is from the one that --verify measures. The last line counts.
# All causes, or those that are named: loader straggler slow link root batch evaluation disk threads healthy.
# 'link' needs root and network namespaces.
#
# The machine must be quiet: other programs on the cores are a cause of their own, and are reported as such. The highest
# priority and short time slices (sched_setattr(2): sched_nice, sched_runtime) keep most of them away.
set -u
slow_io=$(realpath "$3")
trials=${4:-1}
here=$(cd "$(dirname "$0")" && pwd)
chosen=("${@:5}")
source "$here/lib.sh"
[ ${#chosen[@]} -gt 0 ] || chosen=(loader straggler slow link root batch evaluation disk threads healthy)
wrapper=() # before the program
named=0 planted=0 within=0 verified=0
apart=()
base=(--dataset glyphs --threads 1 --progress none --plan-cache "$folder/plans")

# job SECONDS ARGUMENTS...: two ranks, or as many as the environment says, on this host.
job() {
  OMPI_MCA_orte_tmpdir_base=$folder timeout -s KILL "$1" "$mpirun" -q --oversubscribe --bind-to none -np 2 "${wrapper[@]}" "$program" "${@:2}" \
    >"$folder/out" 2>"$folder/err"
}

# judge NAME VERDICT...: explains $folder/run, by the job itself; verifies the first cure for 60 steps.
judge() {
  local name=$1 want=$2 predicted measured
  planted=$((planted + 1))
  "$program" explain "$folder/run" >"$folder/said" 2>&1
  if grep -qE "^verdict: $want" "$folder/said"; then
    named=$((named + 1))
  else
    echo "FAILED: $name: $(grep '^verdict' "$folder/said")"
    sed 's/^/    /' "$folder/said"
    failures=$((failures + 1))
  fi
  grep -q '^cure: ' "$folder/said" || return 0
  # The hosts of that run are gone; it verified there.
  [ "$name" = link ] || job 300 explain "$folder/run" --verify "${steps:-60}" || { fail "$name: --verify"; return; }
  predicted=$(sed -n 's/^verified: .* measured, \(at least \)\?\([0-9.]*\)x predicted.*/\2/p' "$folder/out")
  measured=$(sed -n 's/^verified: .* \([0-9.]*\)x images\/s measured.*/\1/p' "$folder/out")
  [ -n "$predicted" ] || { fail "$name: nothing was verified"; return; }
  verified=$((verified + 1))
  # The gain in percent of the predicted speed. What is at least predicted may be more.
  local least=0
  if grep -q 'measured, at least' "$folder/out"; then name+=' (at least)' least=1; fi
  apart+=("$name:$(awk -v p="$predicted" -v m="$measured" -v least=$least 'BEGIN { d = 100 * (m - p) / p; printf "%+.0f%%", d; exit !(d >= -15 && (d <= 15 || least)) }')") &&
    within=$((within + 1))
}

# Images in PNG files: PNG_FOLDER COUNT.
make_images() {
  local class split i
  for split in train val; do
    for class in a b; do
      mkdir -p "$1/$split/$class"
      for ((i = 0; i < $2; i++)); do cp "$here/../golden/images/rgb.png" "$1/$split/$class/$i.png"; done
    done
  done
}

for ((trial = 1; trial <= trials; trial++)); do
  for cause in "${chosen[@]}"; do
    rm -rf "$folder/run"
    unset LD_PRELOAD SLOW_SUFFIX SLOW_OPEN_MS SLOW_SYNC_MS
    steps=60 wrapper=()
    case $cause in
    loader)
      [ -d "$folder/images" ] || make_images "$folder/images" 100
      export LD_PRELOAD=$slow_io SLOW_SUFFIX=.png SLOW_OPEN_MS=3
      job 120 "${base[@]}" --dataset folder --data-dir "$folder/images" --image-size 28 --test-limit 20 --global-batch 32 --max-steps 60 --eval-every 0 \
        --epochs 100 --checkpoint-every 1000 --output "$folder/run" || fail "$cause"
      judge loader input-bound
      ;;
    straggler)
      # Three busy loops share the core of rank 1 with it.
      (for _ in 1 2 3; do taskset -c 1 sh -c 'while :; do :; done' & done; jobs -p >"$folder/loops"; wait) &
      job 120 "${base[@]}" --global-batch 256 --max-steps 150 --eval-every 0 --test-limit 100 --output "$folder/run" || fail "$cause"
      # shellcheck disable=SC2046
      kill $(cat "$folder/loops")
      wait
      judge straggler 'straggler: rank 1 on '
      ;;
    slow)
      # Rank 1 computes at 60% of its speed, also while --verify trains. A step has several of the stops that make it slow.
      wrapper=("$here/slow_rank.py")
      job 120 "${base[@]}" --global-batch 1024 --logical-shards 8 --max-steps 60 --eval-every 0 --test-limit 100 --output "$folder/run" ||
        fail "$cause"
      steps=60
      judge slow 'straggler: rank 1 on '
      ;;
    root)
      job 120 "${base[@]}" --model caffe-lenet --global-batch 4 --lr 0.001 --reduction root --max-steps 1500 --test-limit 4 \
        --eval-every 0 --checkpoint-every 100000 --log-interval 500 --output "$folder/run" || fail "$cause"
      steps=1500
      judge root 'communication-bound \(root reduction\)'
      ;;
    batch)
      job 120 "${base[@]}" --batch-per-rank 1 --max-steps 2000 --eval-every 0 --test-limit 10 --checkpoint-every 100000 --log-interval 500 \
        --output "$folder/run" || fail "$cause"
      steps=2000
      judge batch 'batch too small per rank'
      ;;
    evaluation)
      job 120 "${base[@]}" --train-limit 128 --global-batch 128 --test-limit 2000 --epochs 60 --checkpoint-every 1000 --output "$folder/run" ||
        fail "$cause"
      judge evaluation 'evaluation on the critical path'
      ;;
    disk)
      export LD_PRELOAD=$slow_io SLOW_SYNC_MS=30
      job 120 "${base[@]}" --global-batch 128 --checkpoint-every 5 --max-steps 100 --eval-every 0 --test-limit 10 --output "$folder/run" ||
        fail "$cause"
      steps=200
      judge disk 'checkpoints on the critical path'
      ;;
    threads)
      job 120 "${base[@]}" --threads 2 --global-batch 256 --max-steps 150 --eval-every 0 --test-limit 100 --output "$folder/run" ||
        fail "$cause"
      judge threads 'oversubscribed cores: 4 compute threads share 2 cores'
      ;;
    link)
      "$here/slow_link.sh" "$program" "$folder/run" "$steps" >"$folder/out" 2>"$folder/err"
      case $? in
      0) judge link 'communication-bound \((bandwidth|latency|one late bucket)\)' ;;
      77) cat "$folder/out" ;;
      *) fail link ;;
      esac
      ;;
    healthy)
      job 120 "${base[@]}" --global-batch 512 --max-steps 100 --eval-every 0 --test-limit 100 --output "$folder/run" || fail "$cause"
      judge healthy 'nothing is wrong'
      ;;
    esac
  done
done
echo "$named of $planted named rightly; of $verified verified cures $within predicted within 15%: ${apart[*]}"
finish
