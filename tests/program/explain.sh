#!/usr/bin/env bash
# explain and compare, on runs and on what is not one.
set -u
source "$(dirname "$0")/lib.sh"

# Each part has its own output, so that they run at the same time: a short job mostly waits for mpirun.
# part NAME: runs the function NAME; returns the number of failures.
part() {
  local words=$folder/$1-words failures=0
  mkdir -p "$words"
  "$1"
  return "$failures"
}

run 0 120 2 "${small[@]}" --deterministic --logical-shards 2 --epochs 4 --log-interval 10 --random-crop-padding 2 --output "$folder/a"
grep -qE '^(nothing is wrong|[a-z].*(bound|straggler|cores|path|rank|shards)[^:]*): ' "$folder/out" || fail "no verdict at the end of a run"
[ "$(wc -l <"$folder/a/steps.csv")" -eq 33 ] || fail "steps.csv has not 33 lines"
grep -q '"ranks":{"steps":' "$folder/a/metrics.jsonl" || fail "no phases of the ranks"
grep -q '"mfu":' "$folder/a/metrics.jsonl" || grep -q '"peak_flops":null' "$folder/a/timing.json" || fail "no mfu"
for key in val_top5_accuracy class_accuracy confusion; do
  grep -q "\"$key\":" "$folder/a/metrics.jsonl" || fail "no $key in an evaluation"
  grep -q "\"$key\":" "$folder/a/latest/evaluation.json" || fail "no $key in evaluation.json"
done
run 0 60 1 explain "$folder/a"
grep -q '^verdict: ' "$folder/out" || fail "explain prints no verdict"
grep -q '^a step takes ' "$folder/out" || fail "explain does not say what a step takes"

evaluations() {
  # Evaluations on the critical path; the cure is tried on as many ranks as the run had.
  run 0 120 2 --dataset glyphs --train-limit 64 --test-limit 2000 --global-batch 32 --threads 1 --progress none --epochs 30 \
    --checkpoint-every 1000 --output "$folder/evaluates"
  run 0 60 1 explain "$folder/evaluates"
  grep -qE '^(verdict|also): evaluation on the critical path: ' "$words/out" || fail "the evaluations are not blamed"
  # On a machine that others use, they may be the verdict.
  blamed=evaluation
  if grep -q '^verdict: oversubscribed cores: other programs ' "$words/out"; then
    blamed=others
  else
    grep -q '^cure: --eval-every 10: ' "$words/out" || fail "no cure"
  fi
  run 2 60 1 explain "$folder/evaluates" --verify 40
  one_line 'mpirun -np 2'
  run 0 120 2 explain "$folder/evaluates" --verify 40
  [ $blamed = others ] || awk '/^verified: / { found = 1; sub("x", "", $4); gain = $4 } END { exit !(found && gain > 1.5) }' \
    "$words/out" || fail "evaluating every tenth epoch did not help"
  [ ! -e "$folder/evaluates/verify" ] || fail "the folder of the verification is left"
}

traces() {
  # A trace of both ranks.
  # With Lookahead each rank updates all parameters, so that no wait follows the sums.
  # Where other programs took the cores in every step (code 75) it is repeated.
  local checked=75
  for _ in 1 2 3; do
    [ "$checked" -eq 75 ] || break
    rm -rf "$folder/traced"
    run 0 120 2 "${small[@]}" --epochs 2 --first-bucket-mib 0.01 --bucket-mib 0.01 --workers 2 --lookahead 8 --trace \
      --output "$folder/traced"
    checked=0
    python3 "$folder/check_trace.py" "$folder/traced" || checked=$?
  done
  [ "$checked" -eq 0 ] || fail "the trace is not what it should be"
}
cat >"$folder/check_trace.py" <<'PYTHON'
import json, math, sys
events = json.load(open(sys.argv[1] + "/trace.json", encoding="utf-8"))["traceEvents"]
timing = json.load(open(sys.argv[1] + "/timing.json", encoding="utf-8"))
# The format, as its readers require it: the keys of each kind of event; spans of a row follow or contain one another.
needed = {"X": {"name": str, "pid": int, "tid": int, "ts": float, "dur": float, "args": dict},
          "i": {"name": str, "pid": int, "tid": int, "ts": float, "s": str},
          "C": {"name": str, "pid": int, "ts": float, "args": dict},
          "M": {"name": str, "pid": int, "args": dict}}
for e in events:
    for key, kind in needed[e["ph"]].items():
        assert isinstance(e[key], (int, float) if kind is float else kind), e
    assert e.get("dur", 0) >= 0 and (e["ph"] != "i" or e["s"] in "gpt"), e
spans = [e for e in events if e["ph"] == "X"]
for row in {(e["pid"], e["tid"]) for e in spans}:
    open_until = []
    for e in sorted((e for e in spans if (e["pid"], e["tid"]) == row), key=lambda e: (e["ts"], -e["dur"])):
        while open_until and open_until[-1] <= e["ts"] + 1:
            open_until.pop()
        assert not open_until or e["ts"] + e["dur"] <= open_until[-1] + 1, e
        open_until.append(e["ts"] + e["dur"])
