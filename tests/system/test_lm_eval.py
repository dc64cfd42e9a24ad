"""lm-eval, unmodified, by its command line: tasks of local files, a model made here."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit.environments import printed_by, python_of
from tests.kit.generation_models import BOS, write_model
from tests.kit.servers import Server

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")
pytestmark = [pytest.mark.system, pytest.mark.integration, pytest.mark.timeout(300)]

ENVIRONMENT = "client-lm-eval"
QUESTIONS = [
    {"question": "Grass is", "choices": ["green", "square", "ünder"], "answer": 0},
    {"question": "Two and two are", "choices": ["four", "a", "five"], "answer": 1},
    {"question": "It follows that", "choices": ["no", "yes it does", "?"], "answer": 2},
]
TASKS = {
    "chosen": {
        "output_type": "multiple_choice", "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}", "doc_to_target": "{{answer}}",
        "metric_list": [{"metric": "acc"}],
    },
    "written": {
        "output_type": "generate_until", "doc_to_text": "{{question}}",
        "doc_to_target": "{{choices[0]}}", "metric_list": [{"metric": "exact_match"}],
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 8, "do_sample": False},
    },
    "rolled": {
        "output_type": "loglikelihood_rolling", "doc_to_text": "",
        "doc_to_target": "{{question}}", "metric_list": [{"metric": "bits_per_byte"}],
    },
}  # fmt: skip


def write_tasks(folder: Path) -> Path:
    folder.mkdir()
    data = folder / "questions.json"
    data.write_text("".join(json.dumps(each) + "\n" for each in QUESTIONS))
    for name, task in TASKS.items():
        source = {"path": "json", "kwargs": {"data_files": {"test": str(data)}}}
        described = {
            "task": name, "dataset_path": source["path"], "dataset_kwargs": source["kwargs"],
            "test_split": "test", **task,
        }  # fmt: skip
        (folder / f"{name}.yaml").write_text(json.dumps(described))
    return folder


def log_probabilities(folder: Path, ids: list[int]) -> np.ndarray:
    """[tokens, vocabulary], of the graph itself, without any engine."""
    import openvino as ov

    compiled = ov.Core().compile_model(
        folder / "openvino_model.xml",
        "CPU",
        {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"},
    )
    given = {
        "input_ids": np.array([ids], dtype=np.int64),
        "attention_mask": np.ones((1, len(ids)), dtype=np.int64),
        "position_ids": np.arange(len(ids), dtype=np.int64)[None],
        "beam_idx": np.zeros(1, dtype=np.int32),
    }
    logits = np.asarray(compiled(given)["logits"][0], dtype=np.float64)
    found: np.ndarray = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return found


def likelihood(folder: Path, before: list[int], text: str) -> tuple[float, bool]:
    """As lm-eval has it: of the text that follows, and whether it is the likeliest."""
    after = tokens(folder, text)
    rows = log_probabilities(folder, [*before, *after])[len(before) - 1 : -1]
    total = sum(float(row[token]) for row, token in zip(rows, after, strict=True))
    return total, [int(row.argmax()) for row in rows] == after


def tokens(folder: Path, text: str) -> list[int]:
    """Without the one that begins a prompt: lm-eval sends none."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def evaluated(folder: Path, tmp_path: Path, arguments: str) -> dict[str, list[dict[str, Any]]]:
    """Its samples by task, of a run as a user types it."""
    out = tmp_path / "out"
    command = str(python_of(ENVIRONMENT).with_name("lm_eval"))
    with pytest.MonkeyPatch.context() as environment:
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            environment.setenv(name, "1")
        environment.setenv("HF_HOME", str(tmp_path / "hub"))
        printed_by(
            ENVIRONMENT, command, "--model", "local-completions", "--model_args", arguments,
            "--tasks", ",".join(TASKS), "--include_path", str(folder), "--output_path", str(out),
            "--log_samples", "--batch_size", "2", seconds=200,
        )  # fmt: skip
    found: dict[str, list[dict[str, Any]]] = {}
    for path in out.rglob("samples_*.jsonl"):
        name = path.name.split("_")[1]
        samples = [json.loads(line) for line in path.read_text().splitlines()]
        found[name] = sorted(samples, key=lambda each: int(each["doc_id"]))
    return found


#: What names a model's tokens: its folder, or the server itself, which lm-eval asks for them.
TOKENIZERS = {
    "folder": "base_url={url}/v1/completions,tokenizer_backend=huggingface,tokenizer={model}",
    "server": "base_url={url}/endpoints/evaluated-server/openai/v1/completions",
}


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_lm_eval_has_the_likelihoods_that_the_model_has(
    server: Server, tmp_path: Path, tokenizer: str
) -> None:
    model = write_model(tmp_path / "model")
    settings = json.loads((model / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # as transformers writes it
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    server.deploy(f"evaluated-{tokenizer}", model)
    named = TOKENIZERS[tokenizer].format(url=server.url, model=model)
    arguments = f"model=evaluated-{tokenizer},num_concurrent=2,{named}"
    seen = evaluated(write_tasks(tmp_path / "tasks"), tmp_path, arguments)
    for document, sample in zip(QUESTIONS, seen["chosen"], strict=True):
        before = tokens(model, str(document["question"]))
        for choice, (answer,) in zip(document["choices"], sample["resps"], strict=True):  # type: ignore[call-overload]
            total, greedy = likelihood(model, before, f" {choice}")
            assert float(answer[0]) == pytest.approx(total, abs=1e-3)
            assert answer[1] in (greedy, str(greedy))
    for document, sample in zip(QUESTIONS, seen["rolled"], strict=True):
        total, _ = likelihood(model, [BOS], str(document["question"]))
        ((answer,),) = sample["resps"]
        first = answer[0] if isinstance(answer, list) else answer
        assert float(first) == pytest.approx(total, abs=1e-3)
        assert math.isfinite(float(first))
    assert [len(each["resps"]) for each in seen["written"]] == [1] * len(QUESTIONS)
    server.client("sagemaker").delete_endpoint(EndpointName=f"evaluated-{tokenizer}")
