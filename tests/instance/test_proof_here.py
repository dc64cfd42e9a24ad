"""A compiled artifact on a processor of another kind: asked once, remembered, never refused."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import model_files
from tests.kit.instances import instance

from penstock.artifacts.detection.detect import detect
from penstock.compile.contract import Tolerance
from penstock.compile.proof.samples import BYTES_MAX, FILE, read_samples, write_samples
from penstock.core.models.instruction_sets import Proof
from penstock.errors import ModelError
from penstock.instance.loading.proof_here import proof_here
from penstock.runtimes.base import LoadContext
from penstock.runtimes.loader import load_tensor_runtime
from penstock.runtimes.processor import instruction_set_here

TOLERANCE = {"difference_max": 1e-3, "difference_mean": 1e-4, "agreement_min": 1.0}
ELSEWHERE = "ANOTHER_SET"


def answer(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"y": x @ model_files.weights()}


def batches() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=(rows, 4)).astype(np.float32) for rows in (1, 3, 8)]


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """As `penstock compile` leaves one, under an instruction set that no processor has."""
    root = model_files.affine(tmp_path / "model")
    with (root / "model.yaml").open("a") as described:
        described.write("precision: f32\n")  # as a target has it: none leaves it to the processor
    report(root, ELSEWHERE)
    asked = [({"x": x}, answer(x)) for x in batches()]
    written = write_samples(
        root, asked, [out for _, out in asked], detect(root).description, Tolerance(**TOLERANCE)
    )
    assert written == 3
    return root


def report(root: Path, instruction_set: str | None) -> None:
    told: dict[str, Any] = {"parity": {"tolerance": TOLERANCE}, "instruction_set": instruction_set}
    (root / "report.json").write_text(json.dumps(told))


def answer_otherwise(root: Path) -> None:
    """What another processor's code may do, here by other answers of the source."""
    asked = [({"x": x}, {"y": answer(x)["y"] * 1.1}) for x in batches()]
    write_samples(
        root, asked, [out for _, out in asked], detect(root).description, Tolerance(**TOLERANCE)
    )


