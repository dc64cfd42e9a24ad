"""What is to be installed has our distribution's name: `penstock` on PyPI is another project's."""

from __future__ import annotations

import re
import subprocess

import pytest
from tests.kit.servers import ROOT

from penstock import distribution

#: `penstock[extra]`, and `pip install ... penstock`, where no path and no longer name ends so.
_FOREIGN = re.compile(r"(?<![\w./-])penstock\\?\[|pip install[^\n|]*?[\s'\"]penstock(?![\w/.-])")
_READ = ("src", "docs", "deploy", "examples", "tools", "bench", "README.md", "CONTRIBUTING.md",
         "Makefile", "pyproject.toml")  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "pip install 'penstock[ray]'",
        "Install penstock[otel], or leave it out.",
        "python -m pip install penstock",
        "pip install --upgrade penstock boto3",
        r"pip install penstock\[ray\]",
    ],
)
def test_names_of_the_other_project_are_found(line: str) -> None:
    assert _FOREIGN.search(line)


@pytest.mark.parametrize(
    "line",
    [
        "pip install 'penstock-inference[ray]'",
        'pip install "/tmp/penstock-source[ray]"',
        "python -m pip install -e '.[ray]'; penstock up",
        "penstock compile --target cpu",
    ],
)
def test_our_own_are_not(line: str) -> None:
    assert not _FOREIGN.search(line.partition(";")[0])


def test_nothing_tells_anybody_to_install_the_other_project() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *_READ],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = []
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if not path.is_file():
            continue
        for at, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if _FOREIGN.search(line):
                found.append(f"{name}:{at}: {line.strip()[:100]}")
    assert found == []


def test_the_distribution_has_the_name_that_hints_give() -> None:
    assert f'name = "{distribution.NAME}"' in (ROOT / "pyproject.toml").read_text()
