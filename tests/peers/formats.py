#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads what Cairn writes with the tools that people have: TensorBoard, safetensors, scikit-learn.

    cmake --build build/release --target peer_formats && tests/peers/formats.py build/release

Installs them into a throw-away environment in <build>/peers; exits 77 where they cannot be had.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import environment

PACKAGES = ["tensorboard==2.20.0", "setuptools<81", "safetensors==0.8.0", "scikit-learn==1.7.2", "numpy<2.4"]


def check_events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(folder / "events"), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()
    assert tags["scalars"] == ["loss/train"] and tags["images"] == ["plots/line"], tags
    scalars = events.Scalars("loss/train")
    assert [s.step for s in scalars] == list(range(100))
    assert all(abs(s.value - 1 / (1 + s.step)) < 1e-6 for s in scalars)
    image = events.Images("plots/line")[0]
    assert (image.width, image.height, image.step) == (1520, 960, 99)
    assert image.encoded_image_string.startswith(b"\x89PNG")
    text = events.Tensors("recipe")[0].tensor_proto.string_val[0]
    assert text == b"model: **resnet18**", text
    metadata = events.SummaryMetadata("recipe")
    assert metadata.plugin_data.plugin_name == "text"

    resumed = EventAccumulator(str(folder / "resumed"), size_guidance={"scalars": 0})
    resumed.Reload()
    steps = [(s.step, s.value) for s in resumed.Scalars("loss")]
    assert steps == [(i, 1 if i < 50 else 2) for i in range(80)], steps
    print("TensorBoard: 100 scalars, a picture and a text; a resumed run without doubled steps")


def check_tensors(folder):
    import numpy as np
    from safetensors import safe_open
    types = {"f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "i64": "I64", "i32": "I32", "i16": "I16",
             "i8": "I8", "u8": "U8", "bool": "BOOL"}
    data = (folder / "all.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    with safe_open(folder / "all.safetensors", "np") as f:
        metadata = f.metadata()
        assert metadata["step"] == "12" and metadata["note"] == 'größer "x"', metadata
        assert len(f.keys()) == 12
        for ours, theirs in types.items():
            piece = f.get_slice(f"all/{ours}")
            assert (piece.get_dtype(), piece.get_shape()) == (theirs, [3, 5])
            if ours == "bf16":
                continue  # numpy has none
            begin, end = header[f"all/{ours}"]["data_offsets"]
            tensor = f.get_tensor(f"all/{ours}")
            assert tensor.tobytes() == data[8 + length + begin:8 + length + end]
        assert f.get_tensor("scalar") == np.float32(2.5)
        assert f.get_tensor("empty ü").shape == (0, 4)
    print("safetensors: every type, a scalar, an empty tensor, metadata")


def header_cases():
    """(name, header text, data bytes, may differ): files for both readers to judge."""
    def one(**fields):
        return json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **fields}})
    two = '{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]},"b":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}}'
    zero = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    yield "plain", one(), 8
    yield "no tensor", "{}", 0
    yield "no tensor but data", "{}", 1
    yield "nothing", "", 0
    yield "padded", one() + "    \n\t", 8
    yield "rank 0", one(shape=[], data_offsets=[0, 4]), 4
    yield "rank 20", one(shape=[1] * 20, data_offsets=[0, 4]), 4
    yield "zero size", one(shape=[0, 4], data_offsets=[0, 0]), 0
    yield "huge and zero", one(shape=[0, 2**62], data_offsets=[0, 0]), 0
    yield "short data", one(), 7
    yield "long data", one(), 9
    yield "wrong size", one(shape=[3]), 8
    yield "end before begin", one(data_offsets=[8, 0]), 8
    yield "hole at the start", one(shape=[1], data_offsets=[4, 8]), 8
    yield "hole", two % (2, 2, 1, 3, 4), 4
    yield "overlap", two % (3, 3, 2, 2, 4), 4
    yield "product wraps", one(shape=[2**62, 4], data_offsets=[0, 0]), 0
    yield "bytes wrap", one(shape=[2**62], data_offsets=[0, 0]), 0
    yield "length beyond 64 bits", one(shape=[2**64], data_offsets=[0, 0]), 0
    yield "negative", one(shape=[-1]), 8
    yield "fraction", one(shape=[2.0]), 8
    yield "shape a number", one(shape=2), 8
    yield "three offsets", one(data_offsets=[0, 8, 8]), 8
    yield "one offset", one(data_offsets=[8]), 8
    yield "no dtype", '{"w":{"shape":[2],"data_offsets":[0,8]}}', 8
    yield "no shape", '{"w":{"dtype":"F32","data_offsets":[0,8]}}', 8
    yield "lower-case dtype", one(dtype="f32"), 8
    yield "unknown dtype", one(dtype="F99"), 8
    yield "null dtype", one(dtype=None), 8
    for dtype, size in [("F64", 8), ("BF16", 2), ("F16", 2), ("U16", 2), ("U32", 4), ("U64", 8), ("C64", 8), ("BOOL", 1),
                        ("F8_E4M3", 1), ("F8_E5M2", 1), ("F8_E8M0", 1)]:
        yield dtype, one(dtype=dtype, data_offsets=[0, 2 * size]), 2 * size
    yield "F4", one(dtype="F4", data_offsets=[0, 1]), 1
    yield "F4 odd", one(dtype="F4", shape=[3], data_offsets=[0, 1]), 1
    yield "F6_E2M3", one(dtype="F6_E2M3", shape=[4], data_offsets=[0, 3]), 3
    yield "further field", one(more={"x": [1, None]}), 8
    yield "metadata null", '{"__metadata__":null}', 0
    yield "metadata empty", '{"__metadata__":{}}', 0
    yield "metadata of numbers", '{"__metadata__":{"k":1}}', 0
    yield "metadata nested", '{"__metadata__":{"k":{}}}', 0
    yield "metadata an array", '{"__metadata__":[]}', 0
    yield "metadata twice", '{"__metadata__":{},"__metadata__":{}}', 0
    yield "tensor a number", '{"w":1}', 0
    yield "an array", "[]", 0
    yield "not JSON", "{w}", 0
    yield "comment", "{} // x", 0
    yield "two values", "{}{}", 0
    yield "zero byte after", "{}\0", 0
    yield "escaped name", '{"\\u0077":' + zero + "}", 0
    yield "lone surrogate", '{"\\ud800":' + zero + "}", 0
    yield "byte order mark", "\ufeff{}", 0
    yield "field twice", '{"w":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}', 0
    # Where Cairn follows the format's text, and the reference is or was laxer.
    yield "* blank first", " {}", 0
    yield "* tensor twice", '{"w":%s,"w":%s}' % (zero, zero), 0
    yield "* metadata key twice", '{"__metadata__":{"k":"1","k":"2"}}', 0


