#!/usr/bin/env bash
# Tests launch/get-data with a local web server and small files instead of the real ones.
#
#   get_data_test.sh path/to/get-data
set -uo pipefail

script=$(realpath "$1")
here=$(mktemp -d)
server=
cleanup() {
  [[ -z $server ]] || kill "$server" 2>/dev/null
  rm -rf "$here"
}
trap cleanup EXIT

for needed in perl curl wget md5sum; do
  command -v "$needed" >/dev/null || {
    echo "skipped: $needed is not installed"
    exit 77
  }
done

failures=0
broken() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

# run CODE ARGUMENTS...: runs the script under test and expects this exit code; sets $output to its output.
run() {
  local expected=$1 code=0
  shift
  output=$("$tested" "$@" 2>&1) || code=$?
  [[ $code -eq $expected ]] || broken "exit code $code, not $expected, of: get-data $*"$'\n'"$output"
}
says() { [[ $output == *"$1"* ]] || broken "'$1' is not in: $output"; }
one_line() { [[ $(wc -l <<<"$output") -eq 1 ]] || broken "not one line: $output"; }
# holds FOLDER COUNT: the folder contains this many files and no partial ones.
holds() {
  local count
  count=$(find "$1" -type f 2>/dev/null | wc -l)
  [[ $count -eq $2 ]] || broken "$1 contains $count files, not $2: $(ls -A "$1")"
  [[ -z $(find "$1" -name '*.part*' 2>/dev/null) ]] || broken "partial files in $1: $(ls -A "$1")"
}
# await COMMAND...: retries it for up to 30 s.
await() {
  for _ in $(seq 600); do
    "$@" && return 0
    sleep 0.05
  done
  return 1
}

