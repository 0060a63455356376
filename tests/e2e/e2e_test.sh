#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The main job end to end on drawn pictures: train, interrupt and resume bit for bit, repeat bit for bit, evaluate,
# predict, serve; bad pictures and bad input.
#   e2e_test.sh CAIRN WORK_DIR
set -eu
cairn=$1 work=$2
rm -rf "$work" && mkdir -p "$work" && cd "$work"
say() { echo "== $*"; }
die() { echo "FAILED: $*" >&2; exit 1; }
expect_code() { # CODE COMMAND...: runs it, checks the exit code, leaves standard error in err.txt
  want=$1; shift
  got=0; "$@" >out.txt 2>err.txt || got=$?
  [ "$got" = "$want" ] || { cat out.txt err.txt; die "exit code $got, expected $want: $*"; }
}
same() { # two files with the same tensors, or the same bytes
  case $1 in
    *.safetensors) "$cairn" debug compare "$1" "$2" >compare.log || { tail -n 5 compare.log; die "$1 and $2 differ"; } ;;
    *) cmp -s "$1" "$2" || die "$1 and $2 differ" ;;
  esac
}
train() { "$cairn" train --data cells --model resnet18 --width 0.125 --imgsz 32 --batch 8 --seed 3 --no-check "$@" >/dev/null 2>train.log || { cat train.log; return 1; }; }

say "draw"
"$cairn" data make --count 64 --size 48 --seed 5 --out cells 2>/dev/null
expect_code 0 "$cairn" data inspect cells --strict

say "the same run twice gives the same bits"
train --epochs 2 --out a
train --epochs 2 --out b
same a/best.safetensors b/best.safetensors
same a/model.onnx b/model.onnx

say "workers do not matter"
train --epochs 2 --workers 0 --out c
same a/best.safetensors c/best.safetensors

