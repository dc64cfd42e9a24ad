"""SageMaker's functions in model code: which are called, with what, and what may come back."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import ModelError
from penstock.runtimes.python.batches import ERROR, WITH_ATTRIBUTES
from penstock.runtimes.python.sagemaker_contract import SageMakerContract
from penstock.wire.frames import RequestMeta, encode_request_meta

BASIC = "def model_fn(d): return 10\ndef predict_fn(data, model): return {}\n"


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    """Loading a model's code changes the import path; in life the process is its own."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("inference", None)


def contract(folder: Path, source: str, **init: Any) -> SageMakerContract:
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code" / "inference.py").write_text(source)
    fields = {"model_dir": str(folder), "file": "code/inference.py", "name": "m"}
    return SageMakerContract(fields | init)


def ask(loaded: SageMakerContract, body: bytes, **meta: Any) -> tuple[bytes, bytes, bytes, int]:
    encoded = encode_request_meta(RequestMeta(**meta))
    (answer,) = loaded.answer([(encoded, body)], lambda index: None)
    return answer


@pytest.mark.parametrize("function", ["transform_fn(m, d, c, a)", "output_fn(p, a)"])
def test_a_type_that_the_model_names_is_not_called_the_callers_accept(
    tmp_path: Path, function: str
) -> None:
    others = "" if "transform" in function else "def predict_fn(d, m): return d\n"
    source = f"def model_fn(d): return 0\n{others}def {function}: return {{'a': 1}}, KIND\n"
    loaded = contract(tmp_path, f"KIND = 'image/png'\n{source}")
    body, _, _, flags = ask(loaded, b"[]", accept="application/json")
    error = json.loads(body)
    assert flags & ERROR
    assert error["code"] == "model-code-failed"
    assert "returned dict as content type 'image/png'" in error["message"]
    assert "Accept" not in error["message"]
    assert error.get("original_status", 500) == 500
    loaded = contract(tmp_path, f"KIND = 'application/json; charset=utf-8'\n{source}")
    assert ask(loaded, b"[]", accept="text/csv")[:2] == (b'{"a":1}', b"application/json")


def test_defaults_read_and_write_json_csv_and_npy(tmp_path: Path) -> None:
    loaded = contract(
        tmp_path, "def model_fn(d): return 10\ndef predict_fn(data, model): return data * model\n"
    )
    assert ask(loaded, b"[[1, 2]]")[:2] == (b"[[10,20]]", b"application/json")
    body, kind, *_ = ask(loaded, b"1,2\n", content_type="text/csv", accept="text/csv")
    assert (body, kind) == (b"10.0,20.0\n", b"text/csv")
    buffer = io.BytesIO()
    np.save(buffer, np.array([1, 2]))
    body, *_ = ask(
        loaded, buffer.getvalue(), content_type="application/x-npy", accept="application/x-npy"
    )
    assert np.load(io.BytesIO(body)).tolist() == [10, 20]


@pytest.mark.parametrize(
    ("prediction", "accept", "body", "kind"),
    [
        ("np.float32([0.1, 2])", "text/*", b"0.1\n2.0\n", b"text/csv"),
        ("np.float32(0.1)", "text/csv", b"0.1\n", b"text/csv"),
        ("[[['a', 'b'], ['c', 'd']]]", "text/csv", b"a,b,c,d\n", b"text/csv"),
        ("np.float32([0.1])", "image/*, application/*;q=0.5", b"[0.1]", b"application/json"),
    ],
)
def test_any_value_is_written_as_the_first_type_of_accept_that_there_is(
    tmp_path: Path, prediction: str, accept: str, body: bytes, kind: bytes
) -> None:
    source = f"import numpy as np\n{BASIC.format(prediction)}"
    assert ask(contract(tmp_path, source), b"[]", accept=accept)[:2] == (body, kind)


@pytest.mark.parametrize(("body", "read"), [(b"1,\n", [[1.0, None]]), (b"\n2\n", [[2.0]])])
def test_csv_is_rows_and_an_empty_cell_is_missing(
    tmp_path: Path, body: bytes, read: list[list[float | None]]
) -> None:
    loaded = contract(tmp_path, BASIC.format("data"))
    assert json.loads(ask(loaded, body, content_type="text/csv")[0]) == read
    error = json.loads(ask(loaded, b"# no number\n", content_type="text/csv")[0])
    assert (error["original_status"], error["code"]) == (400, "bad-input")


def test_objects_stay_objects(tmp_path: Path) -> None:
    loaded = contract(tmp_path, BASIC.format("data['a']"))
    assert ask(loaded, b'{"a": [1, "x"]}')[0] == b'[1,"x"]'