def check_verdicts(program, folder):
    from safetensors import SafetensorError, safe_open
    cases = []
    for name, header, size in header_cases():
        text = header.encode()
        cases.append((name, struct.pack("<Q", len(text)) + text + bytes(size)))
    cases += [("7 bytes", b"1234567"), ("header beyond the file", struct.pack("<Q", 3) + b"{}"),
              ("header beyond 100 MB", struct.pack("<Q", 100_000_001) + b"{}"),
              ("header of 2^64-1", struct.pack("<Q", 2**64 - 1) + b"{}"),
              ("not UTF-8", struct.pack("<Q", 2) + b"{\xff")]
    paths = []
    for i, (_, content) in enumerate(cases):
        paths.append(folder / f"case{i}.safetensors")
        paths[-1].write_bytes(content)
    out = subprocess.run([program, "judge", *paths], check=True, capture_output=True, text=True).stdout
    ours = [line for line in out.split("\n") if line.startswith(("accept", "refuse"))]
    assert len(ours) == len(cases), out
    differing = 0
    for (name, _), path, line in zip(cases, paths, ours):
        try:
            with safe_open(path, "np"):
                theirs = "accept"
        except SafetensorError:
            theirs = "refuse"
        if line.split()[0] != theirs:
            differing += not name.startswith("*")
            print(f"  {name}: reference {theirs}s, Cairn: {line}")
    assert differing == 0
    print(f"safetensors: the same verdict on {len(cases)} files, but for those marked * above")


def check_metrics(folder):
    import numpy as np
    from safetensors.numpy import load_file
    from sklearn import metrics as sk
    data = load_file(folder / "scores.safetensors")
    labels, scores = data["labels"], data["scores"]
    ours = json.loads((folder / "metrics.json").read_text())
    predicted = scores.argmax(1)
    same = lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
    same(ours["accuracy"], sk.accuracy_score(labels, predicted))
    same(ours["balanced_accuracy"], sk.balanced_accuracy_score(labels, predicted))
    assert (np.array(ours["confusion"]) == sk.confusion_matrix(labels, predicted)).all()
    precision, recall, f1, support = sk.precision_recall_fscore_support(labels, predicted)
    for c, of in enumerate(ours["classes"]):
        same([of["precision"], of["recall"], of["f1"], of["support"]], [precision[c], recall[c], f1[c], support[c]])
        same(of["roc_auc"], sk.roc_auc_score(labels == c, scores[:, c]))
        # Cairn drops every point on a straight line, scikit-learn some: ours are among all of theirs.
        theirs = np.stack(sk.roc_curve(labels == c, scores[:, c], drop_intermediate=False)[:2], 1)
        for point in zip(of["fpr"], of["tpr"]):
            assert abs(theirs - point).max(1).min() < 1e-12, point
        same(sk.auc(of["fpr"], of["tpr"]), of["roc_auc"])
    same(ours["macro"]["f1"], sk.f1_score(labels, predicted, average="macro"))
    print("scikit-learn: accuracy, precision, recall, F1, confusion matrix, ROC points and area within 1e-12")


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release").absolute()
    environment.enter(build, "formats", PACKAGES)
    program = build / "tests" / "peers" / "peer_formats"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([program, "write", folder], check=True)
        check_events(folder)
        check_tensors(folder)
        check_verdicts(program, folder)
        check_metrics(folder)
    print("4 passed, 0 failed")


if __name__ == "__main__":
    main()
