"""Environments that an artifact brings as an archive, safe and hostile ones."""

from __future__ import annotations

import io
import sys
import tarfile
import threading
from pathlib import Path

import pytest
from tests.runtimes.test_environment_store import context_of, left_over, printed

from penstock.errors import CallerError
from penstock.runtimes.environments.provide import Provider
from penstock.runtimes.environments.settings import EnvironmentSettings
from penstock.runtimes.environments.store import EnvironmentLease

SITE = f"lib/python3.{sys.version_info.minor}/site-packages"


def packed(root: Path, files: dict[str, str], links: dict[str, str] | None = None) -> Path:
    """An artifact with an archive of these files, and symbolic links: path -> target."""
    root.mkdir(parents=True)
    with tarfile.open(root / "env.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return root


def provide(store: Path, root: Path) -> EnvironmentLease:
    context = context_of(root, packed_environment="env.tar.gz", file="model.py")
    provider = Provider(store, EnvironmentSettings())
    lease = provider.provide(context, threading.Event(), seconds=120)
    assert lease is not None
    return lease


def test_one_of_venv_gets_a_python_of_this_machine(tmp_path: Path) -> None:
    files = {f"{SITE}/tiny.py": "VERSION = '7'\n", "pyvenv.cfg": "home = /elsewhere/bin\n"}
    links = {"bin/python": "/elsewhere/bin/python3", "lib64": "lib", "bin/python3": "python"}
    lease = provide(tmp_path / "store", packed(tmp_path / "m", files, links))
    assert printed(lease, "import tiny, numpy, orjson; print(tiny.VERSION)") == "7"
    assert provide(tmp_path / "store", tmp_path / "m").made == lease.made


def test_what_it_says_of_its_python_gives_no_right_to_read(tmp_path: Path) -> None:
    """A model's processes may read the folders of their Python: an archive must not choose them."""
    secret = tmp_path / "secret"
    (secret / "bin").mkdir(parents=True)
    files = {f"{SITE}/tiny.py": "", "pyvenv.cfg": f"home = {secret}/bin\n"}
    links = {"bin/python": f"{secret}/bin/python3"}
    made = provide(tmp_path / "store", packed(tmp_path / "m", files, links)).made
    assert not any(str(secret).startswith(each) for each in made.dirs)


@pytest.mark.parametrize(
    ("files", "links", "code"),
    [
        ({"../../escaped.py": "x"}, {}, "artifact-path-unsafe"),
        ({"/tmp/escaped.py": "x"}, {}, "artifact-path-unsafe"),
        ({"readme.txt": "x"}, {}, "environment-not-packed"),
        ({"lib/python3.6/site-packages/x.py": ""}, {}, "python-too-old"),
        ({f"{SITE}/x.py": ""}, {"a": "b", "b": "a"}, "archive-unsafe"),
    ],
)
def test_others_are_refused(
    tmp_path: Path, files: dict[str, str], links: dict[str, str], code: str
) -> None:
    root = packed(tmp_path / "m", files, links)
    with pytest.raises(CallerError) as refused:
        provide(tmp_path / "store", root)
    assert refused.value.code == code
    assert left_over(tmp_path / "store") == []


def test_one_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(CallerError, match="env\\.tar\\.gz"):
        provide(tmp_path / "store", tmp_path / "m")
