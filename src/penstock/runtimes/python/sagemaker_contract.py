"""SageMaker's inference contract in a worker process, and the defaults of its functions.

The model's code has model_fn, then transform_fn, or input_fn / predict_fn / output_fn with
defaults. Each function may take a last `context` argument, detected by its number of parameters.
A framework's own defaults (`description.handler`) are a module with functions of the same names and
the prefix `default_`; a model without code of its own is served by them alone.
Source of the contract: the SageMaker inference toolkit's documentation; the code here is our own.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from penstock.errors import ModelError
from penstock.runtimes.python import toolkit_logging, toolkit_variables
from penstock.runtimes.python.batches import Answer, answered, failed
from penstock.runtimes.python.default_bodies import decode_default, encode_default
from penstock.runtimes.python.toolkit_context import Context
from penstock.runtimes.toolkits import bodies
from penstock.runtimes.workers.failures import log_traceback
from penstock.runtimes.workers.inside import import_code
from penstock.wire.frames import RequestMeta, decode_request_meta

_UTF8_TYPES = (bodies.JSON, bodies.CSV)


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
        self._file, model_dir = init["file"], init["model_dir"]
        self._refuse_container_paths(init)
        toolkit_logging.configure(os.environ)
        self._context = Context(init["name"], model_dir, gpu_id=0 if init.get("gpu") else None)
        self._context.manifest = {
            "model": {"serializedFile": self._file, "trusted": init.get("trusted", False)}
        }
        self._request_bytes_max = toolkit_variables.request_bytes_max(os.environ)
        self._answer_bytes_max = toolkit_variables.answer_bytes_max(os.environ)
        self._accept_default = os.environ.get(
            "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "application/json"
        )
        try:
            module = self._module(model_dir)
            self._functions(module, init.get("handler", ""))
            self._model = self._loaded(model_dir)
        except ModuleNotFoundError as error:
            if init.get("requirements"):
                raise  # whoever made the environment explains it
            log_traceback(error)
            raise _without_package(self._file, error) from None

    @staticmethod
    def _refuse_container_paths(init: dict[str, Any]) -> None:
        """Raises ModelError (`container-path-missing`) for code that opens /opt/ml/model by name
        where that is not this model's folder."""
        where, model_dir = init.get("container_paths", ""), init["model_dir"]
        if not where:
            return
        try:
            if os.path.samefile("/opt/ml/model", model_dir):
                return
        except OSError:
            pass
        why = os.environ.get("PENSTOCK_NO_CONTAINER_PATHS", "its process has no such folder")
        raise ModelError(
            "container-path-missing",
            f"{where} names /opt/ml by its absolute path, which can't be shown here: {why}",
            hint="Open files below model_dir, the argument of model_fn, or below "
            'os.environ["SM_MODEL_DIR"].',
        )

    def _module(self, model_dir: str) -> ModuleType | None:
        path = Path(model_dir, self._file)
        return import_code(path) if path.suffix == ".py" else None

    def _functions(self, module: ModuleType | None, handler: str) -> None:
        """Chooses each function: the code's own, else the framework's default."""
        defaults = importlib.import_module(handler) if handler else None

        def chosen(name: str, arguments: int) -> Any:
            function = getattr(module, name, None)
            if function is None:
                function = getattr(defaults, f"default_{name}", None)
            return function and _with_context(function, arguments, self._context)

        self._transform: Any = None
        if getattr(module, "transform_fn", None) is not None:
            self._transform, defaults = chosen("transform_fn", 4), _model_alone(defaults)
        self._input, self._predict = chosen("input_fn", 2), chosen("predict_fn", 2)
        self._output = chosen("output_fn", 2)
        _check(self._file, bool(self._transform), self._input, self._predict, self._output)
        self._before, self._make = chosen("pre_model_fn", 1), chosen("model_fn", 1)
        self._warm_up = chosen("model_warmup_fn", 2)

    def _loaded(self, model_dir: str) -> Any:
        if self._make is None:
            raise ModelError(
                "model-code-incomplete",
                f"{self._file} defines no model_fn(model_dir)",
                hint="Define model_fn; it may return None if there is nothing to load.",
            )
        if self._before:
            self._before(model_dir)
        model = self._make(model_dir)
        if self._warm_up:
            self._warm_up(model_dir, model)
        return model

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
            if 0 < self._request_bytes_max < len(body):
                raise _too_large("request", len(body), self._request_bytes_max, 413)
            data, content_type = self._call(meta, body)
            if context.response_status >= 400:
                raise _refused_by_code(context.response_status, data)
            if 0 < self._answer_bytes_max < len(data):
                raise _too_large("answer", len(data), self._answer_bytes_max, 507)
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
        if bodies.media_type(content_type) in _UTF8_TYPES:
            try:
                data = body.decode()
            except UnicodeDecodeError as error:
                raise ModelError(
                    "bad-input", f"the body is not UTF-8: {error.reason}", original_status=400
                ) from None
        if self._transform is not None:
            result = self._transform(self._model, data, content_type, accept)
        else:
            read = (self._input or decode_default)(data, content_type)
            prediction = self._predict(read, self._model)
            result = (self._output or encode_default)(prediction, accept)
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
            hint="Define predict_fn, or transform_fn for everything at once. A framework's own "
            "predict_fn is used where the model's Image is that framework's, such as "
            "sagemaker-scikit-learn:1.2-1, or where the file imports that framework alone.",
        )


def _model_alone(defaults: ModuleType | None) -> Any:
    """Of a framework's defaults only model_fn goes with a transform_fn."""
    if defaults is None:
        return None
    kept = {"default_model_fn": getattr(defaults, "default_model_fn", None)}
    return SimpleNamespace(**kept)


def _without_package(file: str, error: ModuleNotFoundError) -> ModelError:
    return ModelError(
        "model-code-failed",
        f"{file}: {error.msg}, in the Python environment of the model",
        hint="Name its package in a requirements.txt beside the code, or give the model the Image "
        "of its framework, such as sagemaker-scikit-learn:1.2-1 or pytorch-inference:2.6-cpu.",
    )


def _too_large(what: str, size: int, most: int, status: int) -> ModelError:
    return ModelError(
        "body-too-large",
        f"the {what} has {size} bytes, and the model's Environment allows {most}",
        hint="Send less, or raise the limit in the model's Environment "
        "(docs/reference/toolkit-variables.md has its names).",
        original_status=status,
    )


def _refused_by_code(status: int, body: bytes) -> ModelError:
    words = body.decode("utf-8", "replace")
    return ModelError(
        "model-answered-error",
        f"the model answered {status}: {words[:1000]}",
        original_status=status,
        original_message=words,
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
    if named and bodies.writable(content_type) is None:
        raise ModelError(
            "model-code-failed",
            f"the model returned {type(result).__name__} as content type {content_type[:100]!r}, "
            f"but only text or bytes can be sent as that",
            hint=f"Return text or bytes with it, or one of {', '.join(bodies.ARRAYS)}.",
        )
    return encode_default(result, content_type)
