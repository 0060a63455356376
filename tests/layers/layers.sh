#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes point down only: a folder may include itself and what stands before it in `order`. Folders on one
# line stand side by side and may not include each other. Unit tests and their helpers (*_test.cpp, *testing.h,
# *_test.h, test_*.h) may look anywhere.
#   layers.sh SOURCE_DIR
cd "$1" || exit 2

order='base
core
ops
ir
autodiff
passes
runtime
backends
inspect
data nn
models
train
convert
serve
cli'

# Which layer a public header belongs to. cairn/cairn.h stands for all and is for users alone.
public='error=base dtype=core shape=core tensor=core safetensors=core
variable=ops ops=ops extend/op=ops extend/params=ops
graph=ir autodiff=autodiff data=data nn=nn models=models
loss=train optim=train train=train onnx=convert serve=serve cairn=cli'

# Exceptions, "file include reason": none.
allowed=''

find src cli include -name '*.h' -o -name '*.cpp' -o -name '*.inc' | sort |
  grep -vE "(_test\.cpp|testing\.h|_test\.h|/test_[a-z_]*\.h)$" |
  xargs awk -v order="$order" -v public="$public" -v allowed="$allowed" '
    BEGIN {
      n = split(order, lines, "\n")
      for (i = 1; i <= n; ++i) {
        m = split(lines[i], names, " ")
        for (j = 1; j <= m; ++j) rank[names[j]] = i
      }
      n = split(public, pairs, /[ \n]+/)
      for (i = 1; i <= n; ++i) { split(pairs[i], p, "="); layer["cairn/" p[1] ".h"] = p[2] }
      n = split(allowed, lines, "\n")
      for (i = 1; i <= n; ++i) { split(lines[i], p, " "); exception[p[1] " " p[2]] = 1 }
    }
    function complain(what) { printf "layers: %s:%d: %s\n", FILENAME, FNR, what; failed = 1 }
    FNR == 1 {
      ++files
      split(FILENAME, path, "/")
      if (path[1] == "src") here = path[2]
      else if (path[1] == "cli") here = "cli"
      else {
        name = FILENAME
        sub(/^include\//, "", name)
        here = layer[name]
      }
      if (!(here in rank)) { complain("stands in no layer that tests/layers knows"); here = ""; }
    }
    here != "" && /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
      header = $0
      sub(/^[^<"]*[<"]/, "", header)
      sub(/[>"].*/, "", header)
      if (header in layer) there = layer[header]
      else if (header ~ /^cairn\//) { complain("includes " header ", a public header that tests/layers does not know"); next }
      else if ($0 ~ /"/ && header ~ /\//) {
        split(header, path, "/")
        there = path[1]
        if (!(there in rank)) next  # a library of others
      } else next
      ++includes
      if (there == here || rank[there] < rank[here] || (FILENAME " " header) in exception) next
      complain(here " may not include " there ": " header)
    }
    END {
      if (files < 100 || includes < 100) { printf "layers: only %d files and %d includes found\n", files, includes; failed = 1 }
      if (!failed) printf "layers: %d includes of %d files point down\n", includes, files
      exit failed
    }'
