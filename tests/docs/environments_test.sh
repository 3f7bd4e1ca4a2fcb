#!/usr/bin/env bash
# environments_test.sh ROOT: launch/environment.yml and launch/spack.yaml must list every build dependency in
# launch/packages, except MPI in the conda environment, which comes from the cluster; and launch/packages must have a row for
# everything that CMakeLists.txt searches for.
set -euo pipefail
cd "$1/launch"
failures=0
require() { # FILE PACKAGES, separated by commas
  local package
  for package in ${2//,/ }; do
    grep -qE "^ +- ${package//+/\\+}([>=@].*)?\$" "$1" || {
      echo "launch/$1 lacks $package of launch/packages"
      failures=$((failures + 1))
    }
  done
}
while read -r key purpose _ _ conda spack; do
  case $purpose in tools | build | onnx | images) ;; *) continue ;; esac
  case $key in mpirun | MPI) ;; *) require environment.yml "$conda" ;; esac
  case $spack in gcc) ;; *) require spack.yaml "$spack" ;; esac
done < <(grep -v '^#' packages)
# Every find_package() is followed by the ddp_need() that reports it; Threads are part of the C library.
while read -r kind name; do
  case $kind in
  unreported) echo "CMakeLists.txt: no ddp_need() after find_package($name)" ;;
  key) ! grep -qE "^$name +(build|onnx|tests) " packages || continue && echo "launch/packages lacks $name of CMakeLists.txt" ;;
  esac
  failures=$((failures + 1))
done < <(awk -F '[( )]+' '
  { sub(/^ +/, "") }
  /^find_package\(/ && !/REQUIRED/ { if (pending != "") print "unreported", pending; pending = $2 }
  /^ddp_need\(/ { print "key", $2; pending = "" }
  END { if (pending != "") print "unreported", pending }' ../CMakeLists.txt)
[ "$failures" -eq 0 ]
