# Network and UTS namespaces as hosts on one bridge, sourced as `source hosts.sh HOSTS NETWORK`: hosts 0 .. HOSTS-1 have the
# addresses NETWORK.10, NETWORK.11, ... Requires root, ip, tc and permission to create namespaces, and otherwise ends the
# script with 77 and the reason. $folder, by default a new temporary one, is removed at the end.
#
#   source hosts.sh 2 10.77.1
#   on_host 0 "$launch/run" --hosts 10.77.1.10:1,10.77.1.11:1 -- ...
#   link 1 down
# shellcheck shell=bash
host_count=$1 host_network=$2
skip() {
  echo "SKIPPED: hosts as network namespaces: $1"
  exit 77
}
[ "$(id -u)" -eq 0 ] || skip "this is not root"
for tool in ip tc unshare mpirun; do command -v $tool >/dev/null || skip "there is no $tool"; done
name=ddp-$$
folder=${folder:-$(mktemp -d)}
remove_hosts() {
  local host
  for ((host = 0; host < host_count; host++)); do ip netns del "$name-$host" 2>/dev/null; done
  ip netns del "$name-bridge" 2>/dev/null
  rm -rf "$folder"
}
trap remove_hosts EXIT
# inside HOST COMMAND...: in its network.
inside() { ip netns exec "$name-$1" "${@:2}"; }
# on_host HOST COMMAND...: also with its name.
on_host() {
  local host=$1
  shift
  # shellcheck disable=SC2016  # expanded by the inner shell
  inside "$host" unshare --uts sh -c 'hostname "$0"; exec "$@"' "host$host" "$@"
}
link() { inside bridge ip link set "v$1" "$2"; }

ip netns add "$name-bridge" 2>"$folder/err" || skip "$(cat "$folder/err")"
inside bridge ip link add br0 type bridge 2>"$folder/err" || skip "$(cat "$folder/err")"
inside bridge ip link set br0 up
for ((host = 0; host < host_count; host++)); do
  ip netns add "$name-$host"
  ip link add eth0 netns "$name-$host" type veth peer name "v$host" netns "$name-bridge"
  link $host up
  inside bridge ip link set "v$host" master br0
  inside $host ip link set lo up
  inside $host ip addr add "$host_network.1$host/24" dev eth0
  inside $host ip link set eth0 up
done
# link_up HOST: its link is up again, and used: a connection is refused at once.
link_up() {
  local i
  link "$1" up
  for ((i = 0; i < 30; i++)); do
    if inside 0 timeout 1 bash -c ": </dev/tcp/$host_network.1$1/9" 2>&1 | grep -q refused; then return; fi
  done
}

# Replaces ssh: HOST COMMAND...; a host with the file down-HOST does not answer.
cat >"$folder/rsh" <<RSH
#!/usr/bin/env bash
host=\${1##*.1}
shift
[ ! -e $folder/down-\$host ] || exit 255
exec ip netns exec $name-\$host unshare --uts sh -c 'hostname host'\$host'; exec sh -c "\$0"' "\$*"
RSH
chmod +x "$folder/rsh"
export OMPI_MCA_plm_rsh_agent=$folder/rsh OMPI_MCA_plm=rsh
