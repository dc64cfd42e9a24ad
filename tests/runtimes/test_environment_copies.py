"""An environment with copies of the server's own packages, and with imports that are run once."""

from __future__ import annotations

import importlib.metadata
import subprocess
import threading
from pathlib import Path

import pytest
from tests.kit.environments import wheel

from penstock.errors import ModelError
from penstock.runtimes.environments.interpreters import own
from penstock.runtimes.environments.own_copies import with_needed
from penstock.runtimes.environments.provide import Provider
from penstock.runtimes.environments.requirements import read_requirements
from penstock.runtimes.environments.settings import EnvironmentSettings
from penstock.runtimes.environments.spec import EnvironmentSpec
from penstock.runtimes.environments.store import EnvironmentLease


def spec_of(folder: Path, code: str, *, imports: tuple[str, ...]) -> EnvironmentSpec:
    """A package of ours that needs one of the server's own; nothing comes from an index."""
    wheel(
        folder / "wheels", "tiny", "1.0", {"tiny.py": code, "unused.py": "X = 1\n"},
        requires=("orjson",),
    )  # fmt: skip
    (folder / "requirements.txt").write_text("--no-index\ntiny\n")
    return EnvironmentSpec(
        python=own(),
        requirements=read_requirements(folder, ""),
        copied=with_needed(("orjson", "httptools")),
        imports=imports,
        what="the environment of this test",
    )


def obtained(root: Path, spec: EnvironmentSpec, folder: Path) -> EnvironmentLease:
    return Provider(root, EnvironmentSettings()).obtain(
        spec, threading.Event(), seconds=300, log=print, read=(str(folder),)
    )


def test_the_servers_own_packages_are_there_as_copies(tmp_path: Path) -> None:
    model = tmp_path / "model"
    spec = spec_of(model, "import orjson\n", imports=("import tiny",))
    lease = obtained(tmp_path / "store", spec, model)
    told = "import orjson, tiny, httptools; print(orjson.__version__, orjson.__file__)"
    argv = [lease.made.interpreter, "-I", "-c", told]
    version, place = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert version == importlib.metadata.version("orjson")
    assert Path(place).resolve().is_relative_to(lease.made.dirs[0])


def test_only_what_is_imported_has_bytecode(tmp_path: Path) -> None:
    model = tmp_path / "model"
    lease = obtained(tmp_path / "store", spec_of(model, "X = 1\n", imports=("import tiny",)), model)
    site = Path(lease.made.dirs[0]) / "lib" / f"python{own().short}" / "site-packages"
    names = {each.name.partition(".")[0] for each in (site / "__pycache__").iterdir()}
    assert names == {"tiny"}


def test_what_can_not_be_imported_fails_with_the_last_line(tmp_path: Path) -> None:
    model = tmp_path / "model"
    spec = spec_of(model, "raise ImportError('of another build')\n", imports=("import tiny",))
    with pytest.raises(ModelError) as caught:
        obtained(tmp_path / "store", spec, model)
    assert caught.value.code == "environment-failed"
    assert "the environment of this test (tiny, " in caught.value.message
    assert caught.value.message.endswith("ImportError: of another build")


def test_copies_and_imports_are_part_of_the_key(tmp_path: Path) -> None:
    keys = {
        EnvironmentSpec(python=own(), copied=copied, imports=imports).key
        for copied in ((), ("orjson==1.0",), ("orjson==2.0",))
        for imports in ((), ("import json",))
    }
    assert len(keys) == 6


def test_what_a_package_needs_is_named_with_it() -> None:
    found = dict(line.split("==") for line in with_needed(("openvino",)))
    assert {"openvino", "numpy"} <= set(found)
    assert found["numpy"] == importlib.metadata.version("numpy")
    assert "pytest" not in found
