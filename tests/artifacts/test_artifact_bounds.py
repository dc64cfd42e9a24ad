"""Paths, bytes, seconds and words: the small rules that every artifact meets."""

from __future__ import annotations

import errno
import hashlib
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from artifact_files import error_of

from penstock.artifacts.files.budget import DISK_RESERVE_BYTES, Budget, disk_errors
from penstock.artifacts.files.listing import Listing, SourceFile
from penstock.artifacts.files.paths import is_clutter, safe_path, shown
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource, shown_uri
from penstock.clock import ManualClock
from penstock.config import ServerConfig
from penstock.errors import CallerError, NotNowError
from penstock.runtimes.container.settings import ContainerSettings

# Paths


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a", "a"),
        ("a/b.bin", "a/b.bin"),
        ("./a", "a"),
        ("a/./b//c/", "a/b/c"),
        ("", ""),
        (".", ""),
        ("./", ""),
        ("..a", "..a"),
        ("a..", "a.."),
        (".hidden", ".hidden"),
        ("a b", "a b"),
        ("n\u00e4me", "n\u00e4me"),
        ("/".join(["d"] * 32), "/".join(["d"] * 32)),
        ("x" * 255, "x" * 255),
        ("\u00e4" * 127, "\u00e4" * 127),
        ("/".join(["x" * 127] * 8), "/".join(["x" * 127] * 8)),
        ("/".join(["x" * 127] * 7 + ["x" * 128]), "/".join(["x" * 127] * 7 + ["x" * 128])),
    ],
)
def test_a_plain_relative_path_is_accepted(name: str, path: str) -> None:
    assert safe_path(name, where="m") == path


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("/a", "it is absolute"),
        ("a\\b", "it contains a backslash"),
        ("a\nb", "it contains control or undecodable characters"),
        ("a\udcff", "it contains control or undecodable characters"),
        ("..", "it contains '..'"),
        ("a/../b", "it contains '..'"),
        ("a/..", "it contains '..'"),
        ("/".join(["d"] * 33), "it is more than 32 folders deep"),
        ("x" * 256, "one of its names is longer than 255 bytes"),
        ("\u00e4" * 128, "one of its names is longer than 255 bytes"),
        ("ok/" + "x" * 256, "one of its names is longer than 255 bytes"),
        ("/".join(["x" * 127] * 7 + ["x" * 129]), "it is longer than 1024 bytes"),
        ("/".join(["\u00e4" * 100] * 6), "it is longer than 1024 bytes"),
    ],
)
def test_any_other_path_is_refused_and_never_repaired(name: str, cause: str) -> None:
    error = error_of(lambda: safe_path(name, where="m"))
    assert (error.code, error.status) == ("artifact-path-unsafe", 400)
    assert error.message == f"m: the path {shown(name)} is refused: {cause}"


@pytest.mark.parametrize(
    ("path", "clutter"),
    [
        (".DS_Store", True),
        ("a/__MACOSX/b", True),
        (".git/config", True),
        ("code/__pycache__/a.pyc", True),
        ("a/._model.bin", True),
        ("._a/b", True),
        ("model.bin", False),
        (".gitignore", False),
        ("a._b", False),
        ("x/.env", False),
        ("DS_Store", False),
        ("", False),
    ],
)
def test_what_desktop_systems_leave_is_clutter(path: str, clutter: bool) -> None:
    assert is_clutter(path) is clutter


def test_a_name_in_a_message_is_one_short_line() -> None:
    assert shown("a\n\u00e4") == r"'a\n\xe4'"
    assert shown("x" * 118) == "'" + "x" * 118 + "'"
    assert shown("x" * 119) == "'" + "x" * 116 + "..."
    assert len(shown("x" * 119)) == 120


# Budgets


def some(**given: object) -> Budget:
    values: dict[str, object] = {"bytes_max": 100, "seconds_max": 10.0}
    return Budget("model", **(values | given))  # type: ignore[arg-type]


