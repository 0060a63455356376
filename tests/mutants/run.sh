#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The strength of the tests themselves: breaks one line at a time in a scratch copy and expects a test to fail.
# By name only, since each mutant is a build:  tests/mutants/run.sh [BUILD_DIR] [PATTERN]
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath -m "${1:-$source/build/mutants}")
pattern=${2:-.}
mkdir -p "$build/tree"
# Only what changed is copied, with the time of now: a file brought back to an old time would not be built again.
(cd "$source" && git ls-files) | while IFS= read -r f; do
  cmp -s "$source/$f" "$build/tree/$f" || { mkdir -p "$build/tree/$(dirname "$f")" && cp "$source/$f" "$build/tree/$f"; }
done
[ -e "$build/tree/.deps" ] || ln -s "$source/.deps" "$build/tree/.deps"
cmake -S "$build/tree" -B "$build/out" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCAIRN_CLI=OFF -DCAIRN_EXAMPLES=OFF >"$build/log"
cd "$build/tree"
tests=$(sed -n 's/^[^#].*| *//p' tests/mutants/mutants.txt | sort -u)
echo "building $(echo "$tests" | wc -w) tests"
ninja -C ../out $tests >>"$build/log"
for t in $tests; do "$(find ../out -name "$t" -type f)" >>"$build/log" 2>&1 || { echo "$t fails without a mutant"; exit 2; }; done
caught=0 survived=0
while IFS= read -r line; do
  case $line in '#'* | '') continue ;; esac
  echo "$line" | grep -q "$pattern" || continue
  file=${line%% | *}
  test=${line##* | }
  cp "$file" "$build/kept"
  LINE=$line perl -0pi -e '
    my (undef, $from, $to) = split / \| /, $ENV{LINE};
    s/\Q$from\E/$to/' "$file"
  if cmp -s "$file" "$build/kept"; then echo "STALE     $line"; survived=$((survived + 1)); continue; fi
  verdict=SURVIVED
  if ! ninja -C ../out "$test" >>"$build/log" 2>&1; then verdict="NO BUILD"
  elif ! timeout 600 "$(find ../out -name "$test" -type f)" >>"$build/log" 2>&1; then verdict=caught; fi
  cp "$build/kept" "$file"
  [ "$verdict" = caught ] && caught=$((caught + 1)) || survived=$((survived + 1))
  echo "$verdict    $line"
done <"$source/tests/mutants/mutants.txt"
echo "$caught caught, $survived not"
[ "$survived" = 0 ]
