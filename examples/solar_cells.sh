#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The solar cells of ./quickstart with a longer recipe: larger pictures, more augmentation, label smoothing, averaged
# weights, 150 epochs. Run ./quickstart first: it builds, and fetches the pictures. The README has what this reaches.
#   examples/solar_cells.sh [SEED]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seed=${1:-1}
[[ -s build/quickstart/cells.csv ]] || { echo "Run ./quickstart first" >&2; exit 2; }
# A cell looks the same from all sides, so it may be turned and mirrored; how bright it is matters, so there is little
# jitter. Probabilities of 1/3 and 2/3 were annotators who were not sure, for which label smoothing stands.
exec build/release/cli/cairn train --data build/quickstart/cells.csv --split 0.75 --split-seed 1 --seed "$seed" \
  --model resnet18 --width 0.25 --epochs 150 --batch 32 \
  --optimizer adamw:lr=0.002,weight_decay=0.05 --ema 0.998 --smoothing 0.05 \
  --transform grey,resize=160,hflip,vflip,rot90,affine=2:0.02:0.97-1.03,jitter=0.05:0.05:0,normalize=0.5:0.25 \
  --out "build/quickstart/long-$seed"
