#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The trail says the same in three places: cli/trail_table.h, docs/trail.md and the first comment line of each
# marker (its .h, or its .cpp where there is no header). Markers exist, and stand in one order.
#   trail.sh SOURCE_DIR
cd "$1" || exit 2
failed=0
complain() { printf 'trail: %s\n' "$*"; failed=1; }

work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

# number|file|in|out
sed -n 's/^ *{"\([^"]*\)", *"\([^"]*\)", *"\([^"]*\)"},.*/\1|\2|\3/p' cli/trail_table.h |
  awk '{ print NR "|" $0 }' >"$work/table"
# | 1 | `src/data/source` | in | out | what happens, and what is next |
awk -F' *[|] *' '/^[|] *[0-9]+ *[|]/ { gsub(/`/, "", $3); print $2 "|" $3 "|" $4 "|" $5 }' docs/trail.md >"$work/page"

[ -s "$work/table" ] || complain "no rows were found in cli/trail_table.h"
# As many rows as the table declares: one that the pattern above does not see must not go unchecked.
braces=$(grep -c '^ *{' cli/trail_table.h)
rows=$(wc -l <"$work/table")
[ "$rows" -eq "$braces" ] || complain "cli/trail_table.h has $braces rows, of which $rows can be read"
if ! diff -u "$work/table" "$work/page" >"$work/diff"; then
  complain "cli/trail_table.h (-) and docs/trail.md (+) differ:"
  sed -n '3,$p' "$work/diff"
fi

lower() { printf '%s' "$1" | tr '[:upper:]' '[:lower:]'; }

while IFS='|' read -r _ marker in out; do
  file=$marker.h
  [ -f "$file" ] || file=$marker.cpp
  if [ ! -f "$file" ]; then
    complain "$marker: neither .h nor .cpp exists"
    continue
  fi
  first=$(sed -n '/^\/\/ SPDX/!{p;q;}' "$file")
  case $(lower "$first") in
    "// "*"$(lower "$in → $out")"*) ;;
    *) complain "$file: the first line does not say \"$in → $out\": $first" ;;
  esac
done <"$work/table"

[ $failed -eq 0 ] && printf 'trail: %s markers agree\n' "$rows"
exit $failed
