"""The error codes of Triton's API, with what each is over HTTP and gRPC.

The two mappings are those of Triton's server (`HttpCodeFromError` of http_server.cc, and
`GrpcStatusUtil`). Clients decide by them whether to try again. Imports the standard library alone:
workers read it too.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class TritonErrorKind(NamedTuple):
    name: str  #: of `pb_utils.TritonError`; its place in `TRITON_ERRORS` is the number there
    code: str  #: the code of our error
    status: int  #: over HTTP
    grpc: str  #: name of the `grpc.StatusCode`


#: The code of our errors for what a model's code says without more, or raises.
OF_CODE: Final = "model-code-failed"

TRITON_ERRORS: Final = (
    TritonErrorKind("UNKNOWN", "model-error-unknown", 400, "UNKNOWN"),
    TritonErrorKind("INTERNAL", OF_CODE, 500, "INTERNAL"),
    TritonErrorKind("NOT_FOUND", "model-error-not-found", 404, "NOT_FOUND"),
    TritonErrorKind("INVALID_ARG", OF_CODE, 400, "INVALID_ARGUMENT"),
    TritonErrorKind("UNAVAILABLE", "model-error-unavailable", 503, "UNAVAILABLE"),
    TritonErrorKind("UNSUPPORTED", "model-error-unsupported", 501, "UNIMPLEMENTED"),
    TritonErrorKind("ALREADY_EXISTS", "model-error-exists", 400, "ALREADY_EXISTS"),
    TritonErrorKind("CANCELLED", "model-error-cancelled", 400, "CANCELLED"),
)
UNKNOWN: Final = TRITON_ERRORS[0]
UNSUPPORTED: Final = TRITON_ERRORS[5]

#: Our code -> what it is; of `OF_CODE` the status counts.
BY_CODE: Final = {each.code: each for each in TRITON_ERRORS if each.code != OF_CODE}
