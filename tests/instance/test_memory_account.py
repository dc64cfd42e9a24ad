"""What a model's need is estimated from, and what is remembered of a load."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.kit import triton_files

from penstock.artifacts.description.description import EngineOptions, Generation, ModelDescription
from penstock.artifacts.detection.detect import detect
from penstock.core.models.memory_need import MemoryObserved, ModelFacts
from penstock.instance.loading.load import Prepared
from penstock.instance.memory import facts as records
from penstock.instance.memory.account import MemoryAccount
from penstock.instance.memory.facts import facts_of
from penstock.instance.memory.use import MemoryUse
from penstock.runtimes.base import LoadContext
from penstock.runtimes.openvino.record import RECORD as OPENVINO


def context(folder: Path, runtime: str = "openvino", **fields: object) -> LoadContext:
    description = ModelDescription(runtime=runtime, **fields)  # type: ignore[arg-type]
    return LoadContext(
        model_dir=folder,
        description=description,
        endpoint_name="e",
        variant_name="v",
        cores=2.0,
        memory_bytes_max=16 << 30,
    )


def files(folder: Path, **sizes: int) -> Path:
    """`model_onnx=3` is model.onnx with 3 bytes."""
    for name, size in sizes.items():
        path = folder / name.replace("__", "/").replace("_", ".", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return folder


def test_the_models_that_an_ensemble_calls_count_beside_it(tmp_path: Path) -> None:
    root = triton_files.embeddings(tmp_path)
    (root / "letters" / "1" / "weights.bin").write_bytes(bytes(1000))
    detected = detect(root)
    given = dataclasses.replace(
        context(tmp_path), model_dir=detected.root, description=detected.description
    )
    facts = facts_of(given)
    assert (facts.library, facts.file_bytes) == ("ensemble", 0)
    assert [each.library for each in facts.inside] == ["onnxruntime", "python", "onnxruntime"]
    graph = (root / "large" / "1" / "model.onnx").stat().st_size
    assert facts.inside[0].file_bytes == graph
    assert facts.inside[1].file_bytes > 1000


def test_only_the_served_graph_and_its_data_count(tmp_path: Path) -> None:
    """A folder may carry a model in several precisions, and what it was made from."""
    files(tmp_path, model_onnx=10, model_onnx_data=100, other_onnx=1000, model_safetensors=1000)
    facts = facts_of(context(tmp_path, file="model.onnx"))
    assert facts == ModelFacts(library="openvino", rule=OPENVINO.memory, file_bytes=110)


def test_ir_is_a_graph_and_its_weights(tmp_path: Path) -> None:
    files(tmp_path, encoder_xml=1, encoder_bin=10, decoder_xml=2, decoder_bin=20, old_bin=1000)
    facts = facts_of(context(tmp_path, file="encoder.xml"))
    rule = OPENVINO.memory_of[".xml"]
    assert facts == ModelFacts(library="openvino", rule=rule, file_bytes=11)
    facts = facts_of(context(tmp_path, "seq2seq", file="decoder.xml", generation=Generation()))
    assert (facts.library, facts.file_bytes) == ("seq2seq", 33)


def test_code_may_read_all_of_its_artifact_in_each_worker(tmp_path: Path) -> None:
    files(tmp_path, code__inference_py=5, weights__a_bin=100)
    facts = facts_of(context(tmp_path, "python", lanes=3))
    assert (facts.library, facts.file_bytes, facts.processes) == ("python", 105, 3)


def test_a_cache_that_is_taken_at_the_start_counts(tmp_path: Path) -> None:
    files(tmp_path, model_safetensors=7, config_json=1)
    facts = facts_of(context(tmp_path, "vllm", engine=EngineOptions(cache_bytes=99)))
    assert (facts.library, facts.file_bytes, facts.cache_bytes) == ("vllm", 7, 99)


def test_what_is_not_there_counts_nothing(tmp_path: Path) -> None:
    assert facts_of(context(tmp_path, file="gone/model.onnx")).file_bytes == 0
    assert facts_of(context(tmp_path, "process")).file_bytes == 0


def test_a_record_is_of_one_content_served_in_one_way(tmp_path: Path) -> None:
    plain = context(tmp_path, file="model.onnx")
    paths = {
        records.record_path(tmp_path, digest, one)
        for digest in ("a", "b")
        for one in (plain, context(tmp_path, file="model.onnx", lanes=2))
    }
    assert len(paths) == 4
    assert records.record_path(tmp_path, "a", plain) in paths


def test_what_can_not_be_read_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "memory" / "a.json"
    assert records.read(path) is None
    seen = MemoryObserved(load_bytes_max=3, own_bytes_max=2, ran=True)
    records.write(path, seen)
    assert records.read(path) == seen
    for torn in ("", "{}", "[1]", '{"load_bytes_max": "x"}'):
        path.write_text(torn)
        assert records.read(path) is None
    records.write(tmp_path / "memory" / "a.json" / "below a file", seen)  # no exception


async def test_a_copy_that_has_not_run_teaches_nothing_to_one_that_had(tmp_path: Path) -> None:
    model = Prepared(context(files(tmp_path, model_onnx=10), file="model.onnx"), "digest")
    path = records.record_path(tmp_path, "digest", model.context)
    known = MemoryObserved(load_bytes_max=3 << 40, own_bytes_max=2 << 40, ran=True)
    records.write(path, known)
    account = MemoryAccount(MemoryUse(), tmp_path)
    assert account.need(model).basis == "measured"
    async with account.loading(model):
        pass
    account.note(ran=False)
    await account.written()
    assert records.read(path) == known
    account.note(ran=True)
    await account.written()
    fresh = records.read(path)
    assert fresh is not None
    assert fresh.ran
    assert 0 < fresh.own_bytes_max < 2 << 40  # of this process