def test_context_is_passed_to_functions_that_have_room_for_it(tmp_path: Path) -> None:
    source = """
def model_fn(model_dir, context): return context.system_properties["model_dir"]
def input_fn(data, content_type): return data
def predict_fn(data, model, context):
    return [model, context.get_request_header(0, "X-Amzn-SageMaker-Custom-Attributes")]
def output_fn(prediction, accept, context):
    context.set_response_header(0, "X-Amzn-SageMaker-Custom-Attributes", "out")
    context.set_response_content_type(0, "text/x-own")
    return ",".join(prediction)
"""
    body, kind, attributes, outcome = ask(contract(tmp_path, source), b"{}", custom_attributes="in")
    assert body.decode() == f"{tmp_path},in"
    assert (kind, attributes, outcome) == (b"text/x-own", b"out", WITH_ATTRIBUTES)


def test_transform_fn_does_everything_and_may_name_its_type(tmp_path: Path) -> None:
    source = """
def model_fn(model_dir): return "m"
def transform_fn(model, data, content_type, accept):
    return f"{model} {data!r} {content_type} {accept}", "text/x-own"
"""
    loaded = contract(tmp_path, source)
    body, kind, *_ = ask(loaded, b"a,b", content_type="text/csv", accept="*/*")
    assert (body, kind) == (b"m 'a,b' text/csv application/json", b"text/x-own")
    body, *_ = ask(loaded, b"\xff", content_type="image/png", accept="x/y")
    assert body == b"m b'\\xff' image/png x/y"


def test_warm_up_sees_the_loaded_model(tmp_path: Path) -> None:
    source = """
seen = []
def pre_model_fn(model_dir): seen.append("before")
def model_fn(model_dir): seen.append("load"); return seen
def model_warmup_fn(model_dir, model): model.append("warm")
def predict_fn(data, model): return model
"""
    assert json.loads(ask(contract(tmp_path, source), b"[]")[0]) == ["before", "load", "warm"]


@pytest.mark.parametrize(
    ("body", "meta", "status", "words"),
    [
        (b"{", {}, 400, "not JSON"),
        (b"\xff", {}, 400, "UTF-8"),
        (b"x", {"content_type": "image/png"}, 415, "application/json, text/csv"),
        (b"[]", {"accept": "image/png"}, 406, "Accept"),
        (b'{"status": 429}', {}, 429, "slow down"),
        (b'{"exit": 1}', {}, 500, "SystemExit"),
        (b'{"cancel": 1}', {}, 500, "CancelledError"),
        (b'{"object": 1}', {}, 500, "can't be written as application/json: object"),
    ],
)
def test_failures_are_answers_with_a_status(
    tmp_path: Path, body: bytes, meta: dict[str, Any], status: int, words: str
) -> None:
    source = """
import asyncio, sys
class Busy(Exception):
    status_code = 429
def model_fn(d): return None
def predict_fn(data, model):
    if "status" in data: raise Busy("slow down")
    if "exit" in data: sys.exit(1)
    if "cancel" in data: raise asyncio.CancelledError
    if "object" in data: return object()
    return data
"""
    error, _, _, outcome = ask(contract(tmp_path, source), body, **meta)
    assert outcome == ERROR
    fields = json.loads(error)
    assert fields["original_status"] == status
    assert words in fields["message"]
    assert "Traceback" not in fields["message"]


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("def predict_fn(data, model): return data\n", "model-code-incomplete"),
        ("def model_fn(d): return None\n", "model-code-incomplete"),
        (
            "def model_fn(d): return None\ndef transform_fn(m, d, c, a): return d\n"
            "def predict_fn(data, model): return data\n",
            "model-code-conflict",
        ),
    ],
)
def test_code_that_lacks_or_contradicts_is_refused(tmp_path: Path, source: str, code: str) -> None:
    with pytest.raises(ModelError) as caught:
        contract(tmp_path, source)
    assert caught.value.code == code
    assert caught.value.hint


# A framework's defaults, the context, and limits of the model's environment

DEFAULTS = "penstock.runtimes.toolkits.sklearn"

#: A model that predicts as scikit-learn's do.
SUMS = """
class Sums:
    def predict(self, rows):
        return rows.sum(axis=1)

def model_fn(model_dir):
    return Sums()
"""


