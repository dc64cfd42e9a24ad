"""The environments beside `.venv`: whole or as they were, of one interpreter, made by one."""

from __future__ import annotations

import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from tools.environments import Environment, NotMade

from tools import environments


def wheel(folder: Path, name: str, version: str) -> str:
    """A package of one module, as a requirement that needs no registry."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"version = '{version}'\n")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tags)
        archive.writestr(f"{info}/RECORD", "")
    return str(path)


def version_in(name: str, package: str = "tiny") -> str:
    program = f"import {package}; print({package}.version)"
    argv = [str(environments.interpreter(name)), "-c", program]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where environments are made; `known` is empty."""
    monkeypatch.setattr(environments, "VENVS", tmp_path / "venvs")
    monkeypatch.setattr(environments, "KNOWN", {})
    return tmp_path / "venvs"


def want(*requirements: str, name: str = "own") -> None:
    environments.KNOWN[name] = Environment(requirements, bytecode=False)


def held(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir() if path.name[0] != ".")


@pytest.mark.timeout(600)  # three environments, the slowest on a slow disk
def test_an_environment_is_made_once_and_replaced_only_by_a_whole_one(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    want(wheel(tmp_path, "tiny", "1.0"))
    assert not environments.is_ready("own")
    (home / "own.killed").mkdir(parents=True)  # a build that ended early
    both = [threading.Thread(target=environments.make, args=["own"]) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    said = capsys.readouterr().out.splitlines()
    assert said.count("making the environment own ...") == 1
    assert said.count("waiting for another process that makes the environment own") == 1
    assert environments.is_ready("own")
    assert version_in("own") == "1.0"
    first = (home / "own").resolve()
    assert held(home) == ["own", first.name]

    want(str(tmp_path / "tiny-2.0-py3-none-any.whl"))  # which is not there
    with pytest.raises(NotMade, match=r"environment own can't be made: (?s:.)*tiny-2\.0"):
        environments.make("own")
    assert not environments.is_ready("own")
    assert version_in("own") == "1.0"
    assert held(home) == ["own", first.name]

    # As older versions made them: a folder, not a link, with a marker of another name.
    (home / "own").unlink()
    first.rename(home / "own")
    (home / "own" / environments.MARKER).unlink()
    want("tiny>=1")
    assert not environments.is_ready("own")
    environments.make("own")
    assert environments.is_ready("own")
    assert held(home) == ["own"]

    want(wheel(tmp_path, "tiny", "2.0"))
    environments.make("own")
    assert version_in("own") == "2.0"
    assert held(home) == ["own", (home / "own").resolve().name]


def test_the_interpreter_is_that_of_penstocks_own_environment_and_another_is_not_built_over(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python of another version in its place makes an environment that has to be made anew."""
    root = tmp_path / "clone"
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(environments, "ROOT", root)
    assert environments._base(Environment(())) == root / ".venv" / "bin" / "python"

    want()
    (home / "own" / "bin").mkdir(parents=True)
    foreign = environments.interpreter("own")
    foreign.write_text("#!/bin/sh\necho CPython 3.99.0\n")
    foreign.chmod(0o755)
    version = environments._version(root / ".venv" / "bin" / "python")
    (home / "own" / environments.MARKER).write_text(version)
    assert not environments.is_ready("own")
    assert not environments._taken_as_it_is("own")
    foreign.unlink()
    foreign.symlink_to(sys.executable)
    assert environments.is_ready("own")


def test_what_a_link_leads_to_elsewhere_is_replaced_and_left_there(
    home: Path, tmp_path: Path
) -> None:
    """As between two clones that share one."""
    (tmp_path / "theirs").mkdir()
    (home / "own.new").mkdir(parents=True)
    (home / "own").symlink_to(tmp_path / "theirs")
    environments._rename(home / "own.new", home / "own")
    assert (home / "own").resolve() == (home / "own.new").resolve()
    assert held(home) == ["own", "own.new"]
    assert (tmp_path / "theirs").is_dir()


def test_every_environment_of_make_test_says_what_it_holds() -> None:
    """The compiler's tests need Penstock's own requirements beside PyTorch."""
    assert set(environments.TESTED) <= set(environments.KNOWN)
    own = environments.KNOWN["compile"].all_requirements()
    assert {"torch==2.13.0", "urllib3>=2", "pytest>=8.3"} <= set(own)
    assert all(each.all_requirements() for each in environments.KNOWN.values())


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    argv = [sys.executable, "-m", "tools.environments", "compiler"]
    run = subprocess.run(argv, cwd=environments.ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.startswith("error[environment-unknown]: compiler\nhint: one of ")
