"""The fence around the server's own places: by whatever name, and when a link comes in between."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.sources.fetch import local_place, look
from penstock.artifacts.sources.local_files import open_unchanged
from penstock.artifacts.sources.places import Fence, file_mode, make_folders
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.durable_files import replace_file
from penstock.errors import CallerError, PenstockError


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    (folder / "cache").mkdir(parents=True)
    (folder / "keys.key").write_bytes(b"secret")
    return folder


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


def refused(fence: Fence, path: Path) -> str:
    with pytest.raises(CallerError) as raised:
        fence.check(path, "it")
    return raised.value.code


def budget(uri: str = "it") -> Budget:
    return Budget(uri, bytes_max=2**30, seconds_max=60.0)


@pytest.mark.parametrize("below", ["", "keys.key", "cache/not/there", "new"])
def test_what_is_closed_is_closed_by_every_name(state: Path, mine: Path, below: str) -> None:
    fence = Fence((str(state),))
    (mine / "link").symlink_to(state)
    (mine / "twice").symlink_to(mine / "link")
    names = (
        state, mine / "link", mine / "twice", mine / ".." / "state", Path(f"//{state}"),
        Path(f"/proc/self/root{state}"),
    )  # fmt: skip
    for name in names:
        assert refused(fence, name / below) == "place-refused", name
    fence.check(mine / "file", "it")
    fence.check(state.with_name("state-of-others"), "it")


def test_a_state_directory_that_is_named_by_a_link_is_closed_where_it_is(
    state: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(state)
    assert refused(Fence((str(link),)), state / "keys.key") == "place-refused"


def test_a_bind_mount_of_the_state_directory_is_closed(state: Path, mine: Path) -> None:
    """Its path is another one, in truth: only device and inode say what it is."""
    place = mine / "mounted"
    place.mkdir()
    if subprocess.run(
        ["mount", "--bind", state, place], capture_output=True, check=False
    ).returncode:
        pytest.skip("this user may not mount")
    try:
        assert refused(Fence((str(state),)), place / "keys.key") == "place-refused"
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/1/mem", "/dev/stdin", "/dev/fd/0", "/sys/kernel", "/dev"]
)
def test_the_systems_own_places_are_nobodys_data(path: str) -> None:
    assert refused(Fence(), Path(path)) == "place-refused"


def test_our_temporary_folders_are_closed(mine: Path) -> None:
    top = Path(tempfile.gettempdir())
    for name in (f"penstock-{os.getuid()}", "penstock-run-x", "penstock-model-x"):
        assert refused(Fence(), top / name / "file") == "place-refused"
    Fence().check(top / "penstock-examples" / "file", "it")


def test_a_folder_in_a_bucket_that_becomes_a_link_does_not_lead_out_of_it(mine: Path) -> None:
    """Each fence that was put up stays, whatever the folder of the next one is by then."""
    bucket = Fence().inside(mine)
    (mine / "out").symlink_to(mine.parent)
    assert refused(bucket.inside(mine / "out"), mine / "out" / "a") == "artifact-link-refused"


def test_a_hard_link_to_a_file_of_ours_is_not_read(state: Path, mine: Path) -> None:
    os.link(state / "keys.key", mine / "data.csv")
    settings = ArtifactSettings(closed=(str(state),))
    with pytest.raises(CallerError) as raised:
        look((mine / "data.csv").as_uri(), settings, budget())
    assert raised.value.code == "place-refused"


def test_a_folder_that_holds_what_is_closed_is_not_listed(state: Path, tmp_path: Path) -> None:
    with pytest.raises(CallerError) as raised:
        look(tmp_path.as_uri(), ArtifactSettings(closed=(str(state),)), budget("file:///mine/"))
    assert raised.value.code == "place-refused"
    assert raised.value.message.startswith("file:///mine/state: nothing is read or written there")
    assert "not above it" in raised.value.hint


def test_a_link_that_came_since_it_was_listed_is_not_followed(state: Path, mine: Path) -> None:
    """The file's folder becomes a link: what is opened is looked at again."""
    settings = ArtifactSettings(closed=(str(state),))
    (mine / "keys.key").write_bytes(b"mine")
    place = local_place((mine / "keys.key").as_uri(), settings, budget())
    assert place is not None
    [file] = look(mine.as_uri(), settings, budget()).files
    mine.rename(mine.with_name("moved"))
    mine.symlink_to(state)
    with pytest.raises(PenstockError) as raised:
        list(file.chunks())
    assert raised.value.code in ("place-refused", "artifact-link-refused")
    with (
        pytest.raises(CallerError) as refusal,
        open_unchanged(place.path, file.stamp, "it", place.fence),
    ):
        pass
    assert refusal.value.code == "place-refused"


def test_what_is_written_goes_into_the_folder_that_was_checked(state: Path, mine: Path) -> None:
    """The folder is moved away, and a link stands in its place, between check and write."""
    fence = Fence((str(state),))
    with fence.folder(mine / "out", "it") as folder:
        (mine / "out").rename(mine / "moved")
        (mine / "out").symlink_to(state)
        replace_file(folder / "keys.key", (b"mine",), mode=file_mode(folder))
    assert (state / "keys.key").read_bytes() == b"secret"
    assert (mine / "moved" / "keys.key").read_bytes() == b"mine"
    with pytest.raises(CallerError), fence.folder(mine / "out", "it"):
        pass


@pytest.mark.parametrize("kind", ["link", "hard link"])
def test_a_draft_that_is_a_link_is_not_written_through(state: Path, mine: Path, kind: str) -> None:
    """Who may write beside an output could have put it there."""
    draft = mine / ".a.out.new"
    draft.symlink_to(state / "keys.key") if kind == "link" else os.link(state / "keys.key", draft)
    replace_file(mine / "a.out", (b"mine",))
    assert (state / "keys.key").read_bytes() == b"secret"
    assert (mine / "a.out").read_bytes() == b"mine"


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize(
    ("folder_mode", "mode", "made"),
    [(0o700, 0o600, 0o700), (0o750, 0o640, 0o750), (0o755, 0o644, 0o755), (0o701, 0o604, 0o705)],
)
def test_what_is_made_is_open_to_those_only_whom_its_folder_is_open_to(
    mine: Path, folder_mode: int, mode: int, made: int
) -> None:
    mine.chmod(folder_mode)
    make_folders(mine / "a" / "b")
    assert [stat.S_IMODE(each.stat().st_mode) for each in (mine / "a", mine / "a" / "b")] == [
        made, made,
    ]  # fmt: skip
    replace_file(mine / "file", (b"x",), mode=file_mode(mine))
    assert stat.S_IMODE((mine / "file").stat().st_mode) == mode
