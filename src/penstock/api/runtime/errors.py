"""The one table from Penstock's errors to those of SageMaker's runtime.

The protocol is rest-json: the code is in `x-amzn-ErrorType`, and the body holds `Message` and, for
ModelError, the model's own message. Status and code decide what clients do: they retry after 503
and 429, not after 424 and 400.
"""

from __future__ import annotations

from urllib.parse import quote

import orjson

from penstock.errors import CallerError, ModelError, NotNowError, PenstockError, with_hint
from penstock.gateway.http.call import status_line
from penstock.gateway.http.listener_state import Denied

_CLIENT_ERROR_MIN, _SERVER_ERROR_MIN = 400, 500
#: Bound of a model's own message, which may be a whole page; AWS cuts it as well.
MODEL_MESSAGE_CHARS_MAX = 1024


class RuntimeErrors:
    """Renders errors for one account and region, which appear in texts and ARNs."""

    def __init__(self, account_id: str, region: str) -> None:
        self._account_id = account_id
        self._region = region

    def render(self, error: PenstockError, endpoint: str = "") -> tuple[bytes, bytes]:
        """Head (status line and headers) and body of the answer."""
        status, code, fields = self._translate(error, endpoint)
        head = status_line(status) + b"content-type: application/json\r\n"
        head += b"x-amzn-errortype: %b\r\n" % code.encode("latin-1", "replace")
        if error.retry_after_s is not None:
            retry_after_ms = max(1, round(error.retry_after_s * 1000))
            head += b"x-amz-retry-after: %d\r\n" % retry_after_ms
        return head, orjson.dumps(fields)

    def _translate(
        self, error: PenstockError, endpoint: str
    ) -> tuple[int, str, dict[str, str | int]]:
        if isinstance(error, ModelError):
            return error.status, "ModelError", self._model_fields(error, endpoint)
        message = with_hint(error.message, error.hint)
        if isinstance(error, Denied):
            return error.status, error.code, {"Message": error.message, "message": error.message}
        if error.code == "unknown-operation":
            return 404, "UnknownOperationException", {"Message": message}
        if error.code == "endpoint-not-found":
            text = f"Endpoint {endpoint} of account {self._account_id} not found."
            return 400, "ValidationError", {"Message": text}
        if isinstance(error, CallerError):
            return error.status, "ValidationError", {"Message": message}
        if isinstance(error, NotNowError):
            code = "ThrottlingException" if error.status == 429 else "ServiceUnavailable"
            if error.code == "target-model-not-ready":
                code = "ModelNotReadyException"
            return error.status, code, {"Message": message}
        return 500, "InternalFailure", {"Message": f"Internal failure ({error.code})."}

    def _model_fields(self, error: ModelError, endpoint: str) -> dict[str, str | int]:
        status = error.original_status
        said = error.original_message[:MODEL_MESSAGE_CHARS_MAX]
        by_client = _CLIENT_ERROR_MIN <= status < _SERVER_ERROR_MIN
        side = "client" if by_client else "server"
        container = error.container or "primary"
        message = f'Received {side} error ({status}) from {container} with message "{said}".'
        if error.logged:
            message += f" See the log of endpoint {endpoint} for more: "
            message += f"penstock logs {quote(endpoint)}"
        return {
            "Message": message,
            "OriginalStatusCode": status,
            "OriginalMessage": said,
            "LogStreamArn": (
                f"arn:aws:logs:{self._region}:{self._account_id}:log-group:"
                f"/aws/sagemaker/Endpoints/{quote(endpoint)}"
            ),
            "ErrorCode": (
                "CLIENT_ERROR_FROM_MODEL" if by_client else "INTERNAL_FAILURE_FROM_MODEL"
            ),
        }
