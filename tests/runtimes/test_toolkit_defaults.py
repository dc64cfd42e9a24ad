"""The toolkits' default functions, with real models of each framework in its own environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.kit.environments import printed_by

from tools import environments

TOUR = Path(__file__).with_name("toolkits_tour.py")

#: Framework -> an environment that has it.
HAS = {
    "sklearn": "compile",
    "pytorch": "compile",
    "huggingface": "compile",
    "xgboost": "predictors",
}
#: What a request or a model that can't be served is told.
REFUSED = {
    ("sklearn", "content type"): ("415 unsupported-content-type", "text/csv"),
    ("sklearn", "accept"): ("406 not-acceptable", "application/x-npy"),
    ("sklearn", "text"): ("400 bad-input", "could not convert"),
    ("sklearn", "object"): ("400 bad-input", "dict"),
    ("sklearn", "broken"): ("400 bad-input", "line 1 column 5"),
    ("pytorch", "content type"): ("415 unsupported-content-type", "application/x-npy"),
    ("pytorch", "accept"): ("406 not-acceptable", "text/csv"),
    ("pytorch", "text"): ("400 bad-input", "could not convert"),
    ("pytorch", "object"): ("400 bad-input", "dict"),
    ("pytorch", "broken"): ("400 bad-input", "line 1 column 5"),
    ("pytorch", "weights alone"): ("model.pth is no TorchScript file", "constants.pkl"),
    ("huggingface", "content type"): ("415 unsupported-content-type", "audio/x-flac"),
    ("huggingface", "a list"): ("400 bad-input", '"inputs"'),
    ("huggingface", "csv without header"): ("400 bad-input", "header"),
    ("huggingface", "no text"): ("400 model-code-failed", "the pipeline failed"),
    ("huggingface", "unknown task"): ("transformers ", "no-such-task"),
    ("xgboost", "content type"): ("415 unsupported-content-type", "text/libsvm"),
    ("xgboost", "broken records"): ("400 bad-input", "cut off"),
    ("xgboost", "text"): ("400 bad-input", "could not convert"),
}


@pytest.mark.integration
@pytest.mark.parametrize("framework", HAS)
def test_answers_are_the_librarys_own_in_the_toolkits_encoding(
    tmp_path: Path, framework: str
) -> None:
    if HAS[framework] not in environments.KNOWN:
        pytest.skip(f"no environment {HAS[framework]} is described in tools/environments.py")
    lines = printed_by(HAS[framework], str(TOUR), framework, str(tmp_path)).splitlines()
    cases: list[dict[str, Any]] = json.loads(lines[-1])
    served = [each for each in cases if each["expected"][1] != "error"]
    assert len(served) >= 4
    for each in served:
        assert each["got"] == each["expected"], each["case"]
    refused = {each["case"]: each["got"] for each in cases if each["expected"][1] == "error"}
    assert refused.keys() == {case for one, case in REFUSED if one == framework}
    for case, (words, kind) in refused.items():
        begin, inside = REFUSED[framework, case]
        assert kind == "error", case
        assert words.startswith(begin), case
        assert inside in words, case