# --- The web server: it serves /whole/..., aborts in the middle of /short/..., and hangs in the middle of /hang/....
cat >"$here/server.pl" <<'PERL'
use strict;
use IO::Socket::INET;
my ($root, $log) = @ARGV;
$SIG{CHLD} = 'IGNORE';
$SIG{PIPE} = 'IGNORE';
my $listener = IO::Socket::INET->new(Listen => 16, LocalAddr => '127.0.0.1', Proto => 'tcp') or die "no socket: $!";
$| = 1;
print $listener->sockport, "\n";
while (my $client = $listener->accept) {
  next if fork;
  my ($manner, $path) = <$client> =~ m{^GET /(whole|short|hang)/(\S+)};
  while (my $line = <$client>) { last if $line =~ /^\r?$/ }
  open my $entry, '>>', $log; print $entry "$path\n"; close $entry;
  if ($path !~ /\.\./ && open my $file, '<:raw', "$root/$path") {
    my $body = do { local $/; <$file> };
    print $client "HTTP/1.0 200 OK\r\nContent-Length: " . length($body) . "\r\nConnection: close\r\n\r\n";
    print $client $manner eq 'whole' ? $body : substr($body, 0, length($body) / 2);
    $client->flush;
    <$client> if $manner eq 'hang';
  } else {
    print $client "HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  }
  exit 0;
}
PERL
perl "$here/server.pl" "$here/site" "$here/requests" >"$here/port" 2>"$here/server.log" &
server=$!
await test -s "$here/port" || { echo "FAILED: the web server does not start: $(<"$here/server.log")" >&2; exit 1; }
base=http://127.0.0.1:$(<"$here/port")
requests() { wc -l 2>/dev/null <"$here/requests" || echo 0; }

# --- Small files for the site, and a copy of the script with their checksums.
mapfile -t published < <(grep -E '^[0-9a-f]{32} ' "$script")
[[ ${#published[@]} -eq 10 ]] || broken "${#published[@]} published checksums, not 10"
substitutions=()
for i in "${!published[@]}"; do
  name=mnist
  [[ $i -lt 4 ]] || name=fashion-mnist
  [[ $i -lt 8 ]] || name=cifar10
  [[ $i -lt 9 ]] || name=cifar100
  read -r _ file unpacked <<<"${published[i]}"
  file=$here/site/$name/$file
  mkdir -p "$(dirname "$file")"
  if [[ $file == *.tar.gz ]]; then
    mkdir "$here/$unpacked"
    for part in data_batch_1 test_batch; do head -c 3073 /dev/zero >"$here/$unpacked/$part.bin"; done
    tar -C "$here" -czf "$file" "$unpacked"
  else
    head -c $((20000 + i)) /dev/urandom >"$file"
  fi
  sum=$(md5sum <"$file")
  substitutions+=(-e "s/^${published[i]%% *} /${sum%% *} /")
done
sed "${substitutions[@]}" "$script" >"$here/get-data"
chmod +x "$here/get-data"

# Tool folders with only curl, only wget, or neither.
tools() {
  mkdir -p "$here/tools-$1"
  for tool in bash env md5sum tar gzip mktemp mv ln cmp rm mkdir chmod dirname basename tail cat sleep ${2:-}; do
    ln -sf "$(command -v "$tool")" "$here/tools-$1/$tool"
  done
}
tools curl curl
tools wget wget
tools none
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY

for downloader in curl wget; do
  tested=$here/get-data
  data=$here/data-$downloader
  in_tools() { PATH=$here/tools-$downloader run "$@"; }

  export DDP_DATA_MIRROR=$base/whole
  for name in mnist fashion-mnist; do
    in_tools 0 "$name" "$data"
    says "$name is complete in $data/$name"
    holds "$data/$name" 4
    cmp -s "$here/site/$name/t10k-labels-idx1-ubyte.gz" "$data/$name/t10k-labels-idx1-ubyte.gz" || broken "wrong contents"
  done

  # An archive is unpacked, and again if a file is missing.
  for _ in once again; do
    in_tools 0 cifar10 "$data"
    holds "$data/cifar10" 3
    cmp -s "$here/cifar-10-batches-bin/test_batch.bin" "$data/cifar10/cifar-10-batches-bin/test_batch.bin" ||
      broken "the archive was not unpacked"
    rm "$data/cifar10/cifar-10-batches-bin/data_batch_1.bin"
  done

  # Existing valid files are not downloaded again; other existing files, perhaps the user's own, are not changed.
  before=$(requests)
  in_tools 0 mnist "$data"
  says "there already"
  [[ $(requests) -eq $before ]] || broken "valid files were downloaded again"
  echo mine >"$data/mnist/train-labels-idx1-ubyte.gz"
  in_tools 4 mnist "$data"
  says "$data/mnist/train-labels-idx1-ubyte.gz exists but is not the published file"
  [[ $(requests) -eq $before ]] || broken "a file was downloaded over another"
  [[ $(<"$data/mnist/train-labels-idx1-ubyte.gz") == mine ]] || broken "a file was overwritten"
  echo mine >"$data/cifar10/cifar-10-batches-bin/test_batch.bin"
  in_tools 4 cifar10 "$data"
  says "test_batch.bin exists but differs from the one in"
  [[ $(<"$data/cifar10/cifar-10-batches-bin/test_batch.bin") == mine ]] || broken "an unpacked file was overwritten"
  holds "$data/cifar10" 3
  rm "$data/mnist/train-labels-idx1-ubyte.gz"
  in_tools 0 mnist "$data"
  cmp -s "$here/site/mnist/train-labels-idx1-ubyte.gz" "$data/mnist/train-labels-idx1-ubyte.gz" || broken "not downloaded"

  # An aborted transfer leaves no partial file and does not change existing ones.
  export DDP_DATA_MIRROR=$base/short
  in_tools 4 mnist "$here/short-$downloader"
  one_line
  says "cannot download $base/short/mnist/train-images-idx3-ubyte.gz"
  holds "$here/short-$downloader" 0
  rm "$data/mnist/train-labels-idx1-ubyte.gz"
  in_tools 4 mnist "$data"
  holds "$data/mnist" 3

  # A file that does not exist on the site.
  export DDP_DATA_MIRROR=$base/whole/elsewhere
  in_tools 4 mnist "$here/missing-$downloader"
  one_line
  says "404"
  holds "$here/missing-$downloader" 0

  # No server: nothing listens on port 1.
  export DDP_DATA_MIRROR=http://127.0.0.1:1
  in_tools 4 fashion-mnist "$here/nobody-$downloader"
  one_line
  says "check the network"
  holds "$here/nobody-$downloader" 0

  # These files do not match the published checksums.
  tested=$script
  export DDP_DATA_MIRROR=$base/whole
  in_tools 4 mnist "$here/wrong-$downloader"
  one_line
  says "MD5"
  says "f68b3c2dcbeaaa9fbdd348bbdeb94873"
  holds "$here/wrong-$downloader" 0
done

# --- Stopped in the middle of a transfer, it leaves no partial file.
export DDP_DATA_MIRROR=$base/hang
setsid "$here/get-data" mnist "$here/stopped" 2>/dev/null &
running=$!
half_file_is_there() { find "$here/stopped" -name '*.part*' -size +0 2>/dev/null | grep -q .; }
await half_file_is_there || broken "the transfer did not start"
kill -TERM -- "-$running"
wait "$running"
[[ $? -eq 143 ]] || broken "the stopped script did not exit with 143"
holds "$here/stopped" 0

# --- Usage, missing tools, a folder that cannot be written.
tested=$script
run 2
says "usage:"
run 2 mnist a b
run 2 mnits
one_line
says "available: mnist, fashion-mnist, cifar10"
PATH=$here/tools-none run 3 mnist "$here/none"
one_line
says "curl or wget"
touch "$here/occupied"
run 4 mnist "$here/occupied"
one_line
says "cannot create the folder"

[[ $failures -eq 0 ]] || { echo "$failures checks failed" >&2; exit 1; }
echo "all checks passed"
