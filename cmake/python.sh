# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For scripts to source: $python, a Python that has pip, and pip_download. Nothing gets installed
# into Python: Debian forbids that (PEP 668), and a wheel is only a zip to us.

python=
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -m pip --version >/dev/null 2>&1; then
    python=$candidate
    break
  fi
done
if [[ -z $python ]]; then
  echo "No python3 with pip was found. On Debian: apt-get install python3-pip" >&2
  exit 1
fi

# pip_download FOLDER ARGUMENT...: the named wheels, without what they depend on.
pip_download() {
  local folder=$1
  shift
  PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" -m pip download --no-cache-dir --no-deps \
    --only-binary :all: --progress-bar off --timeout 20 --retries 2 --dest "$folder" "$@"
}
