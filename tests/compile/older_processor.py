"""The environment in which a process behaves as on a server processor with AVX2 only.

ONEDNN_MAX_CPU_ISA and ATEN_CPU_CAPABILITY alone are half of it: oneDNN and PyTorch obey them, while
OpenVINO asks the processor. Where Linux lets a process answer CPUID by itself, and a C compiler is
there, OpenVINO is told the same (`older_processor.c`).
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).resolve().with_name("older_processor.c")
VARIABLES = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


def cpuid_can_fault() -> bool:
    flags = next(
        (line for line in Path("/proc/cpuinfo").read_text().splitlines() if line[:5] == "flags"), ""
    )
    return "cpuid_fault" in flags.split()


def why_not_whole() -> str:
    """Why OpenVINO can't be told; "" where it can."""
    if not cpuid_can_fault():
        return "this processor or kernel can't let CPUID fault (no flag cpuid_fault)"
    if shutil.which("cc") is None:
        return "there is no C compiler"
    return ""


def older_processor(folder: Path) -> dict[str, str]:
    """Environment variables; the library is compiled into `folder` where it can be used."""
    if why_not_whole():
        return dict(VARIABLES)
    library = folder / "older_processor.so"
    if not library.exists():
        argv = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(argv, check=True)
    return {**VARIABLES, "LD_PRELOAD": str(library)}
