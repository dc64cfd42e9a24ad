"""What a host expects a model to take: nothing is known of the first of its kind, and of others of
its size what that one took."""

from __future__ import annotations

import asyncio
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.kit import model_files

from penstock.core.models.memory_need import MemoryObserved
from penstock.core.residency import Footprint
from penstock.instance.loading.load import LoadCall, Prepared, prepared
from penstock.instance.memory import facts as records
from penstock.instance.models.memory import Needs
from penstock.instance.settings import InstanceSettings

MIB = 2**20
SEEN = MemoryObserved(load_bytes_max=50 * MIB, own_bytes_max=30 * MIB, ran=False)


@pytest.fixture
def settings(tmp_path: Path) -> InstanceSettings:
    return InstanceSettings(
        instance_id="i", address="unix:/none", cores=1.0, memory_bytes=0, cache_dir=tmp_path / "c"
    )


def brought(folder: Path, settings: InstanceSettings) -> Prepared:
    source = {"uri": folder.as_uri()}
    call = LoadCall.from_dict(
        {"copy": 1, "endpoint": "e", "variant": "v", "source": source}, settings
    )
    return asyncio.run(prepared(call, settings))


def forget_records(settings: InstanceSettings) -> None:
    """Of one content, which all of these have."""
    shutil.rmtree(settings.cache_dir / "memory-beside")


def test_a_model_alike_in_kind_and_size_is_known_once_one_was_loaded_beside_others(
    tmp_path: Path, settings: InstanceSettings
) -> None:
    """The first of its kind tells nothing: its libraries came with it."""
    first, second, third = (
        brought(model_files.affine(tmp_path / name), settings) for name in ("1", "2", "3")
    )
    needs = Needs(settings.cache_dir)
    assert not needs.of(first).sized
    needs.learn(first, MemoryObserved(load_bytes_max=500 * MIB, own_bytes_max=300 * MIB, ran=False))
    assert not needs.of(second).sized
    needs.learn(second, SEEN)
    forget_records(settings)
    expected = needs.of(third)
    assert (expected.measured, expected.sized) == (False, True)
    assert expected.need == Footprint(host_bytes=55 * MIB)
    assert expected.kept == Footprint(host_bytes=30 * MIB)


def test_of_code_no_size_of_files_tells_what_it_takes(
    tmp_path: Path, settings: InstanceSettings
) -> None:
    code = "def predict_fn(data, model):\n    return data\n"
    first = brought(model_files.code(tmp_path / "first", code), settings)
    twin = brought(model_files.code(tmp_path / "twin", code + "\n"), settings)
    needs = Needs(settings.cache_dir)
    needs.learn(first, SEEN)
    needs.learn(first, SEEN)
    assert not needs.of(twin).sized
    assert needs.of(first).sized, "it was measured itself"


def test_what_was_measured_before_is_known_once_its_libraries_are_here(
    tmp_path: Path, settings: InstanceSettings
) -> None:
    """They come with the first model of a kind, and what they take is seen then."""
    model = brought(model_files.affine(tmp_path / "model"), settings)
    before = Needs(settings.cache_dir)
    for _ in range(2):
        before.learn(model, SEEN)
    after_a_restart = Needs(settings.cache_dir)
    expected = after_a_restart.of(model)
    assert (expected.measured, expected.sized) == (True, False)
    assert expected.need == Footprint(host_bytes=(50 + 96) * MIB)
    after_a_restart.learn(model, SEEN)
    expected = after_a_restart.of(model)
    assert (expected.measured, expected.sized) == (True, True)
    assert expected.need == Footprint(host_bytes=50 * MIB)


def test_of_the_first_of_a_runtime_its_libraries_are_not_its_own(
    tmp_path: Path, settings: InstanceSettings
) -> None:
    """They stay when it goes. Was what it took with them its need for good, then each load of this
    one model threw out all others."""
    model = brought(model_files.affine(tmp_path / "model"), settings)
    needs = Needs(settings.cache_dir)
    with_libraries = MemoryObserved(load_bytes_max=118 * MIB, own_bytes_max=100 * MIB, ran=False)
    assert needs.learn(model, with_libraries) == Footprint(host_bytes=(100 - 96) * MIB)
    assert not needs.of(model).measured
    assert needs.learn(model, SEEN) == Footprint(host_bytes=30 * MIB)
    assert needs.of(model).need == Footprint(host_bytes=50 * MIB)


def test_what_one_thread_learns_disturbs_no_other_that_asks(
    tmp_path: Path, settings: InstanceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models are prepared in threads while others have just been loaded."""
    model = brought(model_files.affine(tmp_path / "model"), settings)
    needs = Needs(settings.cache_dir)
    monkeypatch.setattr(records, "read", lambda path: None)  # else nobody asks about its kin
    monkeypatch.setattr(records, "write", lambda path, seen: None)
    for _ in range(16):  # as many as are remembered
        needs.learn(model, SEEN)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            calls = []
            for _ in range(1000):
                calls.append(threads.submit(needs.of, model))
                calls.append(threads.submit(needs.learn, model, SEEN))
            errors = [each.exception() for each in calls]
    finally:
        sys.setswitchinterval(interval_s)
    assert errors == [None] * 2000