def test_bytes_are_counted_together_up_to_the_bound() -> None:
    budget = some()
    budget.take(60)
    budget.take(40)
    error = error_of(lambda: budget.take(1))
    assert (error.code, error.message) == (
        "artifact-too-large",
        "model: the artifact is more than 100 bytes; the bound is 100 bytes",
    )


def test_time_ends_at_its_bound() -> None:
    clock = ManualClock(monotonic_s=5.0)
    budget = some(clock=clock)
    assert budget.remaining_s() == 10.0
    clock.advance(9.5)
    budget.check()
    budget.take(1)
    assert budget.remaining_s() == 0.5
    clock.advance(0.5)
    assert budget.remaining_s() == 0.0
    for late in (budget.check, lambda: budget.take(1)):
        error = error_of(late)
        assert (error.code, error.message) == (
            "artifact-timeout",
            "model: not ready after 10 s",
        )
    clock.advance(5.0)
    assert budget.remaining_s() == 0.0


def test_what_nobody_wants_is_given_up() -> None:
    cancelled = threading.Event()
    budget = some(cancelled=cancelled)
    budget.check()
    cancelled.set()
    with pytest.raises(NotNowError) as caught:
        budget.take(1)
    assert caught.value.code == "artifact-cancelled"


def test_what_is_announced_as_too_large_is_refused_before_its_first_byte(tmp_path: Path) -> None:
    budget = some()
    budget.take(30)
    budget.expect(70, tmp_path)
    error = error_of(lambda: budget.expect(71, tmp_path))
    assert (error.code, error.message) == (
        "artifact-too-large",
        "model: the artifact is 71 bytes; the bound is 100 bytes",
    )
    budget.take(70)


def test_some_room_stays_free_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = some()
    free = DISK_RESERVE_BYTES + 50
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    budget.expect(50, tmp_path)
    error = error_of(lambda: budget.expect(51, tmp_path))
    assert error.code == "artifact-disk-full"
    assert "51 bytes are needed, 67108864 are to stay free, 67108914 are" in error.message


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (errno.ENOSPC, NotNowError, "artifact-disk-full"),
        (errno.EDQUOT, NotNowError, "artifact-disk-full"),
        (errno.EIO, NotNowError, "artifact-disk-failed"),
        (errno.EROFS, NotNowError, "artifact-disk-failed"),
        (errno.EACCES, CallerError, "artifact-disk-failed"),
    ],
)
def test_a_disk_that_fails_is_named_and_may_work_again(
    tmp_path: Path, number: int, kind: type, code: str
) -> None:
    def fail() -> None:
        with disk_errors("model", tmp_path):
            raise OSError(number, "words", str(tmp_path / "file"))

    error = error_of(fail)
    assert type(error) is kind
    assert (error.code, str(tmp_path) in error.message, "words" in error.message) == (
        code,
        True,
        True,
    )


def test_errors_of_ours_pass_unchanged(tmp_path: Path) -> None:
    ours = CallerError("some-code", "ours")
    with pytest.raises(CallerError) as caught, disk_errors("model", tmp_path):
        raise ours
    assert caught.value is ours


# Listings


def file(name: str, *, size: int = 1, stamp: str = "s", executable: bool = False) -> SourceFile:
    return SourceFile(
        name=name, size=size, stamp=stamp, executable=executable, chunks=lambda: iter(())
    )


def listing(*files: SourceFile, single: bool = False, settled: bool = True) -> Listing:
    return Listing(files=files, single=single, settled=settled)


def test_unless_said_otherwise_a_file_is_not_run_and_a_listing_is_as_it_will_stay() -> None:
    one = SourceFile(name="a", size=1, stamp="s", chunks=lambda: iter(()))
    assert not one.executable
    assert Listing(files=(one,), single=True).settled


def test_the_size_of_a_listing_is_that_of_its_files() -> None:
    assert listing(file("a", size=3), file("b", size=4)).size == 7
    assert listing().size == 0


