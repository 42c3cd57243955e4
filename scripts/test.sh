#!/usr/bin/env bash
# Sets up, builds and tests: what a change has to pass. Needs no terminal and asks nothing.
# usage: scripts/test.sh [--fast] [--preset NAME]
#   --fast         only the tests with label fast, which take less than a minute
#   --preset NAME  one of CMakePresets.json (default: release)
# Tests with label long are left out; run them with: ctest --test-dir build/release -L long
set -euo pipefail

usage() { sed -n '3,5s/^# //p' "$0"; }

preset=release
labels=(fast full)
while [ $# -gt 0 ]; do
  case $1 in
    --fast) labels=(fast) ;;
    --preset) [ $# -ge 2 ] || { usage >&2; exit 2; }; preset=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    *) printf 'test: unknown argument %s\n' "$1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/bootstrap.sh

# What is named in the environment counts now, whatever an earlier configuration remembers.
named=()
for name in TEMPO_PYTHON TEMPO_LIBTORCH TEMPO_CUDA_HOME; do
  [ -z "${!name:-}" ] || named+=("-D$name=${!name}")
done
cmake --preset "$preset" "${named[@]}"
cmake --build --preset "$preset"

# One line of ctest's per label closes its run. All labels run, so that one call shows every failure.
status=0
for label in "${labels[@]}"; do
  printf '\ntest: label %s\n' "$label"
  ctest --test-dir "build/$preset" --label-regex "^$label\$" --label-exclude '^long$' --parallel "$(nproc)" \
    --output-on-failure --no-tests=error || status=1
done
exit "$status"
