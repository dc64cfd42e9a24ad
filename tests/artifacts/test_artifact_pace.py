"""A paced engine as an artifact: a model.yaml with a table of times, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.artifacts.description.description import EngineOptions, PaceSpec
from penstock.artifacts.description.model_yaml import dump, parse
from penstock.artifacts.detection.detect import detect
from penstock.errors import CallerError

PACED = "schema: 1\nruntime: paced\n"
TABLE = "engine: {sequences_max: 8, pace: {step_s: 0.02, sigma: 0.1, prefixes_cached_max: 16}}\n"


def described(folder: Path, text: str, **environment: str) -> EngineOptions | None:
    (folder / "model.yaml").write_text(text)
    return detect(folder, environment=environment).description.engine


def test_a_table_may_be_left_out_in_part_or_whole(tmp_path: Path) -> None:
    assert described(tmp_path, PACED) == EngineOptions(pace=PaceSpec())
    pace = PaceSpec(step_s=0.02, sigma=0.1, prefixes_cached_max=16)
    assert described(tmp_path, PACED + TABLE) == EngineOptions(sequences_max=8, pace=pace)


def test_its_task_is_the_generation_of_text(tmp_path: Path) -> None:
    described(tmp_path, PACED)
    description = detect(tmp_path).description
    assert (description.runtime, description.task) == ("paced", "text-generation")


def test_settings_of_the_model_that_it_stands_in_for_count(tmp_path: Path) -> None:
    engine = described(
        tmp_path, PACED + TABLE, SM_VLLM_MAX_NUM_SEQS="3", OPTION_CHAT_TEMPLATE="none.jinja"
    )
    assert engine is not None
    assert (engine.sequences_max, engine.chat_template, engine.options) == (3, "", {})


@pytest.mark.parametrize("pace", ["", "pace: {}", "pace: {step_s: 1, seed: 3, load_s: 2.5}"])
def test_what_is_dumped_is_read_back(pace: str) -> None:
    description = parse(PACED + f"engine: {{sequences_max: 4, {pace}}}\n")
    assert parse(dump(description)) == description


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PACED + "engine: {pace: {step_s: 0}}", "engine.pace.step_s is 0"),
        (PACED + "engine: {pace: {step_s: 601}}", "engine.pace.step_s is 601"),
        (PACED + "engine: {pace: {sequence_s: -1}}", "engine.pace.sequence_s is -1"),
        (PACED + "engine: {pace: {sequence_s: 10.5}}", "engine.pace.sequence_s is 10.5"),
        (PACED + "engine: {pace: {sigma: 2.1}}", "engine.pace.sigma is 2.1"),
        (PACED + "engine: {pace: {load_s: 3601}}", "engine.pace.load_s is 3601"),
        (PACED + "engine: {pace: {seed: 1.5}}", "engine.pace.seed is 1.5"),
        (PACED + "engine: {pace: {steps_s: 1}}", "unknown key engine.pace.steps_s"),
        (PACED + "engine: {pace: 3}", "engine.pace is 3"),
        (PACED + "engine: {python: /bin/python}", "engine.python is '/bin/python'"),
        (PACED + "engine: {cache_mb: 3}", "engine.cache_mb is 3"),
        (PACED + "engine: {options: {a: b}}", "engine.options is"),
        (PACED + "engine: {chat_template: a}", "engine.chat_template is 'a'"),
        (PACED + "file: model.xml", "file is 'model.xml'"),
        (PACED + "task: tensor", "task is 'tensor'"),
        (
            "schema: 1\nruntime: vllm\nengine: {pace: {}}",
            "engine.pace is 'a section'",
        ),
    ],
)
def test_a_mistake_names_the_key_and_the_value(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "model.yaml").write_text(text)
    with pytest.raises(CallerError) as caught:
        detect(tmp_path)
    assert words in caught.value.message
    assert (caught.value.code, caught.value.hint != "") == ("model-yaml-invalid", True)
