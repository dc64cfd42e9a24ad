"""The module that Triton's Python models import: a check for each row of its table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.runtimes.python import triton_backend_utils as utils
from penstock.runtimes.python.pb_utils.metrics import FAMILIES_MAX, SERIES_MAX, Changes
from penstock.runtimes.python.pb_utils.offered import TABLE

CONFIG = {
    "name": "m", "max_batch_size": 4,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "y"}], "model_transaction_policy": {"decoupled": True},
}  # fmt: skip
X = np.array([1.5], np.float32)
TEXTS = np.array([b"ab", "c"], object)


@pytest.fixture
def module() -> Any:
    """As a model imports it."""
    init = {"name": "m", "version": "1", "rows_max": 0, "inputs": [], "outputs": []}
    utils.install("/models/m/1", init, Changes())
    return sys.modules.pop("triton_python_backend_utils")


def refuses(call: Callable[[], Any], words: str) -> bool:
    with pytest.raises(utils.TritonModelException, match=words):
        call()
    return True


def request(module: Any, **more: Any) -> Any:
    return module.InferenceRequest(
        inputs=[module.Tensor("x", X)], requested_output_names=["y"], model_name="m", **more
    )


def sent(module: Any, *, decoupled: bool) -> list[Any]:
    """What a sender delivers of two responses and the end; what is refused stands by its words."""
    delivered: list[Any] = []
    sender = module.InferenceResponseSender(
        lambda response, final: delivered.append(final), lambda: False, decoupled=decoupled
    )
    for flags in (0, 0, module.TRITONSERVER_RESPONSE_COMPLETE_FINAL, 0):
        try:
            sender.send(module.InferenceResponse([]), flags)
        except module.TritonModelException as error:
            delivered.append(str(error))
    return delivered


def metrics(module: Any, kind: str) -> Any:
    family = module.MetricFamily(f"own_{kind}", "words", getattr(module.MetricFamily, kind))
    return family.Metric(labels={"a": "b"}, buckets=[1.0] if kind == "HISTOGRAM" else None)


def log(module: Any) -> bool:
    levels = (module.Logger.INFO, module.Logger.WARNING, module.Logger.ERROR, module.Logger.VERBOSE)
    for level in levels:
        module.Logger.log("said", level)
    for write in ("log_info", "log_warn", "log_error", "log_verbose"):
        getattr(module.Logger, write)("said")
    return len(levels) == 4


CHECKS: dict[str, Callable[[Any], bool]] = {
    "InferenceRequest": lambda m: (
        (made := request(m, request_id="r", correlation_id="c", flags=3, timeout=7,
                         parameters={"a": 1})).request_id() == "r"
        and (made.correlation_id(), made.flags(), made.timeout()) == ("c", 3, 7)
        and json.loads(made.parameters()) == {"a": 1}
        and made.requested_output_names() == {"y"}
        and made.trace().get_context() is None
        and not made.is_cancelled()
        and m.InferenceRequest(model_name=b"m", inputs=[]).model_name() == "m"
        and refuses(lambda: made.exec(decoupled=True), "execute")
        and refuses(made.get_response_sender, "execute")
        and refuses(lambda: request(m, correlation_id=1.5), "Correlation")
        and refuses(lambda: request(m, parameters={"a": []}), "bool/int/str")
    ),
    "InferenceResponse": lambda m: (
        m.InferenceResponse(parameters={"a": True}).parameters() == '{"a": true}'
        and not m.InferenceResponse([m.Tensor("x", X)]).has_error()
        and refuses(lambda: m.InferenceResponse(parameters={"a": 1.5}), "bool/int/str")
    ),
    "InferenceResponseSender": lambda m: (
        sent(m, decoupled=True)[:3] == [False, False, True]
        and "closed" in sent(m, decoupled=True)[3]
        and sent(m, decoupled=False)[0] is False
        and "more than one" in sent(m, decoupled=False)[1]
    ),
    "InferenceTrace": lambda m: m.InferenceTrace('{"a": 1}').get_context() == '{"a": 1}',
    "TritonError": lambda m: (
        list(range(8)) == [m.TritonError.UNKNOWN, m.TritonError.INTERNAL, m.TritonError.NOT_FOUND,
         m.TritonError.INVALID_ARG, m.TritonError.UNAVAILABLE, m.TritonError.UNSUPPORTED,
         m.TritonError.ALREADY_EXISTS, m.TritonError.CANCELLED]
        and m.TritonError("no").code() == m.TritonError.INTERNAL
    ),
    "TritonModelException": lambda m: issubclass(m.TritonModelException, Exception),
    "Tensor": lambda m: (
        (made := m.Tensor("x", X)).name() == "x"
        and made.shape() == [1]
        and made.is_cpu()
        and m.Tensor.from_dlpack("y", made).as_numpy().tolist() == [1.5]
        and m.Tensor.from_dlpack("y", made.to_dlpack()).as_numpy().tolist() == [1.5]
        and refuses(m.Tensor("t", TEXTS).to_dlpack, "BYTES")
        and refuses(lambda: m.Tensor("c", np.array([1j])), "'c'")
    ),
    "PreferredMemory": lambda m: (
        request(m, preferred_memory=m.PreferredMemory(m.TRITONSERVER_MEMORY_GPU, 0)) is not None
    ),
    "MemoryType": lambda m: m.MemoryType.TRITONSERVER_MEMORY_CPU == m.TRITONSERVER_MEMORY_CPU,
    "TRITONSERVER_MEMORY_CPU": lambda m: m.TRITONSERVER_MEMORY_CPU == 0,
    "TRITONSERVER_MEMORY_GPU": lambda m: m.TRITONSERVER_MEMORY_GPU == 2,
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START": lambda m: (
        m.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START == 1
    ),
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END": lambda m: (
        m.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END == 2
    ),
    "TRITONSERVER_REQUEST_RELEASE_ALL": lambda m: (
        request(m).set_release_flags(m.TRITONSERVER_REQUEST_RELEASE_ALL) is None
    ),
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE": lambda m: refuses(
        lambda: request(m).set_release_flags(m.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE),
        "rescheduled",
    ),
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL": lambda m: m.TRITONSERVER_RESPONSE_COMPLETE_FINAL == 1,
    "TRITON_STRING_TO_NUMPY": lambda m: m.TRITON_STRING_TO_NUMPY["TYPE_INT8"] is np.int8,
    "Logger": log,
    "Metric": lambda m: (
        metrics(m, "COUNTER").increment(2) is None
        and metrics(m, "COUNTER").value() == 2
        and metrics(m, "GAUGE").set(-1) is None
        and metrics(m, "HISTOGRAM").observe(0.5) is None
        and refuses(lambda: metrics(m, "COUNTER").increment(-1), "0 or more")
        and refuses(lambda: metrics(m, "COUNTER").set(1), "set")
        and refuses(lambda: metrics(m, "HISTOGRAM").value(), "value")
        and refuses(lambda: metrics(m, "GAUGE").set(float("nan")), "nan")
    ),
    "MetricFamily": lambda m: (
        refuses(lambda: m.MetricFamily("penstock_x", "", m.MetricKind.GAUGE), "penstock_")
        and refuses(lambda: m.MetricFamily("a-b", "", m.MetricKind.GAUGE), "a-b")
        and metrics(m, "GAUGE") is not None
        and refuses(lambda: m.MetricFamily("own_GAUGE", "", m.MetricKind.COUNTER), "GAUGE")
        and refuses(lambda: [m.MetricFamily(f"f{at}", "", m.MetricKind.GAUGE)
                             for at in range(FAMILIES_MAX)], "families")
        and refuses(lambda: [m.MetricFamily("own_GAUGE", "", m.MetricKind.GAUGE)
                             .Metric(labels={"at": f"{at}"}) for at in range(SERIES_MAX)],
                    "metrics")
    ),
    "MetricKind": lambda m: m.MetricFamily.HISTOGRAM is m.MetricKind.HISTOGRAM,
    "ModelConfig": lambda m: completes(m.ModelConfig(json.dumps(CONFIG))),
    "get_input_tensor_by_name": lambda m: (
        m.get_input_tensor_by_name(request(m), "x").name() == "x"
        and m.get_input_tensor_by_name(request(m), "z") is None
    ),
    "get_output_tensor_by_name": lambda m: (
        m.get_output_tensor_by_name(m.InferenceResponse([m.Tensor("y", X)]), "y").name() == "y"
        and m.get_output_tensor_by_name(m.InferenceResponse([]), "y") is None
    ),
    "get_input_config_by_name": lambda m: (
        m.get_input_config_by_name(CONFIG, "x")["dims"] == [1]
        and m.get_input_config_by_name(CONFIG, "z") is None
    ),
    "get_output_config_by_name": lambda m: (
        m.get_output_config_by_name(CONFIG, "y") == {"name": "y"}
        and m.get_output_config_by_name({}, "y") is None
    ),
    "using_decoupled_model_transaction_policy": lambda m: (
        m.using_decoupled_model_transaction_policy(CONFIG)
        and not m.using_decoupled_model_transaction_policy({})
    ),
    "triton_string_to_numpy": lambda m: m.triton_string_to_numpy("TYPE_FP32") is np.float32,
    "triton_to_numpy_type": lambda m: (
        [m.triton_to_numpy_type(number) for number in (1, 11, 13, 14)]
        == [np.bool_, np.float32, np.object_, None]
    ),
    "numpy_to_triton_type": lambda m: (
        [m.numpy_to_triton_type(each) for each in (np.bool_, np.float32, np.object_, np.bytes_)]
        == [1, 11, 13, 13]
    ),
    "serialize_byte_tensor": lambda m: (
        m.serialize_byte_tensor(TEXTS) == b"\2\0\0\0ab\1\0\0\0c"
        and m.serialize_byte_tensor(TEXTS[:0]) == ()
        and m.serialize_byte_tensor(X) is None
    ),
    "deserialize_bytes_tensor": lambda m: (
        m.deserialize_bytes_tensor(b"\2\0\0\0ab\1\0\0\0c").tolist() == [b"ab", b"c"]
    ),
    "is_model_ready": lambda m: not m.is_model_ready("nobody"),
    "load_model": lambda m: refuses(lambda: m.load_model("other"), "other"),
    "unload_model": lambda m: refuses(lambda: m.unload_model("other"), "other"),
    "get_model_dir": lambda m: m.get_model_dir() == "/models/m/1",
}  # fmt: skip


def completes(config: Any) -> bool:
    config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [1]})
    config.add_input({"name": "z", "data_type": "TYPE_INT8", "dims": [-1], "optional": True})
    config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [2]})
    config.set_dynamic_batching()
    config.set_max_batch_size(8)
    config.set_model_transaction_policy({"decoupled": True})
    for wrong in (
        lambda: config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [2]}),
        lambda: config.add_input({"name": "x", "data_type": "TYPE_FP32"}),
        lambda: config.add_output(
            {"name": "y", "data_type": "TYPE_FP32", "dims": [2], "optional": True}
        ),
        lambda: config.add_input(
            {"name": "z", "data_type": "TYPE_INT8", "dims": [-1], "optional": False}
        ),
        lambda: config.set_max_batch_size(2),
        lambda: config.set_model_transaction_policy({"decoupled": False}),
        lambda: config.set_model_transaction_policy({"other": True}),
    ):
        with pytest.raises(ValueError, match="'m'"):
            wrong()
    told = config.as_dict()
    names = [each["name"] for each in told["input"]]
    return (names, told["max_batch_size"], told["dynamic_batching"]) == (["x", "z"], 8, {})


def test_the_table_has_the_names_of_the_module(module: Any) -> None:
    assert set(TABLE) == {*utils.__all__, "get_model_dir"}
    assert set(CHECKS) == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_a_name_does_what_its_row_says(module: Any, name: str) -> None:
    assert hasattr(module, name)
    assert CHECKS[name](module)
