"""The compiler's tests, `inside/check_*.py`, run by the interpreter that has its libraries.

They are one test here, for importing PyTorch takes longer than most of them; their own output is
shown where one fails. Those that the instruction set could decide run a second time as on a
processor with AVX2 only (`older_processor`).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import pytest
from older_processor import older_processor, why_not_whole
from tests.kit.environments import python_of

from penstock.runtimes.processor import instruction_set_here

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

#: PyTorch compiles two kernels of a line each here. It need not start processes for them, compile
#: all its headers before, nor try which vector instructions the compiler knows: a minute, all that.
BUILDS_LITTLE = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "TORCHINDUCTOR_VEC_ISA_OK": "0",
}


@pytest.mark.integration
@pytest.mark.timeout(1800)  # some minutes on idle cores; each of them has 240 s of its own
def test_the_compiler_in_the_environment_with_pytorch() -> None:
    """Half of the files on each of two cores: one core is all that a check takes."""
    python_of("compile")
    with ThreadPoolExecutor() as each:
        runs = list(each.map(lambda files: checked(*map(str, files)), halves()))
    told = [run.stdout[-12_000:] + run.stderr[-2_000:] for run in runs if run.returncode]
    assert not told, "\n".join(told)


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_what_the_processor_decides_once_more_with_avx2_only(tmp_path: Path) -> None:
    """The few checks whose outcome could be the instruction set's, on a machine that has more."""
    need_newer()
    files = (HERE / "inside").glob("check_*.py")
    marked = [str(path) for path in sorted(files) if "mark.processors" in path.read_text()]
    run = checked("-m", "processors", *marked, environment=older_processor(tmp_path))
    assert run.returncode == 0, run.stdout[-12_000:] + run.stderr[-2_000:]


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_an_artifact_made_with_vnni_is_not_called_proved_where_its_products_are_cut_off(
    tmp_path: Path,
) -> None:
    """Compiled here, loaded as on a processor with AVX2: its samples are answered otherwise there.
    A whole imitation is needed: the products are OpenVINO's choice."""
    need_newer()
    if not instruction_set_here().int8_exact:
        pytest.skip(f"{instruction_set_here().name} has no VNNI")
    if why_not_whole():
        pytest.skip(why_not_whole())
    told = [
        script(str(tmp_path), "compile"),
        script(str(tmp_path), "load"),
        script(str(tmp_path), "load", environment=older_processor(tmp_path)),
    ]
    made, here, there = (json.loads(run.stdout.splitlines()[-1]) for run in told)
    assert made["weight_bits"] == 8
    assert here["state"] == "proved-here"
    assert (there["state"], there["instruction_set"]) == ("not-proved", "AVX2")
    assert there["proved_on"] == here["instruction_set"]
    assert "mean difference" in there["detail"]


def halves() -> tuple[list[Path], list[Path]]:
    """Of about the same number of lines."""
    one: list[Path] = []
    other: list[Path] = []
    for path in sorted((HERE / "inside").glob("check_*.py"), key=size, reverse=True):
        min(one, other, key=lambda half: sum(map(size, half))).append(path)
    return one, other


def size(path: Path) -> int:
    return path.stat().st_size


def need_newer() -> None:
    here = instruction_set_here()
    if here.name in ("AVX2", "AVX", "SSE41") or not here.x86:
        pytest.skip(f"this machine runs as {here.name}: the checks ran so already")


def checked(
    *arguments: str, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    argv = [
        *("-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"),
        *("-o", "python_files=check_*.py", "-W", "ignore"),
        *("-p", "no:logging", "--timeout", "240", *arguments),
    ]
    return inside(argv, environment)


def script(
    *arguments: str, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    run = inside([str(HERE / "inside" / "moved_artifact.py"), *arguments], environment)
    assert run.returncode == 0, run.stdout[-4_000:] + run.stderr[-4_000:]
    return run


def inside(argv: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python_of("compile")), *argv],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            **BUILDS_LITTLE,
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
