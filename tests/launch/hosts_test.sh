#!/usr/bin/env bash
# hosts_test.sh LAUNCH_FOLDER PROGRAM: tests launch/run --hosts with three network namespaces as hosts, each with a
# docker0 with the same address, and a slow link. It requires root, ip, tc and permission to create namespaces, and
# otherwise exits with 77 and the reason.
set -u
launch=$1 program=$(realpath "$2")
source "$(dirname "$0")/../support/hosts.sh" 3 10.77.1
for host in 0 1 2; do
  inside $host ip link add docker0 type bridge
  inside $host ip addr add 172.17.0.1/16 dev docker0
  inside $host ip link set docker0 up
done
export DDP_TRAIN=$program
# shellcheck source=tests/launch/failures.sh
source "$(dirname "$0")/failures.sh" said
# hosts CODE SECONDS LIST ARGUMENTS...: launch/run on host 0.
hosts() {
  local code=$1 limit=$2 got=0
  last="--hosts $3 ${*:4}"
  on_host 0 timeout -k 5 "$limit" "$launch/run" --hosts "$3" -- "${@:4}" \
    >"$folder/said" 2>&1 || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got instead of $code from $last"
}

all=10.77.1.10:1,10.77.1.11:1,10.77.1.12:1
begin=$SECONDS
hosts 0 60 $all check --device cpu
grep -q '^ready$' "$folder/said" || fail "not ready: $last"
grep -qE '^links +3 between 3 hosts: .*' "$folder/said" || fail "no links from $last"
if grep -q '^slow' "$folder/said"; then fail "a slow host is reported without one: $last"; fi

# The slow link of a host is reported within 30 s.
inside 2 tc qdisc add dev eth0 root tbf rate 10mbit burst 32k limit 1m 2>"$folder/said" || fail "cannot slow down the link"
inside bridge tc qdisc add dev v2 root tbf rate 10mbit burst 32k limit 1m
begin=$SECONDS
hosts 0 90 $all check --device cpu
took=$((SECONDS - begin))
[ "$took" -le 30 ] || fail "$took s for the check of a slow link"
grep -qE '^slow +host2: ' "$folder/said" || fail "the slow host is not named: $last"

# Losing a host ends the job, with the reason in the last line.
inside 2 tc qdisc del dev eth0 root
inside bridge tc qdisc del dev v2 root
(
  for ((i = 0; i < 200; i++)); do
    [ ! -s "$folder/run/metrics.jsonl" ] || break
    sleep 0.2
  done
  link 1 down
) &
begin=$SECONDS
hosts 7 90 10.77.1.10:1,10.77.1.11:1 --dataset glyphs --train-limit 1000 --test-limit 200 --threads 1 --progress none \
  --epochs 100000 --eval-every 0 --checkpoint-every 1000000 --log-interval 1 --timeout 20 --output "$folder/run"
wait
grep -qE 'host1|10\.77\.1\.11|lost a host' "$folder/said" || fail "the lost host is not named: $last"

# A link that is down is a hang of the rank behind it, before mpirun's own messages have failed.
link_up 1
(
  for ((i = 0; i < 200; i++)); do
    [ ! -s "$folder/link/metrics.jsonl" ] || break
    sleep 0.2
  done
  # The ranks tell each other their steps four times a second.
  sleep 1
  link 1 down
) &
hosts 7 60 10.77.1.10:1,10.77.1.11:1 --dataset glyphs --train-limit 1000 --test-limit 200 --threads 1 --progress none \
  --epochs 100000 --eval-every 0 --checkpoint-every 1000000 --log-interval 1 --hang-timeout 5 --output "$folder/link"
wait
grep -qE 'no progress on any rank for 5 s: rank 1 on host host1 \(process [0-9]+\) is silent: .* \(step [0-9]+, ' "$folder/said" ||
  fail "the rank behind the link is not named: $last"
grep -qE '^-> +1 +host1 .* silent' "$folder"/link/hang-*.txt || fail "no table of the link: $last"

# A supervised job continues on the remaining hosts, and is bit-identical to an undisturbed one.
link_up 1
small=(--dataset glyphs --train-limit 1000 --test-limit 200 --threads 1 --progress none --deterministic --epochs 30
  --checkpoint-every 10 --global-batch 100 --logical-shards 2 --timeout 20)
hosts 0 120 10.77.1.10:2 "${small[@]}" --output "$folder/whole"
(
  for ((i = 0; i < 200; i++)); do
    [ ! -L "$folder/supervised/latest" ] || break
    sleep 0.1
  done
  touch "$folder/down-1"
  link 1 down
) &
got=0
last="a supervised job on two hosts, one of which is lost"
on_host 0 timeout -k 5 200 "$launch/supervise" \
  --hosts 10.77.1.10:1,10.77.1.11:1 -- "${small[@]}" --output "$folder/supervised" >"$folder/said" 2>&1 || got=$?
wait
[ "$got" -eq 0 ] || fail "exit code $got from $last"
grep -q '^supervise: hosts: 10.77.1.10:1, of 10.77.1.10:1,10.77.1.11:1' "$folder/said" || fail "no lost host in $last"
cmp -s "$folder/whole/latest/model.safetensors" "$folder/supervised/latest/model.safetensors" || fail "other weights from $last"

[ "$failures" -eq 0 ] && echo "launch/run reaches hosts over the right network"
