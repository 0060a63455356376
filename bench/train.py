#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of a model, side by side in one run: Cairn, PyTorch (NCHW, channels_last, compile), MindSpore graph
(ResNet-50 alone).

Each contender runs in a fresh process, turn by turn (A B C A B C ...), on the same two threads; the ratio is taken
between minima and between medians. Memory is the peak resident set of the process; the tool's own share is that of
a process that only imports it.

    bench/train.py [--model resnet50] [--imgsz 224] [--batch 8] [--rounds 3] [--steps 5]
                   [--cairn build/release/cli/cairn] [--python VENV/bin/python]

VENV holds torch and torchvision (and mindspore, if it is to take part); Cairn needs no Python.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TORCH = r"""
import sys, time, json, resource, torch
form, batch, steps, threads, size, name, folder = sys.argv[1], *map(int, sys.argv[2:6]), *sys.argv[6:8]
sys.path.insert(0, folder); import models
torch.set_num_threads(threads); torch.manual_seed(0)
idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
model = models.make(name).train(); x = torch.randn(batch, 3, size, size); y = torch.arange(batch) % 1000
if form != "nchw": model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9); criterion = torch.nn.CrossEntropyLoss()
call = torch.compile(model) if form == "compile" else model
times = []
for _ in range(steps + 2):
    start = time.perf_counter(); optimizer.zero_grad(); loss = criterion(call(x), y); loss.backward(); optimizer.step()
    loss.item(); times.append(time.perf_counter() - start)
print(json.dumps({"first_step_s": times[0], "steps": times[2:], "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "idle": idle}))
"""

MINDSPORE = r"""
import sys, time, json, resource, numpy as np, mindspore as ms
from mindspore import nn, ops
batch, steps, threads, size = map(int, sys.argv[2:6])
ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU"); ms.set_seed(0)
idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def conv(i, o, k, s): return nn.Conv2d(i, o, k, s, pad_mode="pad", padding=k // 2, has_bias=False)
class Block(nn.Cell):
    def __init__(self, i, m, s):
        super().__init__(); o = 4 * m
        self.body = nn.SequentialCell(conv(i, m, 1, 1), nn.BatchNorm2d(m), nn.ReLU(), conv(m, m, 3, s), nn.BatchNorm2d(m), nn.ReLU(), conv(m, o, 1, 1), nn.BatchNorm2d(o))
        self.down = nn.SequentialCell(conv(i, o, 1, s), nn.BatchNorm2d(o)) if s != 1 or i != o else nn.Identity(); self.relu = nn.ReLU()
    def construct(self, x): return self.relu(self.body(x) + self.down(x))
class Net(nn.Cell):
    def __init__(self):
        super().__init__(); layers = [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, pad_mode="pad", padding=1)]; i = 64
        for m, n, s in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for k in range(n): layers.append(Block(i, m, s if k == 0 else 1)); i = 4 * m
        self.body = nn.SequentialCell(*layers); self.fc = nn.Dense(2048, 1000)
    def construct(self, x): return self.fc(self.body(x).mean((2, 3)))
net = Net(); net.set_train(); opt = nn.Momentum(net.trainable_params(), 0.01, 0.9)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), opt); step.set_train()
x = ms.Tensor(np.random.randn(batch, 3, size, size).astype("f4")); y = ms.Tensor((np.arange(batch) % 1000).astype("i4")); times = []
for _ in range(steps + 2):
    start = time.perf_counter(); step(x, y).asnumpy(); times.append(time.perf_counter() - start)
print(json.dumps({"first_step_s": times[0], "steps": times[2:], "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "idle": idle}))
"""


def run(command, threads):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_PROC_BIND="close")
    result = subprocess.run(command, capture_output=True, text=True, env=env)
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip().splitlines()[-1] if result.stderr.strip() else f"exit {result.returncode}")
    return json.loads(result.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cairn", default="build/release/cli/cairn")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--imgsz", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="cairn,nchw,channels_last,compile,mindspore")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results, errors = {}, {}
    if args.model != "resnet50":
        errors["mindspore"] = "it is written down here for resnet50 alone"
    for round_number in range(args.rounds):
        for name in args.only.split(","):
            if name in errors:
                continue
            try:
                if name == "cairn":
                    r = run([args.cairn, "bench", "train", "--model", args.model, "--imgsz", str(args.imgsz), "--batch", str(args.batch),
                             "--steps", str(args.steps + 1), "--threads", str(args.threads), "--json"], args.threads)
                    r = {"first_step_s": r["first_step_s"], "steps": r["step_s"]["all"][1:], "peak_rss_bytes": r["peak_rss_bytes"], "idle": 0}
                else:
                    code = MINDSPORE if name == "mindspore" else TORCH
                    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:  # MindSpore compiles from a file
                        script.write(code)
                        script.flush()
                        r = run([args.python, script.name, name, str(args.batch), str(args.steps),
                                 str(args.threads), str(args.imgsz), args.model, os.path.dirname(os.path.abspath(__file__))],
                                args.threads)
                results.setdefault(name, []).append(r)
                print(f"round {round_number + 1} {name}: min {min(r['steps']):.3f} s", file=sys.stderr, flush=True)
            except Exception as error:  # a contender that is not installed does not stop the others
                errors[name] = str(error)
    rows = []
    for name, runs in results.items():
        steps = [s for r in runs for s in r["steps"]]
        rows.append({"name": name, "min_s": min(steps), "median_s": statistics.median(steps),
                     "images_per_s": args.batch / min(steps), "first_step_s": min(r["first_step_s"] for r in runs),
                     "peak_gb": max(r["peak_rss_bytes"] for r in runs) / 1e9,
                     "beyond_idle_gb": max(r["peak_rss_bytes"] - r["idle"] for r in runs) / 1e9})
    if args.json:
        print(json.dumps({"model": args.model, "imgsz": args.imgsz, "batch": args.batch, "rows": rows, "errors": errors}))
    else:
        mine = next((r for r in rows if r["name"] == "cairn"), None)
        print(f"{'':14} {'min s':>7} {'median':>7} {'img/s':>6} {'first s':>8} {'peak GB':>8} {'of it own':>10}  Cairn is")
        for r in rows:
            ratio = f"{r['min_s'] / mine['min_s']:.2f}x (median {r['median_s'] / mine['median_s']:.2f}x)" if mine and r is not mine else ""
            print(f"{r['name']:14} {r['min_s']:7.3f} {r['median_s']:7.3f} {r['images_per_s']:6.2f} {r['first_step_s']:8.2f} "
                  f"{r['peak_gb']:8.2f} {r['beyond_idle_gb']:10.2f}  {ratio}")
        for name, error in errors.items():
            print(f"{name}: did not run: {error}")


if __name__ == "__main__":
    main()
