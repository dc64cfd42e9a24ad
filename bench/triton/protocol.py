"""Cases of the protocol: bytes, messages, what the server says of itself and of its models."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

from bench.triton.cases import (
    BATCHED,
    EACH,
    ONE,
    PLAIN,
    SAME,
    TOLD,
    Ask,
    Case,
    grpc,
    http,
    infer,
    message,
    packed,
    seen,
    tensor,
    tensors,
)
from bench.triton.values import raw

LENGTH = "inference-header-content-length"
BYTES = struct.pack("<2f", 1.0, 2.0)


def _based(data: bytes) -> str:
    return base64.b64encode(data).decode()


def in_bytes(
    label: str, *, size: int | None = 8, length: int | str | None = None, data: bytes = BYTES,
    path: str = "infer", kind: str = "application/octet-stream", shape: int = 2, **more: Any,
) -> Ask:  # fmt: skip
    """An inference whose tensor stands as bytes after the JSON."""
    one: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [shape]}
    if size is not None:
        one["parameters"] = {"binary_data_size": size}
    head = json.dumps({"inputs": [one], **more}).encode()
    headers = {LENGTH: str(len(head) if length is None else length), "content-type": kind}
    return http(label, path, raw=_based(head + data), headers=headers)


def contents(label: str, *, shape: int = 2, raws: list[str] | None = None, **contents: Any) -> Ask:
    one = {"name": "x", "datatype": "FP32", "shape": [str(shape)], "contents": contents}
    more = {} if raws is None else {"raw_input_contents": raws}
    return grpc(label, "ModelInfer", {"inputs": [one], **more})


def about(call: str, request: Any = None, view: str = "", label: str = "", **more: Any) -> Ask:
    return grpc(label or call, call, request or {}, view, **more)


SAGEMAKER_KIND = "application/vnd.sagemaker-triton.binary+json;json-header-size={}"


def invoked(label: str, body: Any, **headers: str) -> Ask:
    return http(label, "invocations", body, headers={k.replace("_", "-"): v
                                                     for k, v in headers.items()})  # fmt: skip


def invoked_bytes(label: str, *, less: int = 0, kind: str = SAGEMAKER_KIND, **more: Any) -> Ask:
    one = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    head = json.dumps({"inputs": [one], **more}).encode()
    headers = {"content-type": kind.format(len(head) - less)}
    return http(label, "invocations", raw=_based(head + BYTES), headers=headers)


OUT_BYTES = [{"name": "y", "parameters": {"binary_data": True}}]

PROTOCOL = (
    Case("bytes", PLAIN, SAME, (
        in_bytes("a tensor"), in_bytes("the answer, too", outputs=OUT_BYTES),
        in_bytes("the answer, all", parameters={"binary_data_output": True}),
        in_bytes("said to be JSON", kind="application/json"),
        in_bytes("a size too small", size=4), in_bytes("a size too large", size=12),
        in_bytes("no size", size=None), in_bytes("size 0", size=0),
        in_bytes("size below zero", size=-8),
        in_bytes("more bytes than said", data=BYTES + b"1234"),
        in_bytes("fewer bytes than said", data=BYTES[:4]), in_bytes("a shape too large", shape=3),
        in_bytes("a length too small", length=5), in_bytes("a length too large", length=999),
        in_bytes("no number as length", length="ten"), in_bytes("a length below zero", length=-1),
        http("length 0, the tensor's bytes alone", "infer", raw=_based(BYTES),
             headers={LENGTH: "0", "content-type": "application/octet-stream"}),
        http("length 0, half a number", "infer", raw=_based(BYTES[:6]),
             headers={LENGTH: "0", "content-type": "application/octet-stream"}),
        http("gzip", "infer", {"inputs": [tensor([1.0], [1])]},
             headers={"content-encoding": "gzip"}),
        http("gzip wanted", "infer", {"inputs": [tensor([1.0], [1])]},
             headers={"accept-encoding": "gzip"}),
        http("an unknown encoding", "infer", {"inputs": [tensor([1.0], [1])]},
             headers={"content-encoding": "br"}),
        http("no content type", "infer", {"inputs": [tensor([1.0], [1])]},
             headers={"content-type": "text/plain"}),
    )),
    Case("bodies", PLAIN, SAME, (
        *[http(label, "infer", raw=raw(text)) for label, text in {
            "empty": "", "no JSON": "{", "a list": "[]", "a number": "3", "null": "null",
            "inputs as an object": '{"inputs": {}}', "inputs null": '{"inputs": null}',
            "an input without a name": '{"inputs":[{"datatype":"FP32","shape":[1],"data":[1]}]}',
            "an input without a type": '{"inputs":[{"name":"x","shape":[1],"data":[1]}]}',
            "an input without a shape": '{"inputs":[{"name":"x","datatype":"FP32","data":[1]}]}',
            "an input without data": '{"inputs":[{"name":"x","datatype":"FP32","shape":[1]}]}',
            "a shape of texts":
                '{"inputs":[{"name":"x","datatype":"FP32","shape":["1"],"data":[1]}]}',
            "a shape of fractions":
                '{"inputs":[{"name":"x","datatype":"FP32","shape":[1.5],"data":[1]}]}',
            "data as a number": '{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":1}]}',
            "an unknown key":
                '{"extra":1,"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1],"e":2}]}',
            "a key twice":
                '{"inputs":[],"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}',
            "text after it":
                '{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]} more',
            "outputs as an object":
                '{"outputs":{},"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}',
            "no outputs":
                '{"outputs":[],"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}',
            "parameters as a list":
                '{"parameters":[],"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}',
            "a comment":
                '{/* c */"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}',
        }.items()],
        http("GET", "infer", method="GET"), http("PUT", "infer", {"inputs": []}, method="PUT"),
        http("an unknown action", "inferr", {"inputs": []}),
        http("generate with GET", "generate", method="GET"),
    )),
    Case("messages", PLAIN, SAME, (
        contents("contents", fp32_contents=[1, 2]),
        contents("of another type", int_contents=[1, 2]),
        contents("too few", fp32_contents=[1]), contents("too many", fp32_contents=[1, 2, 3]),
        contents("two kinds", fp32_contents=[1, 2], int_contents=[1, 2]),
        contents("raw", raws=[packed(1, 2)]), contents("raw too short", raws=[packed(1)]),
        contents("raw too long", raws=[packed(1, 2, 3)]),
        contents("raw of two", raws=[packed(1, 2), packed(1, 2)]),
        contents("raw and contents", raws=[packed(1, 2)], fp32_contents=[1, 2]),
        contents("nothing"), contents("a shape below zero", shape=-1, fp32_contents=[1]),
        *[grpc(f"a parameter as {kind}", "ModelInfer", message({"inputs": [tensor([1.0], [1])]})
               | {"parameters": {"k": {kind: value}}})
          for kind, value in {
              "uint64_param": "7", "double_param": 0.5, "int64_param": "-7"}.items()],
        grpc("a parameter of no kind", "ModelInfer", message({"inputs": [tensor([1.0], [1])]})
             | {"parameters": {"k": {}}}),
        grpc("version 1", "ModelInfer", message({"inputs": [tensor([1.0], [1])]})
             | {"model_version": "1"}),
        grpc("version 2", "ModelInfer", message({"inputs": [tensor([1.0], [1])]})
             | {"model_version": "2"}),
        grpc("no number as version", "ModelInfer", message({"inputs": [tensor([1.0], [1])]})
             | {"model_version": "x"}),
        grpc("no model's name", "ModelInfer", message({"inputs": [tensor([1.0], [1])]})
             | {"model_name": ""}),
        grpc("an unknown model", "ModelInfer", message({"inputs": [tensor([1.0], [1])]})
             | {"model_name": "gone"}),
    )),
    Case("parameter-kinds", TOLD, seen("json.loads(request.parameters())"), [
        grpc(f"as {kind}", "ModelInfer", message({"inputs": [ONE]})
             | {"parameters": {"k": {kind: value}}})
        for kind, value in {"uint64_param": "18446744073709551615", "double_param": 0.5,
                            "int64_param": "-7", "bool_param": False, "string_param": ""}.items()
    ]),
    Case("headers", TOLD, seen("json.loads(request.parameters())"), (
        http("forwarded", "infer", {"inputs": [ONE]}, headers={"x-tenant": "a"}),
        http("not named", "infer", {"inputs": [ONE]}, headers={"x-other": "a"}),
        http("in capitals", "infer", {"inputs": [ONE]}, headers={"X-Tenant": "A"}),
        http("a longer name", "infer", {"inputs": [ONE]}, headers={"x-tenant-more": "a"}),
        http("beside a parameter", "infer", {"inputs": [ONE], "parameters": {"k": "v"}},
             headers={"x-tenant": "a"}),
        http("against a parameter", "infer", {"inputs": [ONE], "parameters": {"x-tenant": "v"}},
             headers={"x-tenant": "a"}),
        http("generated", "generate", {"x": 1.0}, headers={"x-tenant": "a"}),
        grpc("metadata forwarded", "ModelInfer", message({"inputs": [ONE]}),
             metadata={"x-tenant": "a"}),
        grpc("metadata not named", "ModelInfer", message({"inputs": [ONE]}),
             metadata={"x-other": "a"}),
        grpc("metadata of a longer name", "ModelInfer", message({"inputs": [ONE]}),
             metadata={"x-tenant-more": "a"}),
        grpc("metadata against a parameter", "ModelInfer",
             message({"inputs": [ONE], "parameters": {"x-tenant": "v"}}),
             metadata={"x-tenant": "a"}),
        grpc("metadata of a stream", "ModelStreamInfer", [message({"inputs": [ONE]})],
             metadata={"x-tenant": "a"}),
    )),
    Case("server", BATCHED, SAME, (
        *infer("one", ONE), http("live", "/health/live"), http("ready", "/health/ready"),
        http("about itself", "/", view="code"),
        http("model ready", "ready"), http("an unknown model ready", "/models/gone/ready"),
        http("about an unknown model", "/models/gone"),
        http("configuration of an unknown model", "/models/gone/config"),
        http("statistics of an unknown model", "/models/gone/stats"),
        http("an inference of an unknown model", "/models/gone/infer", {"inputs": []}),
        http("generate of an unknown model", "/models/gone/generate", {}),
        http("version 1 ready", "versions/1/ready"), http("version 2 ready", "versions/2/ready"),
        http("metadata", "", view="tensors"), http("configuration", "config", view="config"),
        http("statistics", "stats", view="counts", settles=True),
        http("of a version", "versions/1/stats", view="counts", settles=True),
        http("of another version", "versions/9/stats"),
        http("of all", "/models/stats", view="code"),
        http("index", "/repository/index", {}, view="index"),
        http("ready ones", "/repository/index", {"ready": True}, view="index"),
        http("load an unknown model", "/repository/models/gone/load", {}),
        http("unload an unknown model", "/repository/models/gone/unload", {}),
        http("an unknown path", "/nothing"), http("index with GET", "/repository/index"),
        about("ServerLive"), about("ServerReady"), about("ServerMetadata", view="code"),
        about("ModelReady", {"name": "server"}),
        about("ModelReady", {"name": "gone"}, label="ModelReady of an unknown model"),
        about("ModelReady", {"name": "server", "version": "2"}, label="ModelReady of no version"),
        about("ModelMetadata", {"name": "server"}, "tensors"),
        about("ModelMetadata", {"name": "gone"}, label="ModelMetadata of an unknown model"),
        about("ModelConfig", {"name": "server"}, "grpc-config"),
        about("ModelConfig", {"name": "gone"}, label="ModelConfig of an unknown model"),
        about("ModelStatistics", {"name": "server"}, "counts", settles=True),
        about("ModelStatistics", {"name": "gone"}, label="ModelStatistics of an unknown model"),
        about("RepositoryIndex", view="index"),
        about("RepositoryModelLoad", {"model_name": "gone"}),
        about("RepositoryModelUnload", {"model_name": "gone"}),
    )),
    Case("settings", BATCHED, SAME, (
        http("log settings", "/logging", view="log"),
        http("log level 1", "/logging", {"log_verbose_level": 1}, view="log"),
        http("log level 0", "/logging", {"log_verbose_level": 0}, view="log"),
        http("information off", "/logging", {"log_info": False}, view="log"),
        http("information on", "/logging", {"log_info": True}, view="log"),
        http("warnings off alone", "/logging", {"log_warning": False}, view="log"),
        http("warnings on", "/logging", {"log_warning": True}, view="log"),
        http("an unknown log setting", "/logging", {"log_colour": True}),
        http("a log level as text", "/logging", {"log_verbose_level": "1"}),
        http("a format", "/logging", {"log_format": "ISO8601"}, view="log"),
        http("the usual format", "/logging", {"log_format": "default"}, view="log"),
        http("an unknown format", "/logging", {"log_format": "prose"}),
        http("a file", "/logging", {"log_file": "elsewhere"}, view="code"),
        http("trace settings", "/trace/setting", view="code"),
        http("trace settings of a model", "trace/setting", view="code"),
        http("trace settings of an unknown model", "/models/gone/trace/setting"),
        http("trace level", "/trace/setting", {"trace_level": ["TIMESTAMPS"]}, view="code"),
        http("trace level off", "/trace/setting", {"trace_level": ["OFF"]}, view="code"),
        http("an unknown trace setting", "/trace/setting", {"trace_colour": "red"}),
        http("a trace rate as text", "/trace/setting", {"trace_rate": "many"}),
        about("LogSettings", view="code"), about("TraceSetting", view="code"),
        about("TraceSetting", {"model_name": "gone"}, label="TraceSetting of an unknown model"),
    )),
    Case("counted", BATCHED, EACH + """
        if given(request)[0, 0] < 0:
            raise ValueError("no")
        return answer(y=given(request))
