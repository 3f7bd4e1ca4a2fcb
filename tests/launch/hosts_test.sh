#!/usr/bin/env bash
# hosts_test.sh LAUNCH_FOLDER PROGRAM: tests launch/run --hosts with three network namespaces as hosts, each with a
# docker0 with the same address, and a slow link. It requires root, ip, tc and permission to create namespaces, and
# otherwise exits with 77 and the reason.
set -u
launch=$1 program=$(realpath "$2")
skip() {
  echo "SKIPPED: hosts as network namespaces: $1"
  exit 77
}
[ "$(id -u)" -eq 0 ] || skip "this is not root"
for tool in ip tc unshare mpirun; do command -v $tool >/dev/null || skip "there is no $tool"; done
name=ddp-$$
folder=$(mktemp -d)
# shellcheck disable=SC2317  # called by the trap
clean_up() {
  local host
  for host in 0 1 2 bridge; do ip netns del "$name-$host" 2>/dev/null; done
  rm -rf "$folder"
}
trap clean_up EXIT
ip netns add "$name-bridge" 2>"$folder/err" || skip "$(cat "$folder/err")"
inside() { ip netns exec "$name-$1" "${@:2}"; }
inside bridge ip link add br0 type bridge 2>"$folder/err" || skip "$(cat "$folder/err")"
inside bridge ip link set br0 up
for host in 0 1 2; do
  ip netns add "$name-$host"
  ip link add eth0 netns "$name-$host" type veth peer name "v$host" netns "$name-bridge"
  inside bridge ip link set "v$host" master br0 up
  inside $host ip link set lo up
  inside $host ip addr add "10.77.1.1$host/24" dev eth0
  inside $host ip link set eth0 up
  inside $host ip link add docker0 type bridge
  inside $host ip addr add 172.17.0.1/16 dev docker0
  inside $host ip link set docker0 up
done
# Replaces ssh: HOST COMMAND...
cat >"$folder/rsh" <<RSH
#!/usr/bin/env bash
host=\${1##*.1}
shift
[ ! -e $folder/down-\$host ] || exit 255
exec ip netns exec $name-\$host unshare --uts sh -c 'hostname host'\$host'; exec sh -c "\$0"' "\$*"
RSH
chmod +x "$folder/rsh"
export OMPI_MCA_plm_rsh_agent=$folder/rsh OMPI_MCA_plm=rsh DDP_TRAIN=$program
failures=0
# The link of host 1 is up again, and used: a connection is refused at once.
link_up() {
  local i
  inside bridge ip link set v1 up
  for ((i = 0; i < 30; i++)); do
    if inside 0 timeout 1 bash -c ': </dev/tcp/10.77.1.11/9' 2>&1 | grep -q refused; then return; fi
  done
}
fail() {
  echo "FAILED: $1"
  sed 's/^/    /' "$folder/said" | tail -30
  failures=$((failures + 1))
}
# hosts CODE SECONDS LIST ARGUMENTS...: launch/run on host 0.
hosts() {
  local code=$1 limit=$2 got=0
  last="--hosts $3 ${*:4}"
  inside 0 unshare --uts sh -c 'hostname host0; exec "$@"' sh timeout -k 5 "$limit" "$launch/run" --hosts "$3" -- "${@:4}" \
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
  inside bridge ip link set v1 down
) &
begin=$SECONDS
hosts 7 90 10.77.1.10:1,10.77.1.11:1 --dataset glyphs --train-limit 1000 --test-limit 200 --threads 1 --progress none \
  --epochs 100000 --eval-every 0 --checkpoint-every 1000000 --log-interval 1 --timeout 20 --output "$folder/run"
wait
grep -qE 'host1|10\.77\.1\.11|lost a host' "$folder/said" || fail "the lost host is not named: $last"

# A link that is down is a hang of the rank behind it, before mpirun's own messages have failed.
link_up
(
  for ((i = 0; i < 200; i++)); do
    [ ! -s "$folder/link/metrics.jsonl" ] || break
    sleep 0.2
  done
  # The ranks tell each other their steps four times a second.
  sleep 1
  inside bridge ip link set v1 down
) &
hosts 7 60 10.77.1.10:1,10.77.1.11:1 --dataset glyphs --train-limit 1000 --test-limit 200 --threads 1 --progress none \
  --epochs 100000 --eval-every 0 --checkpoint-every 1000000 --log-interval 1 --hang-timeout 5 --output "$folder/link"
wait
grep -qE 'no progress on any rank for 5 s: rank 1 on host host1 \(process [0-9]+\) is silent: .* \(step [0-9]+, ' "$folder/said" ||
  fail "the rank behind the link is not named: $last"
grep -qE '^-> +1 +host1 .* silent' "$folder"/link/hang-*.txt || fail "no table of the link: $last"

# A supervised job continues on the remaining hosts, and is bit-identical to an undisturbed one.
link_up
small=(--dataset glyphs --train-limit 1000 --test-limit 200 --threads 1 --progress none --deterministic --epochs 30
  --checkpoint-every 10 --global-batch 100 --logical-shards 2 --timeout 20)
hosts 0 120 10.77.1.10:2 "${small[@]}" --output "$folder/whole"
(
  for ((i = 0; i < 200; i++)); do
    [ ! -L "$folder/supervised/latest" ] || break
    sleep 0.1
  done
  touch "$folder/down-1"
  inside bridge ip link set v1 down
) &
got=0
last="a supervised job on two hosts, one of which is lost"
inside 0 unshare --uts sh -c 'hostname host0; exec "$@"' sh timeout -k 5 200 "$launch/supervise" \
  --hosts 10.77.1.10:1,10.77.1.11:1 -- "${small[@]}" --output "$folder/supervised" >"$folder/said" 2>&1 || got=$?
wait
[ "$got" -eq 0 ] || fail "exit code $got from $last"
grep -q '^supervise: hosts: 10.77.1.10:1, of 10.77.1.10:1,10.77.1.11:1' "$folder/said" || fail "no lost host in $last"
cmp -s "$folder/whole/latest/model.safetensors" "$folder/supervised/latest/model.safetensors" || fail "other weights from $last"

[ "$failures" -eq 0 ] && echo "launch/run reaches hosts over the right network"
