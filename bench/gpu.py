"""Runtime `torch` on a GPU beside PyTorch itself: BERT-base, and t5-small with 9 tokens in, 11 out.

Everything runs in one process that has PyTorch in its CUDA build (`peers/gpu_torch.py`): inputs and
answers are on the host for all, rounds alternate. Where no GPU can be had the closing line says
that nothing was measured, and why. `--rehearse` runs the same on the CPU, to see that it works: its
times are no figures of anything.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.environments import interpreter as interpreter_of

from bench.report import ROOT, finish

PEER = Path(__file__).parent / "peers" / "gpu_torch.py"
CACHE = ROOT / ".cache" / "bench-gpu"
_ASK = (
    "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.device_count(), "
    "torch.cuda.get_device_name(0) if torch.cuda.is_available() else '', sep='|')"
)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench gpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rehearse", action="store_true", help="on the CPU")
    options = parser.parse_args(arguments)
    python, told = interpreter(need_gpu=not options.rehearse)
    if python is None:
        print(f"nothing measured: {told}")
        finish("gpu", {"measured": False, "reason": told})
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    device = "cpu" if options.rehearse else "cuda"
    found = measured(python, device, options.rounds)
    finish(
        "gpu",
        {"measured": not options.rehearse, **found},
        device=told,
        rounds=options.rounds,
        seed=0,
    )


def interpreter(*, need_gpu: bool) -> tuple[Path | None, str]:
    """A Python whose PyTorch sees a GPU, and what it is; None, with the reason."""
    reasons = []
    for python in (Path(sys.executable), interpreter_of("compile")):
        if not python.exists():
            continue
        run = subprocess.run([str(python), "-c", _ASK], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            lines = run.stderr.strip().splitlines()
            reasons.append(f"{shown(python)}: {lines[-1] if lines else 'no PyTorch'}")
            continue
        version, cuda, count, name = run.stdout.strip().split("|")
        if count != "0" or not need_gpu:
            return python, f"{name or 'CPU'}, PyTorch {version}"
        build = f"for CUDA {cuda}" if cuda != "None" else "for CPUs only"
        reasons.append(f"{shown(python)}: PyTorch {version} is built {build} and sees no GPU")
    return None, "; ".join(
        reasons
    ) or "no interpreter with PyTorch: run python -m tools.environments compile"


def shown(python: Path) -> str:
    return str(python.relative_to(ROOT)) if python.is_relative_to(ROOT) else python.name


def measured(python: Path, device: str, rounds: int) -> dict[str, Any]:
    """The peer's lines are progress, its last one is the result."""
    argv = [str(python), str(PEER), str(CACHE), device, str(rounds)]
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]  # packages may be there as well
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TOKENIZERS_PARALLELISM": "false",
    }
    last = ""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as peer:
        assert peer.stdout is not None
        for line in peer.stdout:
            last = line
            if not line.startswith("{"):
                print(line, end="", flush=True)
    if peer.returncode != 0:
        raise SystemExit(f"error[bench-failed]: {PEER.name} ended with status {peer.returncode}")
    return dict(json.loads(last))
