"""Environments of a machine: built once, whole or not at all, kept while in use, evicted by use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.environments import wheel
from tests.kit.polling import wait_until
from tests.kit.processes import runs

from penstock.artifacts.description.description import ModelDescription
from penstock.errors import CallerError, ModelError, NotNowError, PenstockError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.environments.installer import uv_names_index
from penstock.runtimes.environments.provide import Provider
from penstock.runtimes.environments.settings import EnvironmentSettings
from penstock.runtimes.environments.store import EnvironmentLease, EnvironmentStore

CODE = "code/inference.py"


def model(folder: Path, version: str = "1.0", *, lines: str = "--no-index\ntiny\n") -> Path:
    """An artifact whose requirement is beside it."""
    wheel(folder / "code" / "wheels", "tiny", version, {"tiny.py": f"VERSION = {version!r}\n"})
    (folder / "code" / "requirements.txt").write_text(lines)
    return folder


def context_of(root: Path, log: list[str] | None = None, **description: object) -> LoadContext:
    described = {"runtime": "python", "task": "payload", "file": CODE} | description
    return LoadContext(
        model_dir=root,
        description=ModelDescription(**described),  # type: ignore[arg-type]
        endpoint_name="e",
        variant_name="v",
        cores=1,
        memory_bytes_max=0,
        log=(log if log is not None else []).append,
    )


def provide(
    store: Path, root: Path, log: list[str] | None = None, **settings: object
) -> EnvironmentLease:
    provider = Provider(store, EnvironmentSettings(**settings))  # type: ignore[arg-type]
    lease = provider.provide(context_of(root, log), threading.Event(), seconds=300)
    assert lease is not None
    return lease


def printed(lease: EnvironmentLease, code: str) -> str:
    argv = [lease.made.interpreter, "-I", "-c", code]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def builds(log: list[str]) -> int:
    return sum("built once" in line for line in log)


def left_over(store: Path) -> list[str]:
    """Folders that no link leads to."""
    linked = {os.readlink(each) for each in store.iterdir() if each.is_symlink()}
    return [each.name for each in store.glob("[!.]*.*/") if each.name not in linked]


def test_equal_requirements_are_built_once(tmp_path: Path) -> None:
    log: list[str] = []
    leases = [
        provide(tmp_path / "store", model(tmp_path / name, lines=lines), log)
        for name, lines in (("a", "--no-index\ntiny\n"), ("b", "# the same\nTiny\n--no-index"))
    ]
    assert builds(log) == 1
    assert leases[0].made == leases[1].made
    assert printed(leases[0], "import tiny; print(tiny.VERSION)") == "1.0"
    assert printed(leases[0], "import numpy, orjson; print(1)") == "1"
    assert left_over(tmp_path / "store") == []


def test_an_environment_built_through_a_link_outlives_the_link(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to("store")
    log: list[str] = []
    provide(tmp_path / "link", model(tmp_path / "a"), log).close()
    (tmp_path / "link").unlink()
    lease = provide(tmp_path / "store", model(tmp_path / "b"), log)
    assert printed(lease, "import tiny; print(tiny.VERSION)") == "1.0"
    assert builds(log) == 1


def test_after_its_folder_was_moved_an_environment_is_built_anew(tmp_path: Path) -> None:
    log: list[str] = []
    provide(tmp_path / "store", model(tmp_path / "a"), log).close()
    (tmp_path / "store").rename(tmp_path / "moved")
    lease = provide(tmp_path / "moved", model(tmp_path / "b"), log)
    assert printed(lease, "import tiny; print(tiny.VERSION)") == "1.0"
    assert builds(log) == 2
    assert left_over(tmp_path / "moved") == []


def test_the_server_s_own_environment_is_not_touched(tmp_path: Path) -> None:
    freeze = [sys.executable, "-m", "pip", "freeze", "--all"]
    before = subprocess.run(freeze, capture_output=True, check=True).stdout
    lease = provide(tmp_path / "store", model(tmp_path / "m"))
    assert printed(lease, "import importlib.util as u; print(u.find_spec('msgspec'))") == "None"
    assert subprocess.run(freeze, capture_output=True, check=True).stdout == before


def test_a_failed_build_is_remembered_with_its_reason(tmp_path: Path) -> None:
    root, log = model(tmp_path / "m", lines="--no-index\ntiny==9.9\n"), []
    for _ in range(2):
        with pytest.raises(ModelError) as failed:
            provide(tmp_path / "store", root, log)
        assert failed.value.code == "environment-failed"
        assert "tiny==9.9" in failed.value.message
    assert builds(log) == 1
    assert left_over(tmp_path / "store") == []
    for each in (tmp_path / "store").glob("*.failed"):
        os.utime(each, (1, 1))  # long ago
    with pytest.raises(ModelError):
        provide(tmp_path / "store", root, log)
    assert builds(log) == 2


def test_what_is_used_least_recently_is_evicted_and_what_is_in_use_stays(tmp_path: Path) -> None:
    store = tmp_path / "store"
    first, second = (
        provide(store, model(tmp_path / version, version)) for version in ("1.0", "2.0")
    )
    assert EnvironmentStore(store).evict(0) == []
    first.close()
    assert EnvironmentStore(store).evict(0) == [first.made.key]
    assert not Path(first.made.interpreter).exists()
    assert printed(second, "import tiny; print(tiny.VERSION)") == "2.0"
    again = provide(store, tmp_path / "1.0")
    assert printed(again, "import tiny; print(tiny.VERSION)") == "1.0"


BUILDER = """
import sys, threading
from pathlib import Path
from tests.runtimes.test_environment_store import provide
log = []
lease = provide(Path(sys.argv[1]), Path(sys.argv[2]), log)
print(sum("built once" in line for line in log), lease.made.interpreter)
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for each in processes:
        each.kill()
        each.wait()


