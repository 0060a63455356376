#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of Cairn against PyTorch, number by number.

Weights and a batch go through safetensors to `cairn debug step`; logits, loss, every gradient of the first step
and every parameter after the last are compared. Truth is PyTorch in f64 (NCHW). PyTorch's own error is the larger of
what NCHW and channels_last give, since the order of sums alone moves plain random weights across ReLU kinks, and
the more so in ten steps.

- f64: logits and gradients within 1e-9; losses and parameters after all steps within 1e-9 too, or 10 x PyTorch's own
  f64 difference where ten steps are chaotic (at a rate of 0.01 they are: ResNet-50's loss falls to 1e-6 and rises again).
- f32: whether a rounding moves an activation across a kink, after which gradients are 1e-2 off, is chance, in PyTorch
  as here. PyTorch's own error is therefore drawn several times: both memory formats, with weights and picture as they are and
  with their last bit at random. Our gradient error over all parameters together must be at most max(1e-4, 3 x PyTorch's
  worst; 1e-3 with --maths fast), no single parameter beyond 10 x that, and so for the losses. Medians are shown too.

    torch_parity.py [--cairn build/release/cli/cairn] [--models resnet18,resnet50,mobilenet_v2] [--steps 10]
    torch_parity.py --freeze tests/peers/frozen.safetensors

The second writes a small case (a narrow ResNet-18, three steps) with PyTorch's f64 results, which frozen_test
compares with wherever PyTorch is absent.
Uses the Python that runs it when that has torch, torchvision and safetensors, else installs them (6 GB) into a
throw-away environment in build/release/peers; exits 77 where they cannot be had.
"""
import argparse
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import environment

PACKAGES = ["torch", "torchvision", "safetensors"]
if not all(importlib.util.find_spec(name) for name in PACKAGES):
    environment.enter(pathlib.Path(__file__).parents[2] / "build/release", "torch", PACKAGES)

import safetensors.torch
import torch
import torchvision

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
import models


def narrow_resnet18(classes):
    model = torchvision.models.resnet18(num_classes=classes)
    model.inplanes = 8
    model.conv1, model.bn1 = torch.nn.Conv2d(3, 8, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(8)
    for k, channels in enumerate((8, 16, 32, 64)):
        layer = model._make_layer(torchvision.models.resnet.BasicBlock, channels, 2, stride=1 if k == 0 else 2)
        setattr(model, f"layer{k + 1}", layer)
    model.fc = torch.nn.Linear(64, classes)
    return model


def make(name, classes=10):
    if name == "narrow":
        return narrow_resnet18(classes)
    return models.make(name, classes)


def torch_steps(name, state, x, y, dtype, steps, lr=0.01, classes=10):
    model = make(name, classes)
    model.load_state_dict(state)
    model = model.to(dtype).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    out = {"loss": []}
    for step in range(steps):
        optimizer.zero_grad()
        logits = model(x.to(dtype))
        loss = torch.nn.functional.cross_entropy(logits, y)
        loss.backward()
        if step == 0:
            out["logits"] = logits.detach().double()
            out["grad"] = {k: p.grad.detach().double() for k, p in model.named_parameters()}
        optimizer.step()
        out["loss"].append(loss.item())
    out["param"] = {k: v.detach().double() for k, v in model.state_dict().items() if v.is_floating_point()}
    return out


def cairn_steps(cairn, name, weights, batch, mode, dtype, steps, lr, maths, folder):
    target = folder / "step.safetensors"
    subprocess.run([cairn, "debug", "step", "--model", name, "--classes", "10", "--weights", weights, "--inputs", batch,
                    "--mode", mode, "--maths", maths, "--dtype", dtype, "--optimizer", f"sgd:lr={lr},momentum=0.9", "--steps", str(steps),
                    "--out", target, "--json"], check=True, capture_output=True)
    t = {k: v.double() for k, v in safetensors.torch.load_file(target).items()}
    pick = lambda prefix: {k[len(prefix):]: v for k, v in t.items() if k.startswith(prefix)}
    return {"loss": t["loss"].tolist(), "logits": t["logits"], "grad": pick("grad/"), "param": pick("param/")}


def distance(a, b):
    return ((a - b).norm() / b.norm().clamp_min(1e-30)).item()


def errors(got, truth):
    names = sorted(truth["grad"])
    assert sorted(got["grad"]) == names, "parameter names differ"
    whole = lambda r, kind: torch.cat([r[kind][n].flatten() for n in sorted(truth[kind])])
    # A gradient that is nothing but rounding (a bias before a norm) is measured against the typical one.
    scale = whole(truth, "grad").norm() / len(names) ** 0.5
    each = {n: ((got["grad"][n] - truth["grad"][n]).norm() / torch.maximum(truth["grad"][n].norm(), 1e-3 * scale)).item()
            for n in names}
    return {
        "logits": distance(got["logits"], truth["logits"]),
        "grad": distance(whole(got, "grad"), whole(truth, "grad")),
        "worst": max(each.values()),
        # A loss near 0 is a difference of logits: its last digits are rounding.
        "loss": max(abs(a - b) / max(abs(b), 1e-3 * truth["loss"][0]) for a, b in zip(got["loss"], truth["loss"])),
        "param": distance(whole(got, "param"), whole(truth, "param")),
    }


def digest(t):  # two numbers that hardly any mistake leaves as they are
    t = t.flatten().double()
    return torch.stack([t @ torch.cos(torch.arange(t.numel(), dtype=torch.float64)), t.norm()])


def freeze(path):
    torch.manual_seed(0)
    classes, steps = 5, 3
    short = lambda t: t.half() if t.is_floating_point() else t  # both sides start from the same short numbers
    state = {k: short(v) for k, v in make("narrow", classes).state_dict().items()}
    x, y = short(torch.randn(3, 3, 48, 48)), torch.tensor([0, 3, 1])
    truth = torch_steps("narrow", {k: v.double() for k, v in state.items()}, x, y, torch.float64, steps, classes=classes)
    out = {f"weight/{k}": v for k, v in state.items() if v.is_floating_point()} | {"x": x, "y": y}
    out |= {"loss": torch.tensor(truth["loss"], dtype=torch.float64), "logits": truth["logits"]}
    out |= {f"{kind}/{k}": digest(v) for kind in ("grad", "param") for k, v in truth[kind].items()}
    safetensors.torch.save_file(out, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--freeze")
    parser.add_argument("--cairn", default="build/release/cli/cairn")
    parser.add_argument("--models", default="resnet18,resnet50,mobilenet_v2")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--dtypes", default="f64,f32")
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--maths", default="fast", choices=("fast", "exact"))
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2)
    args = parser.parse_args()
    if args.freeze:
        return freeze(args.freeze)
    failed = 0
    kinds = ("logits", "grad", "worst", "loss", "param")
    largest = lambda *runs: {k: max(r[k] for r in runs) for k in kinds}
    middle = lambda runs: statistics.median(r["grad"] for r in runs)
    for name in args.models.split(","):
        own, got = {"f32": [], "f64": []}, {}
        for seed in range(args.seeds):
            torch.manual_seed(seed)
            state = {k: v.clone() for k, v in make(name).state_dict().items()}
            x, y = torch.randn(args.batch, 3, args.size, args.size), torch.randint(0, 10, (args.batch,))
            run = lambda dtype, form, s=state, p=x: torch_steps(name, s, p.to(memory_format=form), y, dtype, args.steps, args.lr)
            truth = run(torch.float64, torch.contiguous_format)
            own["f64"].append(errors(run(torch.float64, torch.channels_last), truth))
            for draw in range(args.draws):
                bit = lambda t: t * (1 + (torch.rand_like(t) - 0.5) * 2**-23) if draw and t.is_floating_point() else t
                drawn = {k: bit(v) for k, v in state.items()}, bit(x)
                own["f32"] += [errors(run(torch.float32, form, *drawn), truth)
                               for form in (torch.contiguous_format, torch.channels_last)]
            with tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary)
                safetensors.torch.save_file(state, folder / "w.safetensors")
                safetensors.torch.save_file({"x": x, "y": y}, folder / "b.safetensors")
                for dtype in args.dtypes.split(","):
                    for mode in ("eager", "graph"):
                        got.setdefault((dtype, mode), []).append(errors(cairn_steps(
                            args.cairn, name, folder / "w.safetensors", folder / "b.safetensors", mode, dtype, args.steps,
                            args.lr, args.maths, folder), truth))
        for (dtype, mode), runs in got.items():
            if dtype == "f64":
                e, o = largest(*runs), largest(*own[dtype])
                good = (max(e["logits"], e["grad"], e["worst"]) <= 1e-9
                        and all(e[k] <= max(1e-9, 10 * o[k]) for k in ("loss", "param")))
            else:
                e, o = largest(*runs), largest(*own[dtype])
                least = 1e-4 if args.maths == "exact" else 1e-3
                bound = max(least, 3 * o["grad"])
                good = (e["grad"] <= bound and e["worst"] <= 10 * bound and e["loss"] <= max(least, 3 * o["loss"]))
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {name} {dtype} {mode:5}  "
                  + "  ".join(f"{k} {e[k]:.1e} (torch {o[k]:.1e})" for k in kinds)
                  + f"  median grad {middle(runs):.1e} ({middle(own[dtype]):.1e})", flush=True)
    print(json.dumps({"failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