def test_a_function_of_the_code_wins_over_the_default_one_by_one(tmp_path: Path) -> None:
    loaded = contract(tmp_path, SUMS, handler=DEFAULTS)
    assert ask(loaded, b"[[1, 2], [3, 4]]")[:2] == (b"[3.0, 7.0]", b"application/json")
    own = "def output_fn(prediction, accept): return repr(prediction.tolist()), 'text/own'\n"
    loaded = contract(tmp_path, SUMS + own, handler=DEFAULTS)
    assert ask(loaded, b"[[1, 2]]")[:2] == (b"[3.0]", b"text/own")
    own = "def input_fn(data, content_type): import numpy; return numpy.ones((1, 5))\n"
    loaded = contract(tmp_path, SUMS + own, handler=DEFAULTS)
    assert ask(loaded, b"anything", content_type="text/plain")[0] == b"[5.0]"
    own = "def predict_fn(data, model): return model.predict(data) * 2\n"
    assert ask(contract(tmp_path, SUMS + own, handler=DEFAULTS), b"[1, 2]")[0] == b"[6.0]"


def test_a_transform_fn_needs_no_default(tmp_path: Path) -> None:
    source = SUMS + "def transform_fn(model, data, kind, accept): return data, kind\n"
    assert ask(contract(tmp_path, source, handler=DEFAULTS), b"x")[0] == b"x"
    with pytest.raises(ModelError) as caught:
        contract(tmp_path, source + "def input_fn(d, c): return d\n", handler=DEFAULTS)
    assert caught.value.code == "model-code-conflict"


@pytest.mark.parametrize("requirements", ["", "code/requirements.txt"])
def test_a_package_that_is_missing_is_named_with_what_to_do(
    tmp_path: Path, requirements: str
) -> None:
    source = "def model_fn(d): import package_of_nobody\n"
    if requirements:  # whoever made the environment explains that
        with pytest.raises(ModuleNotFoundError):
            contract(tmp_path, source, handler=DEFAULTS, requirements=requirements)
        return
    with pytest.raises(ModelError, match="package_of_nobody") as caught:
        contract(tmp_path, source, handler=DEFAULTS)
    assert "requirements.txt" in caught.value.hint
    assert "Image" in caught.value.hint


def test_the_context_has_what_the_model_servers_give(tmp_path: Path) -> None:
    source = """
def model_fn(model_dir, context): return context.system_properties["gpu_id"]
def predict_fn(data, model, context):
    properties = context.request_processor[0].get_request_properties()
    context.metrics.add_time("Own", 1.5)
    context.metrics.add_counter("Rows")
    context.set_response_status(code=data["status"], phrase="own")
    return [model, properties["Content-Type"]]
"""
    loaded = contract(tmp_path, source, gpu=True)
    assert ask(loaded, b'{"status": 200}', content_type="application/json")[0] == (
        b'[0,"application/json"]'
    )
    body, _, _, outcome = ask(loaded, b'{"status": 429}', content_type="application/json")
    fields = json.loads(body)
    assert (outcome, fields["original_status"]) == (ERROR, 429)
    assert fields["original_message"] == '[0,"application/json"]'
    assert ask(contract(tmp_path, source), b'{"status": 200}', content_type="application/json")[
        0
    ].startswith(b"[null,")


@pytest.mark.parametrize(
    ("name", "value", "body", "status"),
    [
        ("SAGEMAKER_MAX_REQUEST_SIZE", "4", b"12345", 413),
        ("MMS_MAX_REQUEST_SIZE", "5", b"12345", None),
        ("TS_MAX_REQUEST_SIZE", "4", b"12345", 413),
        ("SAGEMAKER_MAX_PAYLOAD_IN_MB", "1", b"1" * (2**20 + 1), 413),
        ("SAGEMAKER_MAX_PAYLOAD_IN_MB", "1", b"1" * 2**20, None),
        ("MMS_MAX_RESPONSE_SIZE", "4", b"12345", 507),
        ("TS_MAX_RESPONSE_SIZE", "5", b"12345", None),
    ],
)
def test_sizes_of_the_models_environment_are_limits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    body: bytes,
    status: int | None,
) -> None:
    monkeypatch.setenv(name, value)
    source = "def model_fn(d): return 0\ndef transform_fn(m, d, c, a): return d\n"
    answer, _, _, outcome = ask(contract(tmp_path, source), body, content_type="x/y")
    if status is None:
        assert answer == body
    else:
        fields = json.loads(answer)
        assert (outcome, fields["code"]) == (ERROR, "body-too-large")
        assert fields["original_status"] == status


@pytest.mark.parametrize(
    ("level", "shown"), [("", ["info"]), ("40", []), ("10", ["debug", "info"]), ("odd", ["info"])]
)
def test_lines_of_pythons_logging_are_shown_from_the_models_level_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    level: str,
    shown: list[str],
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setenv("SAGEMAKER_CONTAINER_LOG_LEVEL", level)
    source = """
import logging
def model_fn(d):
    logging.getLogger("own").debug("debug")
    logging.getLogger("own").info("info")
def predict_fn(d, m): return d
"""
    contract(tmp_path, source)
    lines = [line.rpartition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == shown
