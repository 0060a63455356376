#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts oneDNN's headers, library and CMake files into .deps/onednn (see cmake/onednn.txt).
# Does nothing when they are there; a half-done attempt leaves nothing behind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

wanted=$(sha256sum <cmake/onednn.txt)
if [[ -e .deps/onednn/lib/libdnnl.so.3.2 && $(cat .deps/onednn/from 2>/dev/null) == "$wanted" ]]; then
  exit 0
fi
if [[ $(uname -m) != x86_64 ]]; then
  echo "The oneDNN wheel is for x86-64; this machine is $(uname -m)." >&2
  echo "Install oneDNN 3.2 or newer yourself and pass its folder as CMAKE_PREFIX_PATH." >&2
  exit 1
fi

source cmake/python.sh
mkdir -p .deps
temporary=$(mktemp -d .deps/onednn.XXXXXX)
trap 'rm -rf "$temporary"' EXIT

echo "downloading the oneDNN wheels (39 MB) from the Python package index"
pip_download "$temporary/wheels" --require-hashes -r cmake/onednn.txt

# A wheel is a zip; its "data" folder is the tree to install. It holds the library three times over:
# keep the file and make the other two links.
"$python" - "$temporary" <<'PYTHON'
import os, pathlib, sys, zipfile
top = pathlib.Path(sys.argv[1])
for wheel in (top / "wheels").glob("*.whl"):
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            inside = name.partition(".data/data/")[2]
            if not inside.startswith(("include/", "lib/cmake/", "lib/libdnnl.so.3.2", "share/doc/")):
                continue
            out = top / "onednn" / inside
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_bytes(z.read(name))
lib = top / "onednn" / "lib"
(lib / "libdnnl.so.3.2").chmod(0o755)
os.symlink("libdnnl.so.3.2", lib / "libdnnl.so.3")
os.symlink("libdnnl.so.3", lib / "libdnnl.so")
PYTHON
echo "$wanted" >"$temporary/onednn/from"

rm -rf .deps/onednn
mv "$temporary/onednn" .deps/onednn
chmod 755 .deps/onednn
echo "oneDNN is in .deps/onednn"
