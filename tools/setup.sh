#!/usr/bin/env bash
# Install this package (editable) with the given extras into $VENV: tools/setup.sh bench,dev
# Does nothing when that was done before with the same pyproject.toml and constraints. Options: see Makefile.
set -euo pipefail
cd "$(dirname "$0")/.."
extras=$1
venv=${VENV:-.venv}

say() { printf '[setup] %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
is_usable() { is_new_enough "$venv/bin/python" && "$venv/bin/python" -c 'import pip' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if is_new_enough "$candidate"; then command -v "$candidate"; return; fi
  done
  fail "Python 3.11 or newer is needed; looked for: ${PYTHON:-python3, python3.14 down to 3.11}. Try PYTHON=/path/to/python3."
}

# .venv is rebuilt when it is broken or was made with other options, if it is ours. Any other environment is the user's.
make_own_venv() {
  local options="${PYTHON:-} ${VENV_FLAGS:-}" made_with
  made_with=$(cat "$venv/.aisp-options" 2>/dev/null || true)
  if is_usable && { [ "$options" = " " ] || [ "$options" = "$made_with" ]; }; then return; fi
  if [ -e "$venv" ] && [ ! -e "$venv/.aisp-options" ]; then
    fail "$venv was not made by this script and cannot be used as it is: remove it, or name another one with VENV=DIR"
  fi
  local python
  python=$(find_python)
  say "making $venv with $python ${VENV_FLAGS:-}"
  rm -rf "$venv"
  mkdir "$venv"
  touch "$venv/.aisp-options" # ours from here on, also when interrupted
  # shellcheck disable=SC2086 # the flags are words
  "$python" -m venv ${VENV_FLAGS:-} "$venv" || fail "python -m venv failed; Debian and Ubuntu: apt install python3-venv"
  printf '%s' "$options" >"$venv/.aisp-options"
}

has_nvidia_driver() { command -v nvidia-smi >/dev/null || [ -e /dev/nvidiactl ] || [ -e /proc/driver/nvidia ]; }
# Without a driver, PyTorch's own index has builds of 0.2 GB; the usual one has several GB of CUDA libraries.
cpu_index=https://download.pytorch.org/whl/cpu
answers() { "$venv/bin/python" -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=5)' "$1" 2>/dev/null; }
has_torch() { "$venv/bin/python" -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; }

if [ "$venv" = .venv ]; then make_own_venv; else is_usable || fail "no Python 3.11 or newer with pip in VENV=$venv"; fi

expected="$PWD $(cat pyproject.toml constraints/cpu.txt tools/setup.sh | cksum)"
stamp="$venv/.aisp-installed-${extras//,/-}"
if [ "$(cat "$stamp" 2>/dev/null)" = "$expected" ]; then exit 0; fi

arguments=(--disable-pip-version-check --editable ".[$extras]")
if [ ! -t 2 ]; then arguments+=(-qq); fi
index=${TORCH_INDEX:-}
if has_torch; then
  say "keeping the torch that is already installed"
elif has_nvidia_driver; then
  say "NVIDIA driver found: torch as the package index serves it by default"
else
  # "torch==X" also matches a "+cpu" build of X, and pip prefers that one wherever an index or a wheel folder has it.
  if [ -z "$index" ]; then if answers "$cpu_index/"; then index=$cpu_index; else index=none; fi; fi
  say "no NVIDIA driver found: a CPU build of torch, 0.4 GB in all, if an index has one (TORCH_INDEX=$index)"
  arguments+=(--constraint constraints/cpu.txt)
fi
if [ -n "$index" ] && [ "$index" != none ]; then arguments+=(--extra-index-url "$index"); fi
say "installing the package with extras $extras"
"$venv/bin/python" -m pip install "${arguments[@]}"
printf '%s' "$expected" >"$stamp"
