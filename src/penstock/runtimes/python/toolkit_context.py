"""The toolkits' `context` argument: names, headers, the reply's headers and status.

It has what Multi Model Server and TorchServe give to a handler, as far as functions of a toolkit's
user read it. Metrics that code adds become lines of its log.
"""

from __future__ import annotations

import sys
from typing import Any

from penstock.wire.frames import CUSTOM_ATTRIBUTES, RequestMeta


class Context:
    """One object for the life of the model; `begin` makes it that of a request."""

    def __init__(self, model_name: str, model_dir: str, gpu_id: int | None = None) -> None:
        self.model_name = model_name
        self.model_dir = model_dir
        self.system_properties = {"model_dir": model_dir, "gpu_id": gpu_id, "batch_size": 1}
        self.manifest: dict[str, Any] = {}
        self.request_headers: dict[str, str] = {}
        self.request_processor = [ToolkitRequest(self)]
        self.metrics = ToolkitMetrics()
        self.response_content_type: str | None = None
        self.response_status = 200
        self.custom_attributes: str | None = None
        self.inference_id: str | None = None

    def begin(self, meta: RequestMeta) -> None:
        self.response_content_type = None
        self.response_status = 200
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

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """From 400 on the request fails with this status, and the body is the error's text."""
        self.response_status = code


class ToolkitRequest:
    """The request's properties, as Multi Model Server has them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def get_request_properties(self) -> dict[str, str]:
        """Header names as AWS's front end writes them."""
        headers = self._context.request_headers
        return {name.title(): value for name, value in headers.items()}

    def get_request_property(self, key: str) -> str | None:
        return self._context.request_headers.get(key.lower())


class ToolkitMetrics:
    """Takes metrics of a model's code, by the names of the model servers' own object."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("add_"):
            raise AttributeError(name)
        kind = name.removeprefix("add_")

        def add(metric: str, value: Any = 1, *_: Any, **__: Any) -> None:
            sys.stdout.write(f"metric {metric}: {value} ({kind})\n")

        return add
