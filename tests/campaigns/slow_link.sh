#!/usr/bin/env bash
# slow_link.sh PROGRAM RUN: two ranks in network namespaces as hosts, connected by 100 Mbit/s, train into RUN. Ends with 77
# and the reason where this is not allowed.
set -u
program=$(realpath "$1") run=$2
skip() {
  echo "SKIPPED: hosts as network namespaces: $1"
  exit 77
}
[ "$(id -u)" -eq 0 ] || skip "this is not root"
for tool in ip tc unshare mpirun; do command -v $tool >/dev/null || skip "there is no $tool"; done
launch=$(cd "$(dirname "$0")/../../launch" && pwd)
name=ddp-link-$$
folder=$(mktemp -d)
# shellcheck disable=SC2317  # called by the trap
clean_up() {
  ip netns del "$name-0" 2>/dev/null
  ip netns del "$name-1" 2>/dev/null
  rm -rf "$folder"
}
trap clean_up EXIT
ip netns add "$name-0" 2>"$folder/err" || skip "$(cat "$folder/err")"
ip netns add "$name-1"
ip link add eth0 netns "$name-0" type veth peer name eth0 netns "$name-1" 2>"$folder/err" || skip "$(cat "$folder/err")"
for host in 0 1; do
  ip netns exec "$name-$host" ip link set lo up
  ip netns exec "$name-$host" ip addr add "10.77.2.1$host/24" dev eth0
  ip netns exec "$name-$host" ip link set eth0 up
  ip netns exec "$name-$host" tc qdisc add dev eth0 root tbf rate 100mbit burst 32kbit latency 400ms 2>"$folder/err" ||
    skip "$(cat "$folder/err")"
done
# Replaces ssh: HOST COMMAND...
cat >"$folder/rsh" <<RSH
#!/usr/bin/env bash
host=\${1##*.1}
shift
exec ip netns exec $name-\$host unshare --uts sh -c 'hostname host'\$host'; exec sh -c "\$0"' "\$*"
RSH
chmod +x "$folder/rsh"
export OMPI_MCA_plm_rsh_agent=$folder/rsh OMPI_MCA_plm=rsh DDP_TRAIN=$program
ip netns exec "$name-0" unshare --uts sh -c 'hostname host0; exec "$@"' sh timeout -k 5 120 "$launch/run" \
  --hosts 10.77.2.10:1,10.77.2.11:1 -- --dataset glyphs --threads 1 --progress none --global-batch 64 --max-steps 60 \
  --eval-every 0 --test-limit 100 --checkpoint-every 1000 --output "$run"
