#!/usr/bin/env bash
# Installs what tempo is built and tested with. Run it again at any time: what is there already is left alone.
#   1. Debian packages (the list below); only this needs root, and only when one is missing.
#   2. One Python environment of pinned wheels in ${XDG_CACHE_HOME:-~/.cache}/tempo/<hash of scripts/requirements.txt>:
#      LibTorch, the CUDA compiler, and the oracles of the tests. An environment without its COMPLETE file is made anew.
# To use your own instead, set for this script and for cmake:
#   TEMPO_PYTHON=FILE     a Python interpreter that has torch; no environment is made
#   TEMPO_LIBTORCH=DIR    a LibTorch (DIR/include, DIR/lib); no environment is made, and tests in Python need TEMPO_PYTHON
#   TEMPO_CUDA_HOME=DIR   a CUDA 13 tool kit (DIR/bin/nvcc)
#   TEMPO_SKIP_PACKAGES=1 do not look for Debian packages (on another system, once their equivalents are installed)
set -euo pipefail
unset PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX

packages=(g++ cmake ninja-build git ca-certificates python3-venv
  libhdf5-dev libspdlog-dev libcli11-dev libyaml-cpp-dev nlohmann-json3-dev libprotozero-dev
  libicu-dev libtbb-dev zlib1g-dev libssl-dev libboost-dev libboost-context-dev libgmock-dev libbenchmark-dev)

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=$here/requirements.txt

say() { printf 'bootstrap: %s\n' "$*"; }
fail() { printf 'bootstrap: %s\n' "$@" >&2; exit 1; }

# The interpreter that the environment is made with: the system's, which python3-venv belongs to, before any other.
system_python() {
  if [ -x /usr/bin/python3 ]; then echo /usr/bin/python3; else command -v python3; fi
}

# Commands may come from anywhere; libraries are looked for as Debian packages.
is_installed() {
  case $1 in
    g++ | cmake | git) command -v "$1" >/dev/null ;;
    ninja-build) command -v ninja >/dev/null ;;
    python3-venv) local python; python=$(system_python) && "$python" -c 'import ensurepip, venv' 2>/dev/null ;;
    *) [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ] ;;
  esac
}

install_packages() {
  [ -z "${TEMPO_SKIP_PACKAGES:-}" ] || { say "Debian packages: not looked for (TEMPO_SKIP_PACKAGES)"; return; }
  command -v dpkg-query >/dev/null || fail "this is not a Debian system. Install what these Debian packages hold:" \
    "  ${packages[*]}" "then run it again with TEMPO_SKIP_PACKAGES=1."
  local missing=() package as_root=()
  for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || { say "Debian packages: all there"; return; }
  if [ "$(id -u)" -ne 0 ]; then
    if sudo -n true 2>/dev/null; then as_root=(sudo -n); else as_root=(false); fi
  fi
  if [ "${as_root[*]}" = false ] || ! command -v apt-get >/dev/null; then
    fail "Debian packages are missing, and installing them needs apt-get and root. Run as root:" \
      "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" "then run it again."
  fi
  say "Debian packages: installing ${missing[*]}"
  local started=$SECONDS
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "${missing[@]}" >/dev/null </dev/null
  say "Debian packages: installed in $((SECONDS - started)) s"
}

pinned_torch() { sed -n 's/^torch==//p' "$requirements"; }

# Sets torch_version to what interpreter $1 imports, without the build's suffix (2.11.0+cu130 is 2.11.0).
check_torch() {
  torch_version=$("$1" -c 'import torch; print(torch.__version__.split("+")[0])') ||
    fail "$1 cannot import torch (above is why). It needs torch $(pinned_torch)."
  [ "$torch_version" = "$(pinned_torch)" ] ||
    fail "$1 has torch $torch_version; tempo is built with torch $(pinned_torch)."
}

# FindCUDAToolkit and nvcc look for lib64 and for libraries without a version; the wheels have neither.
link_cuda_libraries() {
  local home library
  for home in "$1"/lib/python3*/site-packages/nvidia/cu13; do
    ln -sfn lib "$home/lib64"
    for library in "$home"/lib/lib*.so.*; do
      ln -sf "$(basename "$library")" "${library%%.so.*}.so"
    done
  done
}

is_complete() { [ -f "$1/COMPLETE" ] && "$1/bin/python" -c '' 2>/dev/null; }

make_environment() {
  local environment=$1 started=$SECONDS
  say "Python environment: making $environment (some 5 GB; minutes, most of them downloads)"
  rm -rf "$environment"
  "$(system_python)" -m venv "$environment"
  mkdir "$environment/tmp"  # what a killed pip leaves behind goes with the environment
  TMPDIR="$environment/tmp" "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    --no-deps --requirement "$requirements" || fail "installing the Python packages failed (above is why); run it again."
  rm -rf "$environment/tmp"
  link_cuda_libraries "$environment"
  "$environment/bin/python" -c 'import torch, numpy, h5py, safetensors, transformers, tokenizers, pytest' ||
    fail "the Python environment does not work; is scripts/requirements.txt complete?"
  touch "$environment/COMPLETE"
  say "Python environment: made in $((SECONDS - started)) s"
}

# One process makes an environment, others wait. Children hold the lock too, so a pip left behind by a killed bootstrap
# ends before the next one starts anew.
ensure_environment() {
  local cache=${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/tempo hash
  hash=$(sha256sum "$requirements" | cut -c1-12)
  local environment=$cache/$hash
  if ! is_complete "$environment"; then
    mkdir -p "$cache"
    exec 9>"$cache/$hash.lock"
    flock -n 9 || { say "Python environment: another bootstrap is making it; waiting"; flock 9; }
    is_complete "$environment" || make_environment "$environment"
    exec 9>&-
  fi
  say "Python environment: $environment"
}

check_libtorch() {
  local header=$TEMPO_LIBTORCH/include/torch/headeronly/version.h version=
  [ ! -f "$header" ] || version=$(sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' "$header" | paste -sd.)
  [ -n "$version" ] || fail "TEMPO_LIBTORCH=$TEMPO_LIBTORCH holds no LibTorch (include/torch/headeronly/version.h)."
  [ "$version" = "$(pinned_torch)" ] ||
    fail "TEMPO_LIBTORCH=$TEMPO_LIBTORCH is LibTorch $version; tempo is built with $(pinned_torch)."
  say "LibTorch: yours, $TEMPO_LIBTORCH"
}

prepare_torch() {
  [ -z "${TEMPO_LIBTORCH:-}" ] || check_libtorch
  if [ -n "${TEMPO_PYTHON:-}" ]; then
    check_torch "$TEMPO_PYTHON"
    say "Python environment: yours, $TEMPO_PYTHON with torch $torch_version"
  elif [ -n "${TEMPO_LIBTORCH:-}" ]; then
    say "Python environment: none made; tests in Python need TEMPO_PYTHON"
  else
    ensure_environment
  fi
}

check_cuda() {
  [ -n "${TEMPO_CUDA_HOME:-}" ] || return 0
  local release
  release=$("$TEMPO_CUDA_HOME/bin/nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p') || true
  case $release in
    13.*) say "CUDA: yours, $TEMPO_CUDA_HOME with $release" ;;
    *) fail "TEMPO_CUDA_HOME=$TEMPO_CUDA_HOME holds ${release:+CUDA }${release:-no bin/nvcc}; tempo is built with CUDA 13." ;;
  esac
}

install_packages
prepare_torch
check_cuda
say "done; build with: cmake --preset release && cmake --build --preset release"
