"""SageMaker's inference contract in a worker process, and the defaults of its functions.

The model's code has model_fn, then transform_fn, or input_fn / predict_fn / output_fn with
defaults. Each function may take a last `context` argument, detected by its number of parameters.
A framework's own defaults (`description.handler`) are a module with functions of the same names and
the prefix `default_`; a model without code of its own is served by them alone.
Source of the contract: the SageMaker inference toolkit's documentation; the code here is our own.

The defaults of input_fn and output_fn read and write JSON, CSV and NPY. JSON lists become arrays
(objects and ragged lists stay as they are), CSV becomes a 2-D float array, NPY an array; pickle is
never loaded. Arrays and plain values are written as JSON, CSV or NPY.
"""

from __future__ import annotations

import importlib
import inspect
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson

from penstock.errors import ModelError
from penstock.runtimes.python.batches import Answer, answered, failed
from penstock.runtimes.workers.inside import import_code
from penstock.wire.frames import CUSTOM_ATTRIBUTES, RequestMeta, decode_request_meta

READS = ("application/json", "text/csv", "application/x-npy")
WRITES = READS


def decode_default(data: Any, content_type: str) -> Any:
    """`data` is text for JSON and CSV, bytes otherwise. Raises ModelError 400 or 415."""
    import numpy as np

    if content_type == "application/json":
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise _unreadable("JSON", error) from None
        if not isinstance(value, list):
            return value
        try:
            return np.array(value)
        except ValueError:
            return value
    try:
        if content_type == "text/csv":
            return np.loadtxt(io.StringIO(data), delimiter=",", ndmin=2)
        if content_type == "application/x-npy":
            return np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, MemoryError, OSError) as error:
        raise _unreadable(content_type, error) from None
    raise ModelError(
        "unsupported-content-type",
        f"content type {content_type[:100]!r} is not one that this model reads: {', '.join(READS)}",
        hint="Send one of these, or define input_fn.",
        original_status=415,
    )


def _unreadable(what: str, error: Exception) -> ModelError:
    return ModelError(
        "bad-input", f"the body is not {what}: {str(error)[:300]}", original_status=400
    )


def encode_default(prediction: Any, accept: str) -> tuple[bytes, str]:
    """Writes the first type of Accept that is possible. Raises ModelError 406 if there is none."""
    if (kind := _writable(accept)) is not None:
        return _WRITERS[kind](prediction), kind
    raise ModelError(
        "not-acceptable",
        f"Accept is {accept[:100]!r}, this model answers {', '.join(WRITES)}",
        hint="Ask for one of these, or define output_fn.",
        original_status=406,
    )


def _writable(accept: str) -> str | None:
    """The first of these types that `encode_default` writes."""
    if accept == "application/json":
        return accept
    for part in accept.split(","):
        kind = part.partition(";")[0].strip().lower()
        if kind in ("application/json", "*/*", "application/*"):
            return "application/json"
        if kind in ("text/csv", "text/*"):
            return "text/csv"
        if kind == "application/x-npy":
            return kind
    return None


def _listed(value: Any) -> Any:
    """Anything array-like (numpy, torch) as plain lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(type(value).__name__)


def _json(prediction: Any) -> bytes:
    try:
        return orjson.dumps(
            prediction, default=_listed, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
        )
    except TypeError as error:
        raise ModelError(
            "model-code-failed",
            f"predict_fn returned what cannot be written as JSON: {error.__cause__ or error}",
            hint="Return lists, numbers, strings, objects or arrays, or define output_fn.",
        ) from None


def _csv(prediction: Any) -> bytes:
    import numpy as np

    array = np.asarray(prediction)
    rows = array.reshape(len(array) if array.ndim else 1, -1).tolist()
    return "\n".join(",".join(str(cell) for cell in row) for row in rows).encode() + b"\n"


def _npy(prediction: Any) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, np.asarray(prediction), allow_pickle=False)
    return buffer.getvalue()


_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "application/json": _json,
    "text/csv": _csv,
    "application/x-npy": _npy,
}


_UTF8_TYPES = ("application/json", "text/csv")


class Context:
    """The toolkits' `context` argument: names, headers, the reply's headers."""

    def __init__(self, model_name: str, model_dir: str) -> None:
        self.model_name = model_name
        self.model_dir = model_dir
        self.system_properties = {"model_dir": model_dir, "gpu_id": None, "batch_size": 1}
        self.manifest: dict[str, Any] = {}
        self.request_headers: dict[str, str] = {}
        self.response_content_type: str | None = None
        self.custom_attributes: str | None = None
        self.inference_id: str | None = None

    def begin(self, meta: RequestMeta) -> None:
        self.response_content_type = None
        self.custom_attributes = None
        self.inference_id = meta.inference_id
        self.request_headers = meta.headers()

    def get_request_header(self, idx: int, key: str) -> str | None:
        return self.request_headers.get(key.lower())

    def get_all_request_header(self, idx: int) -> dict[str, str]:
        return dict(self.request_headers)

    def get_request_id(self, idx: int = 0) -> str | None:
        return self.inference_id

    def set_response_content_type(self, idx: int, value: str) -> None:
        self.response_content_type = value

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """A model may set two of the reply's headers; the server sets the others."""
        name = key.lower()
        if name == CUSTOM_ATTRIBUTES:
            self.custom_attributes = value
        elif name == "content-type":
            self.response_content_type = value