# CAIRN_KILLS=20 for more of them. A resumed run may be killed again; what stands in the folder is always whole.
say "killed in the middle and resumed: the same bits, never a broken file"
kills=0
for delay in $(awk -v n="${CAIRN_KILLS:-3}" 'BEGIN { srand(n); for (i = 0; i < n; ++i) printf "%.2f\n", 0.1 + rand() }'); do
  if [ -f k/last.safetensors ]; then set -- --resume k
  else rm -rf k; set -- --data cells --model resnet18 --width 0.125 --imgsz 32 --batch 8 --seed 3 --no-check --epochs 2 --out k; fi
  "$cairn" train "$@" >/dev/null 2>&1 &
  pid=$!
  sleep "$delay"
  kill -9 "$pid" 2>/dev/null && kills=$((kills + 1))
  status=0; wait "$pid" 2>/dev/null || status=$?
  for f in k/*.safetensors; do [ ! -f "$f" ] || "$cairn" debug compare "$f" "$f" >/dev/null || die "$f is broken"; done
  for f in k/*.json; do [ ! -f "$f" ] || python3 -m json.tool "$f" >/dev/null || die "$f is broken"; done
  if [ "$status" = 0 ]; then same a/best.safetensors k/best.safetensors; rm -rf k; fi  # it was done before
done
if [ -f k/last.safetensors ]; then "$cairn" train --resume k >/dev/null 2>resume.log || { cat resume.log; die "resume"; }
else rm -rf k; train --epochs 2 --out k; fi
same a/best.safetensors k/best.safetensors
same a/model.onnx k/model.onnx
echo "$kills kills"

say "one process at a time trains in a folder"
"$cairn" train --data cells --model resnet18 --width 0.125 --imgsz 32 --batch 8 --seed 3 --no-check --epochs 500 --out busy >/dev/null 2>busy.log &
pid=$!
for i in 1 2 3 4 5 6 7 8 9 10; do [ -f busy/last.safetensors ] && break; sleep 0.5; done
expect_code 2 "$cairn" train --resume busy
grep -q "another process is training in busy" err.txt || { cat err.txt busy.log; die "two at once"; }
status=0; kill -INT "$pid" && wait "$pid" || status=$?
[ "$status" = 130 ] && grep -q "cairn train --resume busy" busy.log || { cat busy.log; die "interrupted: exit code $status"; }

say "stopped by steps and resumed; what a killed write left is gone"
train --epochs 2 --steps 5 --out s
gone=$(sh -c 'echo $$') && : >"s/.17.$gone.0.tmp" && : >s/.mine.tmp
"$cairn" train --resume s >/dev/null 2>&1
same a/best.safetensors s/best.safetensors
[ ! -e "s/.17.$gone.0.tmp" ] && [ -e s/.mine.tmp ] || die "leftovers"

say "a run goes on with its own recipe and its own pictures"
expect_code 2 "$cairn" train --resume s --lr 0.1
grep -q -- "--lr cannot be changed on resume" err.txt || { cat err.txt; die "--lr on resume"; }
cp -r cells moved
expect_code 0 "$cairn" train --resume s --data moved
same a/best.safetensors s/best.safetensors
cp "$(ls moved/functional/*.png | head -n 1)" "$(ls moved/defective/*.png | head -n 1)"
expect_code 2 "$cairn" train --resume s --data moved
grep -q "not those that the run began with" err.txt || { cat err.txt; die "changed pictures"; }
expect_code 0 "$cairn" train --resume s --data cells
cp -r s odd
sed -i 's/channels: 3/channels: 1/' odd/recipe.yaml
expect_code 2 "$cairn" train --resume odd
grep -q "model.channels: got 1, but data.transform gives 3" err.txt || { cat err.txt; die "channels"; }
cp s/recipe.yaml odd && sed -i 's/mode: graph/mode: wobble/' odd/recipe.yaml
expect_code 2 "$cairn" train --resume odd

say "more epochs on resume"
"$cairn" train --resume s --epochs 3 >/dev/null 2>err.txt || { cat err.txt; die "three epochs"; }
grep -q '"epoch": 2' s/metrics.json || grep -q '"epoch":2' s/log.jsonl || die "no third epoch"

say "a part kept back chooses the epoch; without one it is the last"
train --epochs 2 --val 0.2 --out v
grep -q "10 to choose the best epoch by" train.log || { cat train.log; die "--val"; }
"$cairn" eval --run v --part val --json 2>/dev/null | grep -q '"count": *10' || die "eval --part val"
train --epochs 2 --out l
grep -q "result of the last epoch 2" train.log || { cat train.log; die "the last epoch"; }
expect_code 2 "$cairn" eval --run l --part val
expect_code 2 "$cairn" train --data cells --patience 1 --out x

say "a small model takes its size from the transform"
"$cairn" train --data cells --model lenet --transform grey,resize=20,normalize=0.5:0.25 --batch 8 --epochs 1 --out lenet >/dev/null 2>err.txt ||
  { cat err.txt; die "lenet"; }

say "deterministic: one thread and two give the same bits"
train --epochs 1 --deterministic --threads 1 --out d1
train --epochs 1 --deterministic --threads 2 --workers 1 --out d2
same d1/best.safetensors d2/best.safetensors

say "evaluate, assert, predict"
"$cairn" eval --run a --json 2>/dev/null | grep -q '"accuracy"' || die "eval gives no accuracy"
expect_code 1 "$cairn" eval --run a --min-accuracy 1.01
"$cairn" predict a/model.onnx cells --json 2>/dev/null | wc -l | grep -qx 64 || die "predict lines"

say "bad pictures are counted, training goes on"
cp -r cells bad
first=$(ls bad/functional/*.png | head -n 1)
: >bad/functional/empty.png
head -c 100 "$first" >bad/functional/cut.png
echo "not a picture" >bad/defective/text.jpg
cp "$first" bad/functional/png_named.jpg
"$cairn" train --data bad --model resnet18 --width 0.125 --imgsz 32 --batch 8 --epochs 1 --out run_bad >/dev/null 2>err.txt || { cat err.txt; die "training on bad pictures"; }
for name in empty.png cut.png text.jpg; do grep -q "$name" run_bad/data.json || die "$name is not in the report"; done

say "bad pictures that the check was not asked for are counted too, and the split stays that of training"
"$cairn" train --data bad --model resnet18 --width 0.125 --imgsz 32 --batch 8 --epochs 1 --no-check --out run_raw --json 2>err.txt >trained.json || { cat err.txt; die "--no-check"; }
grep -q "failed" err.txt || { cat err.txt; die "bad pictures are not told"; }
for name in empty.png cut.png text.jpg; do grep -q "$name" run_raw/data.json || die "$name is not in the report"; done
"$cairn" eval --run run_raw --json 2>/dev/null >again.json
cmp -s trained.json again.json || die "eval measured another part than train"

say "Ctrl-C ends every long command with 130, and leaves nothing half done"
interrupt() { # COMMAND...: interrupted when it has begun
  "$@" >out.txt 2>err.txt & pid=$!
  while kill -0 "$pid" && ! grep -q '^SigCgt:.*[2367abef]$' "/proc/$pid/status"; do sleep 0.02; done  # it listens
  sleep 0.1
  status=0; kill -INT "$pid" && wait "$pid" || status=$?
  [ "$status" = 130 ] || { cat err.txt; die "exit code $status, expected 130: $*"; }
}
interrupt "$cairn" data make --count 1000000 --out endless
[ ! -e endless ] && [ -z "$(ls -A | grep cairn_make)" ] || die "pictures were left behind"
mkdir -p many/functional many/defective
for i in $(seq 200); do for c in functional defective; do cp -rs "$work/cells/$c" "many/$c/$i"; done; done
interrupt "$cairn" train --data many --model resnet18 --imgsz 224 --out never
interrupt "$cairn" eval --run a --data many --batch 1 --workers 0

say "bad input: one clear error, exit code 2"
expect_code 2 "$cairn" train --data nowhere --out x
grep -q nowhere err.txt || die "the error does not name the folder"
[ ! -e x ] || die "a run directory was left behind"
mkdir -p hollow/one hollow/two && : >hollow/one/a.png && : >hollow/two/b.png
expect_code 2 "$cairn" train --data hollow --out x
expect_code 2 "$cairn" predict cells/labels.csv cells
expect_code 2 "$cairn" train --data cells --out a
expect_code 2 "$cairn" train --data cells --out cells/run
grep -q "inside the data folder" err.txt || { cat err.txt; die "a run inside the data"; }
mkdir precious && echo mine >precious/model.onnx
expect_code 2 "$cairn" train --data cells --out precious
echo mine | cmp -s - precious/model.onnx || die "a user's file was overwritten"
expect_code 2 "$cairn" eval --run a --out precious/model.onnx
expect_code 2 "$cairn" train --data bad --fail-on-bad-picture --out x
expect_code 2 "$cairn" train --resume nowhere
grep -q "holds no run" err.txt || { cat err.txt; die "resume of nothing"; }
for wrong in "--lr nan" "--lr -1" "--split nan" "--ema nan" "--threads -3" "--workers -7" "--transform blur" "--optimizer sdg" "--schedule cosin" "--loss-scale big" "--freeze layer9" "--weights none.safetensors"; do
  expect_code 2 "$cairn" train --data cells --model resnet18 $wrong --out x
  ! grep -q checking err.txt || die "$wrong is told only after the pictures were decoded"
  [ ! -e x ] || die "$wrong left a run directory behind"
done
expect_code 2 "$cairn" train --data cells --steps 99999999999999999999 --out x
grep -q "beyond 64 bits" err.txt || { cat err.txt; die "64 bits"; }
expect_code 2 "$cairn" serve --model c=a/model.onnx --grace -1
cp a/best.safetensors in.safetensors && cp in.safetensors kept.safetensors
expect_code 2 "$cairn" debug step --model resnet18 --inputs in.safetensors --out ./in.safetensors
expect_code 2 "$cairn" run a/model.onnx --inputs in.safetensors --out a/model.onnx
grep -q "is the file that is read" err.txt && cmp in.safetensors kept.safetensors || { cat err.txt; die "an input written over"; }
expect_code 2 "$cairn" frobnicate
expect_code 2 "$cairn" serve --model broken

expect_code 2 "$cairn" predict a/model.onnx err.txt
if [ -w /dev/full ]; then
  status=0; "$cairn" predict a/model.onnx cells >/dev/full 2>err.txt || status=$?
  [ "$status" = 2 ] && grep -q "standard output" err.txt || die "output that was lost: exit code $status"
fi
"$cairn" predict a/model.onnx cells 2>err.txt | head -n 1 >out.txt
[ ! -s err.txt ] || { cat err.txt; die "a reader that has had enough"; }

say "every verb has help"
for verb in train eval predict serve run data opt debug bench doctor trail; do expect_code 0 "$cairn" $verb --help; done
expect_code 0 "$cairn" trail
expect_code 0 "$cairn" doctor --json
expect_code 0 "$cairn" opt resnet18 --imgsz 64 --only fuse-conv

say "all good"
rm -rf "$work"