disturbed = False
for rank in (0, 1):
    mine = [e for e in spans if e["pid"] == rank]
    steps = [e for e in mine if e["name"].startswith("step ")]
    assert [e["name"] for e in steps] == [f"step {n}" for n in range(1, 17)], steps
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1 for a, b in zip(steps, steps[1:])), "steps overlap"
    assert len([e for e in mine if e["name"] == "bucket 1"]) == 16
    assert [e for e in mine if e["name"] == "evaluation"]
    # Every thread of the loader has a row, and reads each batch before its step ends.
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == rank}
    assert {"loader 1", "loader 2"} <= set(rows.values()), rows
    loads = [e for e in mine if rows[e["tid"]].startswith("loader ")]
    ends = {e["args"]["step"]: e["ts"] + e["dur"] for e in steps}
    assert {e["args"]["step"] for e in loads} == set(ends), loads
    assert all(e["ts"] + e["dur"] <= ends[e["args"]["step"]] for e in loads)
    # What the trace shows of phases, sums and their overlap with backward is what the counters say, which leave out the
    # first two steps.
    counted = timing["ranks"][rank]
    late = [e for e in mine if ends.get(e["args"].get("step")) is not None and e["args"]["step"] > 2]
    sums = [e for e in late if e["name"].startswith("bucket ")]
    assert math.isclose(sum(e["dur"] for e in sums), counted["sum_seconds"] * 1e6, rel_tol=1e-3), counted
    seconds = {}
    for name in ("data wait", "forward", "backward", "optimizer"):
        key = name.replace(" ", "_")
        seen = [e for e in mine if e["name"] == name and e["ts"] >= steps[2]["ts"] - 1]
        assert math.isclose(sum(e["dur"] for e in seen), counted["seconds"][key] * 1e6, rel_tol=1e-3, abs_tol=20), name
    # The rest of the sums is exposed. A wait for a core between the last sum and the step's next phase is part of the
    # counted phase alone; the least disturbed step has little of it.
    apart = []
    for step in steps[2:]:
        inside = lambda e: step["ts"] - 1 <= e["ts"] < step["ts"] + step["dur"]
        backward = next(e for e in mine if e["name"] == "backward" and inside(e))
        exposed = sum(e["dur"] for e in mine if e["name"] == "exposed communication" and inside(e))
        done = max(e["ts"] + e["dur"] for e in sums if e["args"]["step"] == step["args"]["step"])
        apart.append(exposed - max(0, done - backward["ts"] - backward["dur"]))
    # A thread that loses its core between the end of a sum and the clock makes single ones negative.
    assert -200 <= sorted(apart)[len(apart) // 2], apart
    disturbed |= min(apart) >= 2e3
# The ranks end each sum of the same bucket at about the same time, on one clock.
ends = [sorted(e["ts"] + e["dur"] for e in spans if e["pid"] == rank and e["name"] == "bucket 1") for rank in (0, 1)]
apart = sorted(abs(a - b) for a, b in zip(*ends))
assert apart[len(apart) // 2] < 20e3, apart
if disturbed:
    print("exposed communication is longer than what the sums leave, in every step", apart)
    sys.exit(75)
PYTHON

comparisons() {
  # The same run again has no difference, also on another number of ranks; another one does.
  run 0 120 1 "${small[@]}" --deterministic --logical-shards 2 --epochs 4 --log-interval 10 --random-crop-padding 2 --output "$folder/b"
  run 0 60 1 compare "$folder/a" "$folder/b"
  grep -q '^no difference in the 32 steps' "$words/out" || fail "runs on one and two ranks differ"
  differs() { # KIND OPTIONS...
    local kind=$1
    shift
    run 0 120 1 "${small[@]}" --deterministic --logical-shards 2 --epochs 1 --random-crop-padding 2 "$@" --output "$folder/c-$kind"
    run 0 60 1 compare "$folder/a" "$folder/c-$kind"
    grep -q "^first difference at step .*: $kind: " "$words/out" || fail "$* is not called $kind"
    grep -q '^options: ' "$words/out" || fail "compare does not name the option"
  }
  differs 'data order' --seed 2
  differs augmentation --cutout 4
  differs schedule --schedule cosine
  differs weights --init xavier
  differs update --momentum 0.5
}

probes() {
  # Where the records of the run do not suffice, explain measures: fewer threads, on one rank and on as many as the run had.
  # That these waited for cores is made up.
  run 0 120 2 "${small[@]}" --global-batch 64 --epochs 10 --checkpoint-every 1000 --eval-every 0 --output "$folder/crowded"
  sed -E 's/"threads":\[[^]]*\]/"threads":[2,2]/; s/"cpus":\[[^]]*\]/"cpus":[2,2]/; s/"core_wait":[0-9.e-]*/"core_wait":1e9/g' \
    "$folder/crowded/timing.json" >"$folder/timing.json"
  cp "$folder/timing.json" "$folder/crowded/timing.json"
  for ranks in 1 2; do
    run 0 120 "$ranks" explain "$folder/crowded"
    grep -q '^verdict: oversubscribed cores: [0-9]* compute threads share ' "$words/out" || fail "the threads are not blamed"
    grep -qE "^cure: --threads [0-9]+: a step of [0-9.]+ ms instead of .* [0-9.]+x images/s \(predicted\)" "$words/out" ||
      fail "the cure was not measured on $ranks ranks"
    grep -q 'at least [0-9.]*x' "$words/out" && fail "a measured gain is called a lower bound on $ranks ranks"
  done
  # Where it cannot, it says why.
  bound() { # REASON OPTIONS...
    run 0 60 1 explain "$folder/crowded" "${@:2}"
    grep -q 'at least .* images/s' "$words/out" || fail "no lower bound: $1"
    grep -qE "^'at least', since it was not measured: $1" "$words/out" || fail "the reason is not '$1'"
  }
  bound '--probe off' --probe off
  sed 's/"hosts":\["[^"]*","[^"]*"\]/"hosts":["elsewhere","elsewhere"]/' "$folder/timing.json" >"$folder/crowded/timing.json"
  bound 'the run was on other hosts than '
  sed 's/"device":"[^"]*"/"device":"an abacus"/' "$folder/timing.json" >"$folder/crowded/timing.json"
  bound 'the run computed on another device, an abacus; this is '
}

lives() {
  # A run that goes on is explained and compared, and not disturbed by measurements.
  mkdir "$words/job"
  OMPI_MCA_orte_tmpdir_base=$words/job "$mpirun" -q --oversubscribe --bind-to none -np 2 "$program" "${small[@]}" --epochs 100000 --eval-every 0 --log-interval 20 \
    --checkpoint-every 1000000 --output "$folder/lives" >"$words/lives-out" 2>&1 &
  local job=$!
  await test -s "$folder/lives/timing.json" || fail "a run of 20 steps has no timing"
  run 0 60 1 explain "$folder/lives"
  grep -q '^the run has not ended, or was stopped; measured until step ' "$words/out" || fail "a running run is not called so"
  grep -q '^verdict: ' "$words/out" || fail "no verdict of a running run"
  run 0 60 1 report "$folder/lives" --to "$words/report.html"
  run 0 60 1 compare "$folder/lives" "$folder/lives"
  run 2 60 2 explain "$folder/lives" --verify 10
  one_line 'wait until it has ended'
  kill -USR1 "$job"
  wait "$job"
  [ ! -e "$folder/lives/verify" ] || fail "a verification of a running run left its folder"
}

no_runs() {
  # What is no run is one line.
  run 8 60 1 explain "$folder/nowhere"
  one_line 'no such folder'
  mkdir "$folder/empty"
  run 8 60 1 explain "$folder/empty"
  one_line 'not the folder of a run'
  run 8 60 1 compare "$folder/a" "$folder/empty"
  one_line 'no steps.csv'
  cp -r "$folder/a" "$folder/damaged"
  head -c 300 "$folder/a/timing.json" >"$folder/damaged/timing.json"
  run 8 60 1 explain "$folder/damaged"
  one_line 'timing.json: damaged'
  rm "$folder/damaged/timing.json"
  run 8 60 1 explain "$folder/damaged"
  one_line 'older ddp_train'
  run 2 60 1 explain
  one_line 'requires the folder of a run'
  run 2 60 1 compare "$folder/a"
  one_line 'requires the folders of two runs'
  # Without recording: the same weights, and nothing to explain.
  run 0 120 2 "${small[@]}" --deterministic --logical-shards 2 --epochs 4 --log-interval 10 --random-crop-padding 2 \
    --recording off --output "$folder/silent"
  same_tensors "$folder/a/latest" "$folder/silent/latest"
  run 8 60 1 explain "$folder/silent"
  one_line 'with --recording off'
  grep -q grad_norm "$folder/silent/metrics.jsonl" && fail "a gradient norm without recording"
  sed 's/"version":1,/"version":99,/' "$folder/a/timing.json" >"$folder/damaged/timing.json"
  run 8 60 1 explain "$folder/damaged"
  one_line 'version 99 was written by a newer ddp_train'
  echo '{"version":1}' >"$folder/damaged/timing.json"
  run 8 60 1 explain "$folder/damaged"
  one_line 'timing.json: damaged'
  # A run that was stopped.
  sed 's/"complete":true/"complete":false/' "$folder/a/timing.json" >"$folder/damaged/timing.json"
  run 0 60 1 explain "$folder/damaged"
  grep -q '^the run has not ended, or was stopped; measured until step 32' "$words/out" || fail "a stopped run is not called so"
}

for each in evaluations comparisons; do part "$each" & done
part traces || failures=$((failures + $?))
part no_runs || failures=$((failures + $?))
part lives || failures=$((failures + $?))
for job in $(jobs -p); do wait "$job" || failures=$((failures + $?)); done
part probes || failures=$((failures + $?))
finish
