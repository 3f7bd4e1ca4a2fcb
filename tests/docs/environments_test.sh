#!/usr/bin/env bash
# environments_test.sh ROOT: launch/environment.yml and launch/spack.yaml must list every build dependency in
# launch/packages, except MPI in the conda environment, which comes from the cluster.
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
  case $purpose in tools | build | onnx) ;; *) continue ;; esac
  case $key in mpirun | MPI) ;; *) require environment.yml "$conda" ;; esac
  case $spack in gcc) ;; *) require spack.yaml "$spack" ;; esac
done < <(grep -v '^#' packages)
[ "$failures" -eq 0 ]
