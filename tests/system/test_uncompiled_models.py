"""Weights from Hugging Face, deployed as they are on a server whose Python has no PyTorch.

They are compiled in an environment of ours, a real one, which is built once for all tests of this
tree; what the endpoints answer is what transformers answers.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.environments import printed_by, share_environments
from tests.kit.multi_model import create_multi_model
from tests.kit.servers import Server, penstock

from penstock.compile.libraries import missing
from penstock.compile.targets import AUTO, target_of

MAKER = Path(__file__).parent / "scripts" / "hugging_face_folders.py"
TEXT = {"inputs": "where is my order"}
WRITING = TEXT | {"parameters": {"max_new_tokens": 8}}
KINDS = ("classifier", "embedder", "t5", "llama")
#: What a format may differ by: that which this processor gets without being asked.
APART = target_of(AUTO).tolerance.difference_max
#: The first test builds the environment: two minutes beside other work.
SECONDS = 600

pytestmark = [
    pytest.mark.system,
    pytest.mark.integration,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not missing(), reason="the extra `compile` is installed here"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with one of each kind, and transformers' answers."""
    folder = tmp_path_factory.mktemp("saved")
    answers = printed_by("compile", str(MAKER), str(folder), seconds=300)
    return folder, json.loads(answers)


@pytest.fixture(scope="module")
def compiling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(share_environments(tmp_path_factory.mktemp("server") / "state")).start()
    yield server
    assert server.stop() == 0, server.log()


def check_answers(server: Server, expected: dict[str, Any]) -> None:
    (best,) = server.invoke("classifier", TEXT)
    chances = dict(zip(("track", "buy"), expected["classifier"], strict=True))
    assert best["label"] == max(chances, key=chances.__getitem__)
    assert best["score"] == pytest.approx(chances[best["label"]], abs=APART)
    assert server.invoke("embedder", TEXT)[0] == pytest.approx(expected["embedder"], abs=APART)
    for kind in ("t5", "llama"):
        (written,) = server.invoke(kind, WRITING)
        assert written["generated_text"].split() == expected[kind].split() != []


def compiled(server: Server) -> dict[Path, int]:
    """What was compiled, and when."""
    entries = (server.state_dir / "cache" / "compiled-models").glob("*/model.yaml")
    return {each: each.stat().st_mtime_ns for each in entries}


def logged(server: Server) -> str:
    return "".join(
        json.dumps(server.get(f"/admin/endpoints/{kind}/logs?lines=1000")) for kind in KINDS
    )


def test_all_kinds_answer_as_transformers_does_and_share_one_environment(
    compiling: Server, made: tuple[Path, dict[str, Any]]
) -> None:
    """By the command as first typed, and by boto3 without an image; all at once, and once more
    after a restart, for which nothing is built or compiled."""
    folder, expected = made
    frozen = installed()
    for kind in KINDS[1:]:
        compiling.deploy(kind, folder / kind, wait=False)
    penstock("deploy", KINDS[0], str(folder / KINDS[0]), server=compiling, timeout=SECONDS)
    for kind in KINDS:
        compiling.wait_in_service(kind, seconds=SECONDS)
    check_answers(compiling, expected)
    log = logged(compiling)
    assert log.count("built once for this machine") <= 1
    assert log.count("environment: ready, ") == len(KINDS)
    assert installed() == frozen, "the server's own environment changed"

    before = compiled(compiling)
    assert len(before) == len(KINDS)
    assert compiling.stop() == 0
    compiling.start()
    for kind in KINDS:
        compiling.wait_in_service(kind)
    check_answers(compiling, expected)
    assert compiled(compiling) == before


def installed() -> dict[Path, int]:
    """The packages of the server's own Python, and when each was put there."""
    site = Path(pytest.__file__).parents[1]
    return {each: each.stat().st_mtime_ns for each in site.glob("*.dist-info")}


def test_a_target_model_is_compiled_when_it_is_first_called(
    compiling: Server, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, expected = made
    with tarfile.open(tmp_path / "texts.tar.gz", "w:gz") as archive:
        archive.add(folder / "classifier", ".")
    create_multi_model(compiling, "many", tmp_path)
    (best,) = compiling.invoke("many", TEXT, TargetModel="texts.tar.gz")
    assert best["score"] == pytest.approx(max(expected["classifier"]), abs=APART)
    compiling.delete("many")


def weights(folder: Path) -> Path:
    """A Hugging Face directory whose weights are not those of its configuration."""
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps({"model_type": "bert", "architectures": ["BertForSequenceClassification"]})
    )
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(4)
    (folder / "model.safetensors").write_bytes(content)
    return folder


def reason(server: Server, folder: Path) -> str:
    """Why its endpoint failed."""
    server.deploy("failing", folder, wait=False)
    described = server.settled("failing", seconds=SECONDS)
    server.delete("failing")
    return str(described["FailureReason"])


def test_what_the_compiler_refuses_is_the_reason(compiling: Server, tmp_path: Path) -> None:
    assert "tokenizer" in reason(compiling, weights(tmp_path / "weights"))


def test_what_the_installer_says_last_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    server = Server(tmp_path / "state").start()
    try:
        said = reason(server, weights(tmp_path / "weights"))
    finally:
        server.stop()
    assert "the environment that compiles models (torch==" in said
    assert "No matching distribution found for torch==" in said
    assert "[compile]" in said


def test_without_environments_the_reason_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CONTROL_ENVIRONMENTS", "off")
    server = Server(tmp_path / "state").start()
    try:
        said = reason(server, weights(tmp_path / "weights"))
    finally:
        server.stop()
    assert "must be compiled before they are served" in said
    assert "[compile]" in said
    assert "penstock compile" in said
