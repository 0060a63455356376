#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares decoding and resizing with Pillow: every JPEG and PNG kind, orientations, both filters.

    cmake --build build/release --target peer_pictures
    tests/peers/pictures.py build/release [folder of pictures ...]

Uses the Python that runs it when that has NumPy and Pillow before 13, else installs them into a throw-away
environment in <build>/peers; exits 77 where they cannot be had.
"""
import pathlib
import subprocess
import sys
import tempfile
import time

import environment

PACKAGES = ["pillow==12.0.0", "numpy<2.4"]


def enter_environment(build):
    try:
        import numpy, PIL  # noqa: F401
        if int(PIL.__version__.split(".")[0]) < 13:  # 13 sometimes resizes vertically first
            return
    except ImportError:
        pass
    environment.enter(build, "pictures", PACKAGES)


class Tool:
    def __init__(self, build, folder):
        path = build / "tests" / "peers" / "peer_pictures"
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.out = str(folder / "out.bin")

    def ask(self, *arguments):
        self.process.stdin.write("\t".join(map(str, arguments)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def picture(self, *arguments):
        import numpy as np
        answer = self.ask(*arguments, self.out)
        if answer.startswith("error"):
            return answer, None
        w, h, c = map(int, answer.split()[:3])
        return answer, np.fromfile(self.out, np.uint8).reshape(h, w, c)


def scene(width, height, seed):
    """Smooth shapes with edges and noise, RGB."""
    import numpy as np
    r = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 70 * np.sin(x / r.uniform(3, 30)) + 50 * np.cos(y / r.uniform(3, 30)) + r.normal(0, 8, (height, width))
              for _ in range(3)]
    a = np.stack(planes, -1)
    a[height // 4:height // 2, width // 3:width // 2] = r.uniform(0, 255, 3)
    return np.clip(a, 0, 255).astype(np.uint8)


def write_samples(folder):
    """Every way of storing that Pillow can write."""
    import numpy as np
    from PIL import Image
    files = []

    def save(image, name, **how):
        path = folder / name
        image.save(path, **how)
        files.append(path)

    for seed, (w, h) in enumerate([(64, 64), (61, 45), (1, 1), (1, 37), (50, 1), (17, 8), (640, 480)]):
        rgb = Image.fromarray(scene(w, h, seed))
        for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
            for progressive in (False, True):
                save(rgb, f"{seed}-{subsampling.replace(':', '')}-{progressive}.jpg", quality=60 + 5 * seed,
                     subsampling=subsampling, progressive=progressive)
        save(rgb.convert("L"), f"{seed}-grey.jpg", quality=85)
        save(rgb.convert("CMYK"), f"{seed}-cmyk.jpg", quality=85)
        save(rgb, f"{seed}-restart.jpg", restart_marker_rows=1)
        for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
            save(rgb.convert(mode), f"{seed}-{mode}.png")
        save(Image.fromarray(np.asarray(rgb.convert("L")).astype(np.uint16) * 257 + seed), f"{seed}-16.png")
        for o in range(1, 9):
            exif = Image.Exif()
            exif[0x0112] = o
            save(rgb, f"{seed}-o{o}.jpg", exif=exif)
            save(rgb, f"{seed}-o{o}.png", exif=exif)
    return files


def expected(path, color):
    import numpy as np
    from PIL import Image, ImageOps
    image = Image.open(path)
    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):  # Pillow cuts; the rule here is value / 257, rounded
        a = np.asarray(image).astype(np.int64)
        image = Image.fromarray(((a + 128) // 257).astype(np.uint8))
    if color == "grey":  # transparency is dropped before colours are mixed
        image = image.convert("L") if image.mode in ("1", "L", "LA") else image.convert("RGB").convert("L")
    elif image.mode in ("1", "LA"):
        image = image.convert("L").convert("RGB")
    else:
        image = image.convert("RGB")
    a = np.asarray(image)
    return a[..., None] if a.ndim == 2 else a


def check_decode(tool, files):
    import numpy as np
    worst, unequal = 0, []
    for path in files:
        for color in ("rgb", "grey"):
            answer, got = tool.picture("decode", color, path)
            if got is None:
                unequal.append(f"{path.name}: {answer}")
                continue
            want = expected(path, color)
            if got.shape != want.shape:
                unequal.append(f"{path.name}: {got.shape} instead of {want.shape}")
                continue
            d = int(np.abs(got.astype(int) - want.astype(int)).max())
            worst = max(worst, d)
            if d:
                unequal.append(f"{path.name} as {color}: differs by up to {d}")
    print(f"decode: {len(files)} files, {2 * len(files)} comparisons, largest difference {worst}")
    for line in unequal[:20]:
        print("  ", line)
    return not unequal


def check_resize(tool, folder):
    import numpy as np
    from PIL import Image
    r = np.random.default_rng(0)
    worst = cases = 0
    for seed in range(60):
        w, h = (int(v) for v in r.integers(1, 200, 2))
        path = folder / "resize.png"
        image = Image.fromarray(scene(w, h, seed))
        if seed % 2:
            image = image.convert("L")
        image.save(path)
        for name, method in (("bilinear", Image.Resampling.BILINEAR), ("bicubic", Image.Resampling.BICUBIC)):
            for _ in range(3):
                to = tuple(int(v) for v in r.integers(1, 200, 2))
                x, y = int(r.integers(0, w)), int(r.integers(0, h))
                bw, bh = int(r.integers(1, w - x + 1)), int(r.integers(1, h - y + 1))
                if seed % 3 == 0:
                    x, y, bw, bh = 0, 0, w, h
                _, got = tool.picture("resize", path, *to, name, x, y, bw, bh)
                want = np.asarray(image.crop((x, y, x + bw, y + bh)).resize(to, method))
                worst = max(worst, int(np.abs(got.reshape(want.shape).astype(int) - want.astype(int)).max()))
                cases += 1
    print(f"resize: {cases} cases, largest difference {worst}")
    return worst <= 1


def best_ms(body, rounds=7):
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        body()
        times.append(time.process_time() - begin)
    return 1000 * min(times)


def compare_times(tool, folder):
    import io
    from PIL import Image
    for w, h in ((300, 300), (640, 480), (4000, 3000)):
        image = Image.fromarray(scene(w, h, 1))
        for suffix in ("jpg", "png"):
            path = folder / f"time.{suffix}"
            image.save(path)
            data = path.read_bytes()
            ours = tool.ask("time", "rgb,resize=224,normalize=0.5:0.25", path).split()
            decode = best_ms(lambda: Image.open(io.BytesIO(data)).convert("RGB").load())
            resize = best_ms(lambda: image.resize((224, 224), Image.Resampling.BILINEAR))
            print(f"time {w}x{h} {suffix}: decode {ours[0]} ms, Pillow {decode:.3f}; "
                  f"resize and normalise {ours[1]} ms, Pillow's resize alone {resize:.3f}")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    enter_environment(build)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tool = Tool(build, folder)
        files = write_samples(folder)
        for more in sys.argv[2:]:
            files += sorted(p for p in pathlib.Path(more).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
        good = check_decode(tool, files)
        good = check_resize(tool, folder) and good
        compare_times(tool, folder)
    print("ok" if good else "FAILED")
    sys.exit(0 if good else 1)


main()
