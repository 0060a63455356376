#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every operator's samples, as the catalogue writes them in ONNX, in onnxruntime, and compares with Cairn.

    cmake --build build/release --target peer_onnx_operators && tests/peers/onnx_operators.py build/release

Installs onnx and onnxruntime into a throw-away environment in <build>/peers; exits 77 where they cannot be had.
"""
import json
import pathlib
import subprocess
import sys

import environment

PACKAGES = ["onnx==1.17.0", "onnxruntime==1.32.0"]
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release")
environment.enter(BUILD, "onnx", PACKAGES)
import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import AttributeProto, TensorProto, helper  # noqa: E402

TYPES = {"f64": (TensorProto.DOUBLE, np.float64), "f32": (TensorProto.FLOAT, np.float32),
         "f16": (TensorProto.FLOAT16, np.float16), "i64": (TensorProto.INT64, np.int64),
         "i32": (TensorProto.INT32, np.int32), "i16": (TensorProto.INT16, np.int16),
         "i8": (TensorProto.INT8, np.int8), "u8": (TensorProto.UINT8, np.uint8), "bool": (TensorProto.BOOL, np.bool_)}

KINDS = {"float": AttributeProto.FLOAT, "ints": AttributeProto.INTS, "floats": AttributeProto.FLOATS}

# Where ONNX leaves the answer open, so that we do not ask: the mean of nothing, numbers out of range.
OPEN = {"mean": lambda c: 0 in c["inputs"][0]["shape"],
        "cast": lambda c: max(map(abs, c["inputs"][0]["values"]), default=0) > 127}
ONLY_FIRST = {"max_pool"}  # its positions are counted otherwise, and not exported


def array(t):
    return np.array(t["values"], dtype=TYPES[t["dtype"]][1]).reshape(t["shape"])


def run(case):
    inputs = {str(k): t for k, t in enumerate(case["inputs"])}
    operands = dict(inputs) | case["constants"]
    names = [str(k) if str(k) in operands else "" for k in range(max(map(int, operands)) + 1)]
    outputs = [f"y{k}" for k in range(len(case["outputs"]))]
    node = helper.make_node(case["type"], names, outputs)
    for key, value in case["attributes"].items():
        if isinstance(value, list):
            kind, value = value
            value = float(value) if kind == "float" else value
            node.attribute.append(helper.make_attribute(key, value, attr_type=KINDS[kind]))
        else:
            node.attribute.append(helper.make_attribute(key, value))
    graph = helper.make_graph(
        [node], "one",
        [helper.make_tensor_value_info(k, TYPES[t["dtype"]][0], t["shape"]) for k, t in inputs.items()],
        [helper.make_tensor_value_info(n, TYPES[t["dtype"]][0], t["shape"]) for n, t in zip(outputs, case["outputs"])],
        [helper.make_tensor(k, TYPES[t["dtype"]][0], t["shape"], array(t).flatten())
         for k, t in case["constants"].items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(outputs, {k: array(t) for k, t in inputs.items()})


def main():
    onnxruntime.set_default_logger_severity(4)
    lines = subprocess.run([BUILD / "tests/peers/peer_onnx_operators"], check=True, capture_output=True, text=True).stdout.splitlines()
    passed, missing, wrong, operators = 0, [], [], set()
    for line in lines:
        case = json.loads(line)
        if case["name"] in OPEN and OPEN[case["name"]](case):
            continue
        if case["name"] in ONLY_FIRST:
            del case["outputs"][1:]
        label = f'{case["name"]} as {case["type"]}{case["attributes"]} on {[(t["dtype"], t["shape"]) for t in case["inputs"]]}'
        try:
            got = run(case)
        except Exception as e:  # pylint: disable=broad-except
            if "NOT_IMPLEMENTED" in str(e):
                missing.append(f"{label}: onnxruntime has no kernel")
            else:
                wrong.append(f"{label}: {e}")
            continue
        for g, t in zip(got, case["outputs"]):
            if g.shape != tuple(t["shape"]) or g.dtype != TYPES[t["dtype"]][1]:
                wrong.append(f'{label}: gives {g.dtype}{g.shape}, expected {t["dtype"]}{t["shape"]}')
            elif not np.allclose(g.astype(np.float64), array(t).astype(np.float64), 1e-5, 1e-5, equal_nan=True):
                wrong.append(f"{label}: {g.tolist()}, expected {array(t).tolist()}")
        passed += 1
        operators.add(case["name"])
    print("\n".join(wrong + missing))
    print(f"{passed} samples of {len(operators)} operators run, {len(wrong)} wrong, {len(missing)} without a kernel in onnxruntime")
    return 1 if wrong or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