def _with_context(function: Callable[..., Any], arguments: int, context: Context) -> Any:
    """`function`, which gets `context` as its last argument if it has a parameter for it."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return function
    positional = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(positional) > arguments:
        return lambda *given: function(*given, context)
    return function


class SageMakerContract:
    """Loads `inference.py`-style code and answers requests one after the other."""

    def __init__(self, init: dict[str, Any]) -> None:
        path = Path(init["model_dir"], init["file"])
        model_dir = init["model_dir"]
        self._context = Context(init["name"], model_dir)
        self._context.manifest = {
            "model": {"serializedFile": init["file"], "trusted": init.get("trusted", False)}
        }
        module = import_code(path) if path.suffix == ".py" else None
        handler = importlib.import_module(init["handler"]) if init.get("handler") else None

        def own(name: str, arguments: int) -> Any:
            function = getattr(module, name, None)
            if function is None and self._transform is None:
                function = getattr(handler, f"default_{name}", None)
            return function and _with_context(function, arguments, self._context)

        self._transform: Any = None
        self._transform = own("transform_fn", 4)
        self._input, self._predict = own("input_fn", 2), own("predict_fn", 2)
        self._output = own("output_fn", 2)
        _check(init["file"], bool(self._transform), self._input, self._predict, self._output)
        self._accept_default = os.environ.get(
            "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "application/json"
        )
        if before := own("pre_model_fn", 1):
            before(model_dir)
        make = own("model_fn", 1)
        if make is None:
            raise ModelError(
                "model-code-incomplete",
                f"{init['file']} defines no model_fn(model_dir)",
                hint="Define model_fn; it may return None if there is nothing to load.",
            )
        self._model = make(model_dir)
        if warm_up := own("model_warmup_fn", 2):
            warm_up(model_dir, self._model)

    def close(self) -> None:
        self._model = None

    def answer(
        self, items: list[tuple[bytes, bytes]], progress: Callable[[int], None]
    ) -> list[Answer]:
        answers = []
        for index, (meta, body) in enumerate(items):
            progress(index)
            answers.append(self._one(decode_request_meta(meta), body))
        return answers

    def _one(self, meta: RequestMeta, body: bytes) -> Answer:
        try:
            context = self._context
            context.begin(meta)
            data, content_type = self._call(meta, body)
            if context.response_content_type:
                content_type = context.response_content_type
            return answered(data, content_type, context.custom_attributes)
        except BaseException as error:  # sys.exit and a cancelled asyncio task are failures too
            return failed(error)

    def _call(self, meta: RequestMeta, body: bytes) -> tuple[bytes, str]:
        content_type = meta.content_type or "application/json"
        accept = meta.accept
        if not accept or accept == "*/*":
            accept = self._accept_default
        data: Any = body
        base = content_type.partition(";")[0].strip().lower()
        if base in _UTF8_TYPES:
            try:
                data = body.decode()
            except UnicodeDecodeError as error:
                raise ModelError(
                    "bad-input", f"the body is not UTF-8: {error.reason}", original_status=400
                ) from None
        if self._transform is not None:
            result = self._transform(self._model, data, content_type, accept)
        else:
            read = self._input(data, content_type) if self._input else decode_default(data, base)
            prediction = self._predict(read, self._model)
            if self._output is None:
                return encode_default(prediction, accept)
            result = self._output(prediction, accept)
        return _as_body(result, accept)


def _check(file: str, transform: bool, read: Any, predict: Any, write: Any) -> None:
    if transform and (read or predict or write):
        raise ModelError(
            "model-code-conflict",
            f"{file} defines transform_fn and also input_fn, predict_fn or output_fn",
            hint="Keep transform_fn alone, or the other three.",
        )
    if not transform and predict is None:
        raise ModelError(
            "model-code-incomplete",
            f"{file} defines neither predict_fn(data, model) nor transform_fn",
            hint="Define predict_fn, or transform_fn for everything at once.",
        )


def _as_body(result: Any, accept: str) -> tuple[bytes, str]:
    """The result of output_fn or transform_fn: a body, or a body and its content type.

    Raises ModelError: 406 where the value can't be written in a type that Accept allows,
    `model-code-failed` where it can't be written in the type that the model itself names.
    """
    content_type, named = accept.partition(",")[0].strip(), False
    if isinstance(result, tuple) and len(result) == 2:
        result, content_type, named = result[0], str(result[1]), True
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result), content_type
    if isinstance(result, str):
        return str.encode(result), content_type
    if named and _writable(content_type) is None:
        raise ModelError(
            "model-code-failed",
            f"the model returned {type(result).__name__} as content type {content_type[:100]!r}, "
            f"but only text or bytes can be sent as that",
            hint=f"Return text or bytes with it, or one of {', '.join(WRITES)}.",
        )
    return encode_default(result, content_type)
