#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Talks to Cairn's server with Triton's own HTTP client, unmodified: every call that the server offers.

    cmake --build build/release --target peer_serve && tests/peers/triton_client.py build/release

Uses the Python that runs it when that has tritonclient, else installs it into a throw-away environment in
<build>/peers; exits 77 where it cannot be had.
"""
import pathlib
import subprocess
import sys
import time

import environment

PACKAGES = ["tritonclient[http]==2.73.0", "ml_dtypes==0.5.4", "numpy<2.4"]


def enter_environment(build):
    try:
        import ml_dtypes, tritonclient.http  # noqa: F401
        return
    except ImportError:
        pass
    environment.enter(build, "triton", PACKAGES)
    sys.exit("tritonclient was installed but cannot be imported")


def tensor(http, name, array, datatype=None, binary=True):
    from tritonclient.utils import np_to_triton_dtype
    x = http.InferInput(name, list(array.shape), datatype or np_to_triton_dtype(array.dtype))
    x.set_data_from_numpy(array, binary_data=binary)
    return x


def check_status(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("add") and client.is_model_ready("add", "2") and not client.is_model_ready("nobody")
    assert client.get_server_metadata()["name"] == "cairn"
    meta = client.get_model_metadata("add")
    assert meta["versions"] == ["1", "2"] and meta["inputs"][0] == {"name": "a", "datatype": "FP32", "shape": [-1, 4]}
    assert client.get_model_config("picture")["max_batch_size"] == 16


def check_datatypes(http, client):
    import numpy as np
    rng = np.random.default_rng(1)
    for name, dtype in {"BOOL": bool, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
                        "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "FP16": np.float16,
                        "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_}.items():
        if name == "BYTES":
            x = np.array([b"", b"a\0b", "é\n\"".encode(), bytes(1000)], np.object_)
        elif name == "BOOL":
            x = rng.random(100) < 0.5
        elif name.startswith("FP"):
            x = rng.standard_normal(100).astype(dtype)
            x[:3] = np.nan, np.inf, -np.inf
        else:
            limits = np.iinfo(dtype)
            x = rng.integers(limits.min, limits.max, 100, dtype, endpoint=True)
            x[:2] = limits.min, limits.max
        for send in (True, False) if name != "FP16" else (True,):  # the client refuses to write FP16 as JSON
            for receive in (True, False):
                got = client.infer("echo_" + name, [tensor(http, "x", x, name, send)],
                                   outputs=[http.InferRequestedOutput("y", binary_data=receive)]).as_numpy("y")
                if name == "BYTES":
                    assert [g if receive else g.encode() for g in got] == list(x)
                else:
                    assert got.dtype == x.dtype
                    np.testing.assert_array_equal(got, x)
    import ml_dtypes
    x = np.array([1, -2.5, np.inf], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(client.infer("echo_BF16", [tensor(http, "x", x, "BF16")]).as_numpy("y").astype(np.float32),
                                  x.astype(np.float32))


def check_requests(http, client):
    import numpy as np
    a, b = np.arange(8, dtype=np.float32).reshape(2, 4), np.ones((2, 4), np.float32)
    inputs = [tensor(http, "b", b), tensor(http, "a", a, binary=False)]  # any order, mixed forms
    result = client.infer("add", inputs, request_id="id-7", model_version="1", timeout=10_000_000)
    np.testing.assert_array_equal(result.as_numpy("sum"), a + b)
    assert result.get_response()["id"] == "id-7" and result.get_response()["model_version"] == "1"
    for coding in ("gzip", "deflate"):
        got = client.infer("add", inputs, request_compression_algorithm=coding, response_compression_algorithm=coding)
        np.testing.assert_array_equal(got.as_numpy("sum"), a + b)
    for binary in (True, False):
        top = client.infer("add", inputs, outputs=[http.InferRequestedOutput("sum", binary, class_count=2)]).as_numpy("sum")
        text = [[t.decode() if isinstance(t, bytes) else t for t in row] for row in top.tolist()]
        assert text == [["4:3:west", "3:2:south"], ["8:3:west", "7:2:south"]], text
    files = np.array([b"\xff\xd8\xff....", b"png"], np.object_)
    assert client.infer("picture", [tensor(http, "image", files)]).as_numpy("mean").tolist() == [7, 3]
    pixels = np.full((3, 1, 2, 2), 5, np.float32)
    assert client.infer("picture", [tensor(http, "image", pixels)]).as_numpy("mean").tolist() == [5, 5, 5]


def check_errors(http, client):
    import numpy as np
    from tritonclient.utils import InferenceServerException
    x = np.zeros((1, 4), np.float32)
    for model, inputs, status, says in [
            ("nobody", [tensor(http, "a", x)], "404", "unknown model"),
            ("add", [tensor(http, "a", x)], "400", "missing 'b'"),
            ("add", [tensor(http, "a", x), tensor(http, "c", x)], "400", "unexpected inference input 'c'"),
            ("add", [tensor(http, "a", x), tensor(http, "b", x.astype(np.float64))], "400", "FP32"),
            ("add", [tensor(http, "a", x), tensor(http, "b", np.zeros((1, 5), np.float32))], "400", "unexpected shape"),
            ("add", [tensor(http, "a", np.zeros((65, 4), np.float32))] * 2, "400", "at most 64")]:
        try:
            client.infer(model, inputs)
            raise AssertionError("accepted")
        except InferenceServerException as e:
            assert e.status() == status and says in e.message(), (e.status(), e.message())


def check_load(http, client):
    import numpy as np
    x = np.random.default_rng(2).standard_normal(4 << 20).astype(np.float32)
    begin = time.perf_counter()
    np.testing.assert_array_equal(client.infer("echo_FP32", [tensor(http, "x", x)]).as_numpy("y"), x)
    megabytes = time.perf_counter() - begin
    ones = np.ones((1, 4), np.float32)
    inputs = [tensor(http, "a", ones), tensor(http, "b", ones)]
    for request in [client.async_infer("add", inputs) for _ in range(50)]:
        assert request.get_result().as_numpy("sum").tolist() == [[2, 2, 2, 2]]
    begin = time.perf_counter()
    for _ in range(500):
        client.infer("add", inputs)
    print(f"16 MiB there and back: {megabytes:.3f} s; 500 small requests: {time.perf_counter() - begin:.3f} s")


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release").absolute()
    enter_environment(build)
    import tritonclient.http as http
    server = subprocess.Popen([build / "tests" / "peers" / "peer_serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        client = http.InferenceServerClient(f"127.0.0.1:{int(server.stdout.readline())}", concurrency=4)
        check_status(client)
        check_datatypes(http, client)
        check_requests(http, client)
        check_errors(http, client)
        check_load(http, client)
        server.stdin.close()  # with the client's connections still open
        assert server.wait(20) == 0
    finally:
        server.kill()
    print("5 passed, 0 failed")


if __name__ == "__main__":
    main()
