# SPDX-License-Identifier: Apache-2.0
"""A throw-away Python environment with the packages that a script here compares Cairn with."""
import os
import pathlib
import subprocess
import sys


def enter(build, name, packages):
    """Runs the script anew inside <build>/peers/<name>, which is made first if need be; inside, does nothing.
    Exits with 77 where the packages cannot be had."""
    home = build / "peers" / name
    if pathlib.Path(sys.prefix).resolve() == home.resolve():
        return
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        print("installing", " ".join(packages), "into", home)
        try:
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
        except subprocess.CalledProcessError:
            print("skipped: the packages cannot be installed here")
            sys.exit(77)
        (home / "complete").touch()
    os.execv(python, [python, *sys.argv])