""", (
        *infer("three rows", tensor([1.0, 2.0, 3.0], [3, 1])),
        *infer("a failure", tensor([-1.0], [1, 1])),
        *infer("refused", tensor([1], [1, 1], "INT32")),
        http("counts", "stats", view="counts", settles=True),
        about("ModelStatistics", {"name": "counted"}, "counts", settles=True),
    )),
    Case("shared-memory", "max_batch_size: 4 " + tensors(dims="2"), SAME, (
        Ask("a region's life over HTTP", "shared-memory", {"by": "http"}),
        Ask("a region's life over gRPC", "shared-memory", {"by": "grpc"}),
        http("an unknown region", "/systemsharedmemory/region/gone/status"),
        http("CUDA's regions", "/cudasharedmemory/status"),
        http("register without a key", "/systemsharedmemory/region/r/register", {"byte_size": 4}),
        about("SystemSharedMemoryStatus", {"name": "gone"}),
        about("CudaSharedMemoryStatus"),
    )),
    Case("sagemaker", "max_batch_size: 4 " + tensors(), EACH + """
        code = int(given(request)[0, 0])
        if code < 0:
            kinds = [None, pb_utils.TritonError.INVALID_ARG, pb_utils.TritonError.NOT_FOUND,
                     pb_utils.TritonError.UNAVAILABLE, pb_utils.TritonError.INTERNAL]
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("no", kinds[-code]))
        return answer(y=given(request) * 2)