def test_a_fingerprint_is_these_facts_and_no_others() -> None:
    facts = b'[false, [["a", 1, "s", false], ["b", 2, "t", true]]]'
    both = listing(file("a"), file("b", size=2, stamp="t", executable=True))
    assert both.fingerprint() == hashlib.sha256(facts).hexdigest()
    base = listing(file("a"))
    others = [
        listing(file("b")),
        listing(file("a", size=2)),
        listing(file("a", stamp="t")),
        listing(file("a", executable=True)),
        listing(file("a"), single=True),
        listing(file("a"), file("b")),
    ]
    assert len({each.fingerprint() for each in [base, *others]}) == 7
    assert listing(file("a")).fingerprint() == base.fingerprint()


def test_where_stamps_can_not_tell_there_is_no_fingerprint() -> None:
    assert listing(file("a"), settled=False).fingerprint() == ""
    assert listing(file("a"), file("b", stamp="")).fingerprint() == ""


# Where a model comes from


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("s3://bucket/key?x=1", "s3://bucket/key?x=1"),
        ("model/folder", "model/folder"),
        ("https://user:pass@host:8443/a/b?X-Amz-Signature=1#f", "https://host:8443/a/b"),
        ("HTTP://Host/a", "http://host/a"),
        ("https://[2001:db8::1]:1/a?b", "https://[2001:db8::1]:1/a"),
        ("https:///a?secret", "https:///a"),
        ("https://host:port/secret", "https:..."),
        ("https://[broken/secret", "https:..."),
    ],
)
def test_a_uri_is_shown_without_what_is_secret(uri: str, told: str) -> None:
    assert shown_uri(uri) == told
    assert ArtifactSource(uri=uri).shown_uri() == told


@pytest.mark.parametrize(
    ("uri", "trusted"),
    [
        ("s3://team/models", True),
        ("s3://team/models/a.tar.gz", True),
        ("s3://team/models-of-others/a", False),
        ("s3://team/model", False),
        ("s3://team/models/../others/a", False),
        ("s3://team/models/%2e%2e/others/a", False),
        ("s3://shelf/a", True),
        ("s3://shelf", False),
        ("", False),
    ],
)
def test_trust_ends_at_a_slash(uri: str, trusted: bool) -> None:
    settings = ArtifactSettings(trusted_artifacts=("", "s3://team/models", "s3://shelf/"))
    assert settings.trusts(uri) is trusted
    assert ArtifactSettings().trusts(uri) is False


def test_sources_and_settings_travel_as_json() -> None:
    source = ArtifactSource(
        uri="u", compressed=True, sha256="d", image="i", environment={"A": "1"}, runtime="r",
        trusted=True, seconds_max=3.0,
    )  # fmt: skip
    assert ArtifactSource.from_dict(source.to_dict()) == source
    settings = ArtifactSettings(
        s3_endpoint="e", s3_local={"b": "/p"}, image_commands={"i": ("a", "b")},
        trusted_artifacts=("t",), isolation=False, bytes_max=1, files_max=2, ratio_max=3.0,
        seconds_max=4.0,
    )  # fmt: skip
    assert ArtifactSettings.from_dict(settings.to_dict()) == settings
    assert settings.to_dict()["image_commands"] == {"i": ("a", "b")}
    assert ArtifactSettings.from_dict({}) == ArtifactSettings()
    assert settings.local_bucket("b") == Path("/p")
    assert settings.local_bucket("c") is None


def test_bounds_of_an_artifact_are_these() -> None:
    settings = ArtifactSettings.from_config(ServerConfig(state_dir=Path("/s")))
    assert replace(settings, containers=ContainerSettings()) == ArtifactSettings(closed=("/s",))
    assert settings.containers.engine == "auto"
    assert (settings.bytes_max, settings.files_max) == (274_877_906_944, 20_000)
    assert (settings.ratio_max, settings.seconds_max) == (200.0, 3600.0)
    assert settings.isolation
    source = ArtifactSource()
    assert (source.trusted, source.seconds_max, source.compressed) == (False, 0.0, None)
