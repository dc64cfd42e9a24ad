"""/opt/ml/model in a model's process: who names it, and what is there, for root and for others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kit.python_models import python_model

from penstock.artifacts.description.description import ModelDescription
from penstock.errors import ModelError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.confinement import confined
from penstock.runtimes.confinement.walls import Walls, with_container_paths
from penstock.runtimes.python import container_paths
from penstock.runtimes.python.sagemaker_contract import SageMakerContract
from penstock.runtimes.python.shared.runtime import may_share

NOBODY = 65534
#: The interpreter of the system: any user may run it, and `confined` needs no package.
PYTHON = "/usr/bin/python3"

#: Says what it sees as JSON.
LOOKS = """
import json, os

def written(path):
    try:
        with open(path, "w"):
            return "written"
    except OSError as error:
        return error.strerror

print(json.dumps({
    "missing": os.environ.get("PENSTOCK_NO_CONTAINER_PATHS", ""),
    "base": os.environ.get("SAGEMAKER_BASE_DIR"),
    "weights": open("/opt/ml/model/weights").read() if os.path.isdir("/opt/ml/model") else None,
    "code": sorted(os.listdir("/opt/ml/code")) if os.path.isdir("/opt/ml") else None,
    "opt": sorted(os.listdir("/opt")),
    "written": [written(f"/opt/{name}") for name in ("ml/model/new", "ml/new", "new")],
    "user": os.getuid(),
}))
"""


def context_of(folder: Path, file: str = "code/inference.py") -> LoadContext:
    return LoadContext(
        model_dir=folder, description=ModelDescription(runtime="python", file=file),
        endpoint_name="e", variant_name="v", cores=1.0, memory_bytes_max=0,
    )  # fmt: skip


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter, with a model and `confined`."""
    folder = Path(tempfile.mkdtemp(prefix="container-paths-"))
    folder.chmod(0o755)
    python_model(folder / "model", "")
    (folder / "model" / "weights").write_text("mine")
    shutil.copy(confined.__file__, folder)
    (folder / "looks.py").write_text(LOOKS)
    yield folder
    shutil.rmtree(folder)


def look(place: Path, walls: Walls, user: int) -> dict[str, Any]:
    walls = replace(walls, container_model=str(place / "model"))
    told = walls.told()
    model_dir = str(place / "model")
    try:
        done = subprocess.run(
            [PYTHON, str(place / "confined.py"), str(told), "looks"],
            pass_fds=[told], capture_output=True, text=True, timeout=60, check=False,
            user=user, group=user, extra_groups=[],
            env={"PYTHONPATH": str(place), "SAGEMAKER_BASE_DIR": model_dir},
        )  # fmt: skip
    finally:
        os.close(told)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def may_leave(user: int) -> bool:
    """Whether this machine lets the user have a mount namespace."""
    code = (
        "import ctypes, sys; l = ctypes.CDLL(None)\n"
        "sys.exit(l.unshare(0x20000) and l.unshare(0x10020000))"
    )
    as_user = {} if user == os.geteuid() else {"user": user, "group": user, "extra_groups": []}
    return not subprocess.run([PYTHON, "-c", code], check=False, **as_user).returncode  # type: ignore[call-overload]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
@pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"there is no {PYTHON}")
@pytest.mark.parametrize("user", [0, NOBODY])
@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("files", [True, False])
def test_a_process_sees_its_model_where_a_container_has_it(
    place: Path, user: int, network: bool, files: bool
) -> None:
    if not may_leave(user):
        pytest.skip("this machine allows no mount namespaces")
    before = sorted(os.listdir("/opt"))
    read = ("/usr", "/lib", "/lib64", "/etc", "/opt", "/proc", str(place))
    walls = Walls(read, (), tuple(range(64)), files=files, network=network)
    seen = look(place, walls, user)
    assert seen == {
        "missing": "", "base": "/opt/ml", "weights": "mine", "code": ["inference.py"],
        "opt": sorted({*before, "ml"}), "user": user,
        "written": ["Read-only file system"] * 3,
    }  # fmt: skip
    assert sorted(os.listdir("/opt")) == before, "the machine's own folder"