""", (
        invoked("JSON", {"inputs": [ONE]}), invoked("an id", {"inputs": [ONE], "id": "s"}),
        invoked("octets announced, JSON sent", {"inputs": [ONE]},
                content_type="application/octet-stream"),
        invoked("its output", {"inputs": [ONE], "outputs": [{"name": "y"}]}),
        invoked("no inputs", {"inputs": []}), invoked("an unknown input", {"inputs": [
            tensor([1.0], [1, 1], name="z")]}),
        invoked("another type", {"inputs": [tensor([1], [1, 1], "INT32")]}),
        *[invoked(f"an error, {name}", {"inputs": [tensor([code], [1, 1])]}) for code, name in (
            (-1.0, "INVALID_ARG"), (-2.0, "NOT_FOUND"), (-3.0, "UNAVAILABLE"), (-4.0, "INTERNAL"))],
        invoked_bytes("bytes"), invoked_bytes("bytes, the answer, too", outputs=OUT_BYTES),
        invoked_bytes("bytes, the answer, all", parameters={"binary_data_output": True}),
        invoked_bytes("a header too small", less=5), invoked_bytes("a header too large", less=-100),
        invoked_bytes("no number as header", kind=SAGEMAKER_KIND.format("ten")),
        invoked_bytes("no header", kind="application/vnd.sagemaker-triton.binary+json"),
        invoked("JSON, the answer in bytes", {"inputs": [ONE], "outputs": OUT_BYTES}),
        http("no JSON", "invocations", raw=raw("{")),
        http("nothing", "invocations", raw=""),
    )),
)  # fmt: skip
