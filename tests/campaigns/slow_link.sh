#!/usr/bin/env bash
# slow_link.sh PROGRAM RUN STEPS: two ranks in network namespaces as hosts, connected by 100 Mbit/s, train into RUN, and verify the
# first cure for STEPS steps. Ends with 77 and the reason where this is not allowed.
set -u
program=$(realpath "$1") run=$2 steps=$3
launch=$(cd "$(dirname "$0")/../../launch" && pwd)
source "$(dirname "$0")/../support/hosts.sh" 2 10.77.2
for host in 0 1; do
  inside $host tc qdisc add dev eth0 root tbf rate 100mbit burst 32kbit latency 400ms 2>"$folder/err" ||
    skip "$(cat "$folder/err")"
done
export DDP_TRAIN=$program
job() { on_host 0 timeout -k 5 120 "$launch/run" --hosts 10.77.2.10:1,10.77.2.11:1 -- "$@"; }
job --dataset glyphs --threads 1 --progress none --global-batch 64 --max-steps 60 \
  --eval-every 0 --test-limit 100 --checkpoint-every 1000 --output "$run" &&
  job explain "$run" --verify "$steps"
