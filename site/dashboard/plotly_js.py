"""Find the chart library on this machine: the small bundle from npm, else the one in the wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "plotly.js-basic-dist-min"
SECONDS = 60


@dataclass(frozen=True, slots=True)
class Bundle:
    """The library, and the name under which the site serves it."""

    name: str
    content: bytes


def find_bundle(root: Path) -> Bundle:
    """Return the bundle; npm is asked once, and only where it is installed.

    `ALMANAC_NPM=off` asks it never.
    """
    small = root / "node_modules" / PACKAGE
    if not small.is_dir() and os.environ.get("ALMANAC_NPM") != "off":
        _install(root)
    if small.is_dir():
        version = json.loads((small / "package.json").read_text())["version"]
        return Bundle(
            f"plotly-basic-{version}.min.js", (small / "plotly-basic.min.js").read_bytes()
        )
    return Bundle("plotly.min.js", _in_wheel().read_bytes())


def _install(root: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or not (root / "package-lock.json").exists():
        return
    command = [npm, "ci", "--ignore-scripts", "--silent"]
    try:
        subprocess.run(command, cwd=root, timeout=SECONDS, check=False, capture_output=True)
    except (OSError, subprocess.TimeoutExpired):
        return


def _in_wheel() -> Path:
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("plotly is not installed; install it, or run `npm ci`")
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"