class CountingProof:
    """A real runtime that counts its runs."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self.runs = 0

    def run(self, lane: int, inputs: Any) -> Any:
        self.runs += 1
        return self._runtime.run(lane, inputs)


@pytest.fixture
def runtime(artifact: Path) -> Iterator[CountingProof]:
    loaded = load_tensor_runtime(context(artifact))
    yield CountingProof(loaded)
    loaded.close()


def context(root: Path) -> LoadContext:
    return LoadContext(
        model_dir=root,
        description=detect(root).description,
        endpoint_name="shop",
        variant_name="all",
        cores=1.0,
        memory_bytes_max=0,
        cache_dir=root.parent / "cache",
    )


def proved(root: Path, runtime: Any) -> Proof:
    found = proof_here(context(root), runtime)
    assert found is not None
    return found


def test_where_it_was_compiled_nothing_is_asked(artifact: Path, runtime: CountingProof) -> None:
    report(artifact, instruction_set_here().name)
    assert proved(artifact, runtime).state == "proved-here"
    assert runtime.runs == 0


def test_elsewhere_its_samples_are_asked_once(artifact: Path, runtime: CountingProof) -> None:
    found = proved(artifact, runtime)
    assert (found.state, found.proved_on) == ("checked-here", ELSEWHERE)
    assert runtime.runs == 3
    assert proved(artifact, runtime) == found
    assert runtime.runs == 3


def test_a_marker_that_is_damaged_is_asked_again(artifact: Path, runtime: CountingProof) -> None:
    proved(artifact, runtime)
    (marker,) = (artifact.parent / "cache" / "proved").iterdir()
    marker.write_bytes(b"{")
    assert proved(artifact, runtime).state == "checked-here"
    assert runtime.runs == 6


def test_answers_outside_of_the_tolerance_are_not_called_proved(
    artifact: Path, runtime: CountingProof, caplog: pytest.LogCaptureFixture
) -> None:
    answer_otherwise(artifact)
    with caplog.at_level(logging.INFO):
        found = proved(artifact, runtime)
    assert found.state == "not-proved"
    assert "largest difference" in found.detail
    (line,) = [each for each in caplog.records if each.name.endswith("proof_here")]
    assert line.levelno == logging.WARNING
    assert "shop/all: proved on ANOTHER_SET, and NOT equal to its source" in line.message
    assert proved(artifact, runtime) == found  # a failure is remembered as well


def test_a_changed_artifact_is_asked_again(artifact: Path, runtime: CountingProof) -> None:
    assert proved(artifact, runtime).state == "checked-here"
    answer_otherwise(artifact)
    status = (artifact / FILE).stat()  # as long as before, and on a coarse clock as old
    os.utime(artifact / FILE, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert proved(artifact, runtime).state == "not-proved"


@pytest.mark.parametrize("said", [ELSEWHERE, None])
def test_an_artifact_without_samples_is_proved_elsewhere(
    artifact: Path, runtime: CountingProof, said: str | None
) -> None:
    (artifact / FILE).unlink()
    report(artifact, said)
    found = proved(artifact, runtime)
    assert (found.state, found.proved_on) == ("proved-elsewhere", said or "")


def test_a_model_that_writes_text_is_proved_elsewhere_or_here(artifact: Path) -> None:
    """Nothing of it is asked: it has no samples."""
    assert told_of(artifact).state == "proved-elsewhere"
    report(artifact, instruction_set_here().name)
    assert told_of(artifact).state == "proved-here"


def told_of(artifact: Path) -> Proof:
    found = proof_here(context(artifact))
    assert found is not None
    return found


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"x" * 1000])
def test_samples_that_cannot_be_read_prove_nothing_and_harm_nothing(
    artifact: Path, runtime: CountingProof, content: bytes
) -> None:
    (artifact / FILE).write_bytes(content)
    found = proved(artifact, runtime)
    assert (found.state, found.detail[: len(FILE)]) == ("proved-elsewhere", FILE)


def test_samples_of_another_model_prove_nothing(artifact: Path, runtime: CountingProof) -> None:
    np.savez(artifact / FILE, **{"0/in/x": batches()[0], "0/out/z": batches()[0]})  # type: ignore[arg-type]
    assert proved(artifact, runtime).state == "proved-elsewhere"


def test_what_was_not_compiled_by_us_is_not_spoken_of(
    artifact: Path, runtime: CountingProof
) -> None:
    (artifact / "report.json").unlink()
    assert proof_here(context(artifact), runtime) is None


def test_samples_are_bounded_and_right_where_they_are_written(artifact: Path) -> None:
    """A batch that the artifact itself misses, and what does not fit, stay out."""
    description, limits = detect(artifact).description, Tolerance(**TOLERANCE)
    good, wide = batches()[0], np.zeros((BYTES_MAX // 16, 4), dtype=np.float32)
    asked = [({"x": x}, answer(x)) for x in (good, batches()[1], wide, good)]
    ours = [asked[0][1], {"y": asked[1][1]["y"] + 1.0}, asked[2][1], asked[3][1]]
    assert write_samples(artifact, asked, ours, description, limits) == 1
    ((inputs, out),) = read_samples(artifact)
    assert np.array_equal(inputs["x"], good)
    assert np.array_equal(out["y"], answer(good)["y"])


def test_an_archive_that_unpacks_to_more_is_not_read(artifact: Path) -> None:
    zeros = np.zeros((1 << 20, 4), dtype=np.float32)
    np.savez_compressed(artifact / FILE, **{"0/in/x": zeros, "0/out/y": zeros})  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="more than"):
        read_samples(artifact)


def test_an_instance_tells_what_it_found(
    artifact: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In the status of its copies, and where a copy is explained."""
    answer_otherwise(artifact)
    with instance(tmp_path_factory.mktemp("moved")) as running:
        client = running.client()
        assert client.load(1, artifact).get("ok")
        (copy,) = client.control(op="status")["copies"]
        explained = client.control(op="explain", copy=1)
    assert copy["proof"]["state"] == "not-proved"
    assert copy["proof"]["proved_on"] == ELSEWHERE
    assert explained["proof"] == copy["proof"]
