"""How the GPUs of this machine reach each other: their number, their links, NCCL's version."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys


def topology(matrix: str) -> str | None:
    """Name the links between all GPUs in the matrix that `nvidia-smi topo -m` prints.

    NV and a number are NVLinks of a pair, anything else a way over PCIe; None with fewer than two.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", matrix)
    rows = [line.split() for line in plain.splitlines() if re.match(r"\s*GPU\d+\s", line)]
    rows = [row for row in rows if row[1] == "X" or not row[1].startswith("GPU")]
    found = {word for row in rows for word in row[1 : len(rows) + 1] if word != "X"}
    nvlink = sorted(word for word in found if re.fullmatch(r"NV\d+", word))
    kinds = {"NVLink": nvlink, "PCIe": sorted(found - set(nvlink))}
    named = [f"{kind} ({', '.join(words)})" for kind, words in kinds.items() if words]
    return " and ".join(named) or None


def measured_topology() -> str | None:
    """Ask nvidia-smi for the links; None where it is missing or refuses."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "topo", "-m"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return topology(done.stdout) if done.returncode == 0 else None


def main() -> None:
    """Print what was found, as one line of JSON."""
    import torch

    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    answer = {"gpus": torch.cuda.device_count(), "nccl": nccl, "topology": measured_topology()}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