def begin(started: list[subprocess.Popen[str]], store: Path, root: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", BUILDER, str(store), str(root)]
    here = str(Path(__file__).resolve().parents[2])
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=here)
    started.append(process)
    return process


def test_of_two_processes_one_builds(tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    root = model(tmp_path / "m")
    both = [begin(started, tmp_path / "store", root) for _ in range(2)]
    told = [each.communicate(timeout=120)[0].split() for each in both]
    assert sorted(each[0] for each in told) == ["0", "1"]
    assert told[0][1] == told[1][1]


def source_model(folder: Path, code: str) -> Path:
    """An artifact whose package must be built from sources, which runs `code`."""
    source = folder / "source" / "slow-1.0"
    source.mkdir(parents=True)
    (source / "backend.py").write_text(f"{code}\n")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    wheels = folder / "code" / "wheels"
    wheels.mkdir(parents=True)
    with tarfile.open(wheels / "slow-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "slow-1.0")
    (folder / "code" / "requirements.txt").write_text("--no-index\nslow\n")
    return folder


def test_a_killed_build_leaves_nothing_that_is_used(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    store, root = tmp_path / "store", model(tmp_path / "m")
    process = begin(started, store, root)
    wait_until(lambda: bool(left_over(store) if store.exists() else False))
    process.send_signal(signal.SIGKILL)
    process.wait()
    log: list[str] = []
    lease = provide(store, root, log)
    assert printed(lease, "import tiny; print(tiny.VERSION)") == "1.0"
    assert left_over(store) == []


#: Says that it runs, and never ends.
WAITS = """
import os, time
with open(os.path.join(os.environ["TMPDIR"], "waits"), "w") as file:
    file.write(str(os.getpid()))
time.sleep(3600)
"""


def test_a_cancelled_build_ends_its_processes_and_leaves_nothing(tmp_path: Path) -> None:
    store, cancelled = tmp_path / "store", threading.Event()
    root, failures = source_model(tmp_path / "m", WAITS), []

    def work() -> None:
        try:
            provider = Provider(store, EnvironmentSettings())
            provider.provide(context_of(root), cancelled, seconds=300)
        except PenstockError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:

        def waiting() -> str:
            return "".join(says.read_text() for says in store.glob("*.scratch/tmp/waits"))

        wait_until(waiting, "the build", 60)
        pid = int(waiting())
    finally:
        cancelled.set()
        thread.join(60)
    assert [each.code for each in failures] == ["environment-cancelled"]
    assert isinstance(failures[0], NotNowError)
    wait_until(lambda: not runs(pid))
    assert left_over(store) == []
    assert not list(store.glob("*.failed"))  # nothing is wrong with it


#: Tries what a package's own code must not be able to do while it is built, and says what it did.
HOSTILE = """
import os
def tried(what):
    try:
        return repr(what())
    except BaseException as error:
        return type(error).__name__
print("SECRET", os.environ.get("AWS_SECRET_ACCESS_KEY"), os.environ.get("PENSTOCK_KEY"))
print("KEY", tried(lambda: open({secret!r}).read()))
print("WRITTEN", tried(lambda: open({secret!r} + ".new", "w").write("x")))
raise SystemExit(1)
"""


def test_code_of_a_package_is_built_behind_walls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abc")
    monkeypatch.setenv("PENSTOCK_KEY", "abc")
    root = source_model(tmp_path / "m", HOSTILE.format(secret=str(secret)))
    log: list[str] = []
    with pytest.raises(ModelError):
        provide(tmp_path / "store", root, log)
    said = "\n".join(log)
    assert "SECRET None None" in said
    assert "KEY PermissionError" in said
    assert "WRITTEN PermissionError" in said
    assert not (tmp_path / "secret.new").exists()


def test_sources_are_not_built_where_the_operator_forbids_it(tmp_path: Path) -> None:
    root = source_model(tmp_path / "m", "raise SystemExit('it ran')")
    log: list[str] = []
    with pytest.raises(ModelError):
        provide(tmp_path / "store", root, log, sources=False)
    assert "it ran" not in "\n".join(log)


def test_too_large_and_too_slow_are_named(tmp_path: Path) -> None:
    root = model(tmp_path / "m")
    with pytest.raises(ModelError) as large:
        provide(tmp_path / "a", root, each_bytes_max=1 << 20)
    assert large.value.code in ("environment-too-large", "environment-failed")
    with pytest.raises(ModelError) as slow:
        provide(tmp_path / "b", root, seconds_max=0.01)
    assert slow.value.code == "environment-timeout"
    assert left_over(tmp_path / "b") == []


def test_a_python_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    provider = Provider(tmp_path / "store", EnvironmentSettings())
    context = context_of(model(tmp_path / "m"), python="3.99")
    with pytest.raises(CallerError) as refused:
        provider.provide(context, threading.Event(), seconds=60)
    assert refused.value.code == "python-unavailable"
    assert ".".join(map(str, sys.version_info[:3])) in refused.value.message


@pytest.mark.parametrize(
    ("variables", "text", "named"),
    [
        ({"UV_DEFAULT_INDEX": "https://index.example"}, "", True),
        ({"PIP_INDEX_URL": "https://index.example"}, "", False),
        ({}, "[[index]]\nurl = 'https://index.example'\n", True),
        ({}, "[pip]\nextra-index-url = ['https://index.example']\n", True),
        ({}, "native-tls = true\n", False),
        ({}, "no TOML", False),
    ],
)
def test_an_index_of_uvs_is_seen_in_its_own_settings(
    tmp_path: Path, variables: dict[str, str], text: str, named: bool
) -> None:
    settings = tmp_path / "uv.toml"
    settings.write_text(text)
    assert uv_names_index({"UV_CONFIG_FILE": str(settings), **variables}) is named
