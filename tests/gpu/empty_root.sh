#!/usr/bin/env bash
# empty_root.sh ROOT FOLDER COMMAND...: runs COMMAND in a root folder that holds a C library, bash, the usual small tools and
# Python, and nothing else of this machine; FOLDER is mounted there as /bundle. Requires root. ROOT is an empty folder.
set -euo pipefail
if [ "${1:-}" != --mounted ]; then exec unshare -m "$0" --mounted "$@"; fi
root=$2 folder=$3
shift 3
mount --make-rprivate /
mount -t tmpfs none "$root"
mkdir -p "$root"/{bundle,dev,proc,sys,tmp,usr/bin,usr/lib,usr/lib64,usr/sbin,etc,root}
for name in bin lib lib64 sbin; do ln -s "usr/$name" "$root/$name"; done
for name in dev proc sys; do mount --rbind "/$name" "$root/$name"; done
mount --rbind "$folder" "$root/bundle"

# add FILE...: programs and libraries with the libraries that they load, at their own paths.
add() {
  local file
  for file in "$@"; do
    install -D "$(readlink -f "$file")" "$root$file"
    ldd "$file" 2>/dev/null | grep -o '/[^ )]*' || true
  done | sort -u | while read -r file; do
    [ -e "$root$file" ] || install -D "$(readlink -f "$file")" "$root$file"
  done
}
tools=(awk basename bash cat chmod cmp cp cut date df dirname du env find grep head hostname id install kill ldd ln ls mkdir mktemp mv
  nproc printf readlink realpath rm sed seq setsid sh sleep sort stat tail tar tee timeout touch tr true uname uniq wc xargs)
for tool in "${tools[@]}"; do
  path=$(type -P "$tool")
  add "$path"
  [ "$path" = "/usr/bin/$tool" ] || ln -sf "$path" "$root/usr/bin/$tool"
done
# Python's standard library, without installed packages, and without tkinter, which would add libpng.
shopt -s extglob
read -r python library < <(python3 -c 'import os, sys; print(os.path.realpath(sys.executable), os.path.dirname(os.__file__))')
add "$python" "$library"/lib-dynload/!(_tkinter*).so
ln -sf "$python" "$root/usr/bin/python3"
mkdir -p "$root$library"
mount --bind "$library" "$root$library"
for packages in site-packages dist-packages; do
  [ ! -d "$root$library/$packages" ] || mount -t tmpfs none "$root$library/$packages"
done
printf 'root:x:0:0:root:/root:/bin/bash\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
printf '127.0.0.1 localhost %s\n' "$(hostname)" >"$root/etc/hosts"
exec chroot "$root" env -i PATH=/usr/bin HOME=/root TMPDIR=/tmp "$@"
