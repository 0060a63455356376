# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For ./check and ./quickstart to source: shows steps, installs what is missing, configures, builds.
# Each step writes build/log/<name>.log and shows how far it is; one that fails shows the log's end.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build/log
jobs=$(nproc)
running=  # the process group of the step under way
trap '[[ -z $running ]] || kill -- -"$running" 2>/dev/null; exit 130' INT TERM

say() { printf '%s\n' "$@"; }

# step NAME "What it does" COMMAND...
step() {
  local what=$2 log=build/log/$1.log began=$SECONDS shown=$SECONDS status=0 last
  shift 2
  set -m  # a process group of its own, so that Ctrl-C can end all of it
  "$@" >"$log" 2>&1 </dev/null &
  running=$!
  set +m
  [[ -t 1 ]] || say "$what ..."
  while kill -0 "$running" 2>/dev/null; do
    last=$(tail -c 400 "$log" | tr '\r' '\n' | grep -v '^\s*$' | tail -n 1 | cut -c 1-70) || true
    if [[ -t 1 ]]; then
      printf '\r\033[K%s ... %d s  %s' "$what" $((SECONDS - began)) "$last"
    elif ((SECONDS - shown >= 20)); then
      shown=$SECONDS
      say "  $((SECONDS - began)) s: $last"
    fi
    sleep 0.3
  done
  wait "$running" || status=$?
  running=
  [[ -t 1 ]] && printf '\r\033[K%s ... ' "$what" || printf '  '
  if ((status == 0)); then
    say "done in $((SECONDS - began)) s"
    return
  fi
  say "failed with exit code $status. The end of $log:"
  tail -n 40 "$log" | sed 's/^/  | /'
  return "$status"
}

# The packages of cmake/packages.txt that are not installed.
missing_packages() {
  local wanted
  mapfile -t wanted < <(sed 's/#.*//; s/ *$//; /^$/d' cmake/packages.txt)
  comm -23 <(printf '%s\n' "${wanted[@]}" | sort) \
    <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null |
      sed -n 's/^installed //p' | sort)
}

apt_install() {
  local root=()
  ((EUID == 0)) || root=(sudo)
  "${root[@]}" apt-get update &&
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y --no-install-recommends "$@"
}

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "This is not a Debian system: the packages of cmake/packages.txt, by whatever name, must be there."
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  if ((EUID != 0)) && ! command -v sudo >/dev/null; then
    say "These Debian packages are missing, and neither root nor sudo is at hand to install them:"
    say "  apt-get install ${missing[*]}"
    return 1
  fi
  ((EUID == 0)) || sudo -v  # asks for the password here, not behind a progress line
  if ! step packages "Installing ${#missing[@]} Debian packages" apt_install "${missing[@]}"; then
    say "apt-get could not install: ${missing[*]}"
    say "Cairn is made for Debian 12; with no network, install them beforehand."
    return 1
  fi
}

# configure [CMAKE ARGUMENT...]: build/release, from nothing if need be. The build of both scripts.
configure() {
  install_packages
  if ! step onednn "Fetching oneDNN (once)" cmake/get_onednn.sh; then
    say "oneDNN comes from the Python package index, which must be within reach the first time."
    return 1
  fi
  step configure "Configuring" cmake --preset release "$@"
}

# build TARGET...
build() {
  if ! step build "Building with $jobs jobs" cmake --build build/release -j "$jobs" --target "$@"; then
    say "All of it is in build/log/build.log; its first error:"
    grep -m 1 -n -E 'error:|FAILED:|undefined reference|No space left|Killed' build/log/build.log || true
    return 1
  fi
}