def test_what_opt_holds_is_shown_with_all_that_is_there(tmp_path: Path) -> None:
    """Files, folders, links and an /opt/ml of the machine's own, in a folder that stands for it."""
    if os.geteuid() != 0 or not may_leave(0):
        pytest.skip("this machine allows no mount namespaces")
    opt, model = tmp_path / "opt", tmp_path / "model"
    (opt / "ml" / "input").mkdir(parents=True)
    (opt / "ml" / "model").mkdir()
    (opt / "ml" / "model" / "other").touch()
    (opt / "file").write_text("text")
    (opt / "link").symlink_to("file")
    model.mkdir()
    (model / "weights").touch()
    code = (
        f"import os, sys; sys.path.insert(0, {str(Path(confined.__file__).parent)!r})\n"
        f"import confined; confined._OPT = {str(opt)!r}\n"
        f"confined.show_as_container({str(model)!r}); os.chdir({str(opt)!r})\n"
        "print(sorted(os.listdir('.')), open('link').read(), sorted(os.listdir('ml')),"
        " os.listdir('ml/model'), os.readlink('ml/code'))"
    )
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False)
    expected = "['file', 'link', 'ml'] text ['code', 'input', 'model'] ['weights'] model\n"
    assert done.stdout == expected, done.stderr
    assert sorted(path.name for path in opt.rglob("*")) == sorted(
        ["file", "link", "ml", "input", "model", "other"]
    )


def test_where_it_is_impossible_the_process_goes_on_and_knows_why(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(confined, "_checked", refused)
    monkeypatch.setattr(confined.os, "environ", dict(os.environ))
    confined.show_or_say_why(str(place / "model"))
    assert confined.os.environ[confined.NO_CONTAINER_PATHS] == (
        "this machine does not allow it (Operation not permitted)"
    )


# Code that names the folder


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("import os\nopen('/opt/ml/model/weights')\n", 2),
        ("prefix = '/opt/ml/'\n", 1),
        ("path = f'/opt/ml/model/{1}'\n", 1),
        ("'''Reads /opt/ml/model.'''\n", 0),
        ("# /opt/ml/model\n", 0),
        ("import os\nd = os.environ.get('SM_MODEL_DIR', '/opt/ml/model')\n", 0),
        ("import os\nd = os.environ.get('MINE', '/opt/ml/model')\n", 2),
        ("open('/opt/mlx'.replace('x', ''))\n", 1),
        ("def broken(:\n", 0),
    ],
)
def test_code_that_names_the_folder_is_found_by_reading_it(
    tmp_path: Path, code: str, line: int
) -> None:
    context = context_of(python_model(tmp_path / "m", code))
    assert container_paths.named_in(context) == (f"code/inference.py:{line}" if line else "")
    assert may_share(context) is not bool(line)


def test_helpers_beside_the_code_are_read_too(tmp_path: Path) -> None:
    folder = python_model(tmp_path / "m", "import lib.paths")
    (folder / "code" / "lib").mkdir()
    (folder / "code" / "lib" / "paths.py").write_text("ROOT = '/opt/ml/model'\n")
    assert container_paths.named_in(context_of(folder)) == "code/lib/paths.py:1"
    (folder / "inference.py").write_text("")
    assert container_paths.named_in(context_of(folder, "inference.py")) == ""


def test_only_code_that_names_it_is_refused_where_it_is_missing(tmp_path: Path) -> None:
    folder = python_model(
        tmp_path / "m", "def model_fn(d): return 0\ndef predict_fn(d, m): return d"
    )
    init = {"model_dir": str(folder), "file": "code/inference.py", "name": "m"}
    SageMakerContract(init)
    with pytest.raises(ModelError) as caught:
        SageMakerContract(init | {"container_paths": "code/inference.py:7"})
    assert caught.value.code == "container-path-missing"
    assert "code/inference.py:7" in caught.value.message
    assert "SM_MODEL_DIR" in caught.value.hint


def test_all_walls_have_a_way_to_show_it(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    for walls in (None, Walls(("/usr",), (), (1,))):
        assert with_container_paths(walls, context).container_model == str(tmp_path)
    assert not with_container_paths(None, context).files
