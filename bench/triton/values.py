"""Cases of types and values: what a tensor may hold, and how JSON and bytes say it."""

from __future__ import annotations

import base64

from bench.triton.cases import (
    PLAIN,
    SAME,
    Ask,
    Case,
    client,
    everywhere,
    generate,
    grpc,
    http,
    infer,
    packed,
    tensor,
    tensors,
)


def raw(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def literal(label: str, kind: str, values: str, count: int = 1) -> Ask:
    """Values as they stand in the body."""
    body = '{"inputs":[{"name":"x","datatype":"%s","shape":[%d],"data":[%s]}]}'
    return http(label, "infer", raw=raw(body % (kind, count, values)))


def brain_floats(label: str) -> Ask:
    """1.5 and -2: NVIDIA's client makes them with a package of its own alone."""
    one = {"name": "x", "datatype": "BF16", "shape": ["2"]}
    bits = packed(0x3FC0, 0xC000, kind="<u2")
    return grpc(label, "ModelInfer", {"inputs": [one], "raw_input_contents": [bits]})


_WHOLE = {
    "INT8": (-128, 127), "INT16": (-(2**15), 2**15 - 1), "INT32": (-(2**31), 2**31 - 1),
    "INT64": (-(2**63), 2**63 - 1), "UINT8": (0, 255), "UINT16": (0, 2**16 - 1),
    "UINT32": (0, 2**32 - 1), "UINT64": (0, 2**64 - 1),
}  # fmt: skip

VALUES = (
    *(
        Case(f"whole-{kind.lower()}", tensors(kind), SAME, (
            *everywhere("the least and the largest", tensor([low, high], [2], kind)),
            *infer("beyond the largest", tensor([high + 1], [1], kind))[:1],
            *infer("below the least", tensor([low - 1], [1], kind))[:1],
            literal("a fraction", kind, "1.5"), literal("a whole fraction", kind, "2.0"),
            literal("with an exponent", kind, "1e2"), literal("a text", kind, '"1"'),
            literal("a flag", kind, "true"), literal("null", kind, "null"),
        ))
        for kind, (low, high) in _WHOLE.items()
    ),
    Case("flags", tensors("BOOL"), SAME, (
        *everywhere("two", tensor([True, False], [2], "BOOL")), literal("numbers", "BOOL", "1"),
        literal("another number", "BOOL", "7"), literal("a text", "BOOL", '"true"'),
        *generate("generated", {"x": True}),
    )),
    Case("floats", PLAIN, SAME, (
        *everywhere("three", tensor([0.1, -1e30, 1e-30], [3])),
        literal("NaN and infinities", "FP32", "NaN, Infinity, -Infinity", 3),
        literal("Inf", "FP32", "Inf"), literal("a number beyond FP32", "FP32", "1e39"),
        literal("a number beyond FP64", "FP32", "1e999"), literal("a text", "FP32", '"1.0"'),
        literal("a flag", "FP32", "true"), literal("null", "FP32", "null"),
        literal("a whole number", "FP32", "3"), literal("a large whole number", "FP32", "1" * 25),
        literal("below zero", "FP32", "-0.0"), literal("a plus", "FP32", "+1.0"),
        literal("a trailing comma", "FP32", "1.0,"), literal("nested", "FP32", "[1.0],[2.0]", 2),
        literal("nested unevenly", "FP32", "[1.0],2.0", 2),
        *client("NaN in bytes", tensor([float("nan"), float("inf")], [2])),
        *everywhere("no values", tensor([], [0])),
        *infer("no values, two dims", tensor([], [0, 1])),
    )),
    Case("doubles", tensors("FP64"), SAME, (
        *everywhere("three", tensor([0.1, 1e300, 5e-324], [3], "FP64")),
        literal("beyond", "FP64", "1e999"),
    )),
    Case("halves", tensors("FP16"), SAME, (
        *client("in bytes", tensor([1.5, -2.0, 65504.0], [3], "FP16")),
        literal("in JSON", "FP16", "1.5"),
        grpc("in raw contents", "ModelInfer", {
            "inputs": [{"name": "x", "datatype": "FP16", "shape": ["1"]}],
            "raw_input_contents": [packed(1.5, kind="<f2")]}),
        http("an answer in bytes", "infer", {
            "inputs": [tensor([1.5], [1], "FP16")], "parameters": {"binary_data_output": True}}),
        *generate("generated", {"x": 1.5}),
    )),
    Case("brain-floats", tensors("BF16"), """
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y",
            pb_utils.get_input_tensor_by_name(each, "x"))]) for each in requests]
""", (brain_floats("in raw contents"), literal("in JSON", "BF16", "1.5"))),
    Case("brain-floats-numpy", tensors("BF16"), SAME, [brain_floats("as numpy")]),
    Case("texts", "max_batch_size: 4 " + tensors("STRING"), SAME, (
        *everywhere("a text and none", tensor(["a", ""], [1, 2], "BYTES")),
        *everywhere("beyond ASCII", tensor(["\u00e4\u4e2d\U0001f600"], [1, 1], "BYTES")),
        http("bytes that are no UTF-8", "infer", {
            "inputs": [tensor(["\ud800"], [1, 1], "BYTES")]}),
        http("a number", "infer", {"inputs": [tensor([1], [1, 1], "BYTES")]}),
        grpc("any bytes", "ModelInfer", {"inputs": [{
            "name": "x", "datatype": "BYTES", "shape": ["1", "1"],
            "contents": {"bytes_contents": ["/wA="]}}]}),
        http("an end within", "infer", {"inputs": [tensor(["a\0b"], [1, 1], "BYTES")]}),
        *generate("a text", {"x": "text"}), *generate("two texts", {"x": ["a", "b"]}),
    )),
    Case("bytes-out", tensors("STRING"), """
    def execute(self, requests):
        return [answer(y=np.array([b"\\xff\\x00"], object)) for each in requests]
""", (http("no UTF-8 as JSON", "infer", {"inputs": [tensor(["a"], [1], "BYTES")]}),
      *client("no UTF-8 in bytes", tensor(["a"], [1], "BYTES")))),
    Case("numbers-out", PLAIN, """
    def execute(self, requests):
        made = [np.nan, np.inf, -np.inf, 1e-45, 0.1]
        return [answer(y=np.array(made, np.float32)) for each in requests]
""", (*everywhere("what JSON has no word for", tensor([1.0], [1])),
      *generate("generated", {"x": 1.0}))),
    Case("not-contiguous", tensors(dims="-1, -1"), """
    def execute(self, requests):
        return [answer(y=given(each).T[::-1]) for each in requests]
""", everywhere("turned", tensor([1.0, 2.0, 3.0, 4.0], [2, 2]))),
    Case("big-endian", tensors("INT32"), """
    def execute(self, requests):
        return [answer(y=given(each).astype(">i4")) for each in requests]
""", infer("the other order of bytes", tensor([1], [1], "INT32"))),
    Case("fixed-strings", tensors("STRING"), """
    def execute(self, requests):
        return [answer(y=np.array(["ab", "c"])) for each in requests]
""", infer("numpy's own strings", tensor(["a"], [1], "BYTES"))),
)  # fmt: skip
