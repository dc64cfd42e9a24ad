"""Our Open Inference Protocol messages have the names, numbers and types of the client's."""

from __future__ import annotations

import pytest

from penstock.wire import oip_messages


def test_every_field_has_the_number_and_type_that_tritonclient_uses() -> None:
    service = pytest.importorskip("tritonclient.grpc.service_pb2", reason="needs tritonclient")
    config = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    for name, ours in oip_messages.MESSAGES.items():
        theirs = service if hasattr(service, name.split(".")[0]) else config
        for part in name.split("."):
            theirs = getattr(theirs, part)
        for field in ours.DESCRIPTOR.fields:
            other = theirs.DESCRIPTOR.fields_by_name[field.name]
            assert (field.number, field.type) == (other.number, other.type), f"{name}.{field.name}"
            assert field.is_repeated == other.is_repeated, f"{name}.{field.name}"
            one = field.containing_oneof and field.containing_oneof.name
            assert one == (other.containing_oneof and other.containing_oneof.name)


def test_a_request_goes_over_the_wire_as_the_protocol_says() -> None:
    request = oip_messages.ModelInferRequest(model_name="m", id="7")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    request.raw_input_contents.append(b"\x00\x00\x80\x3f\x00\x00\x00\x40")
    request.parameters["b"].bool_param = True
    assert request.SerializeToString(deterministic=True) == bytes.fromhex(
        "0a016d"  # model_name = "m"
        "1a0137"  # id = "7"
        "22070a016212020801"  # parameters: "b" -> true
        "2a0d0a01781204465033321a020102"  # inputs: "x", "FP32", [1, 2]
        "3a080000803f00000040"  # raw_input_contents: 1.0, 2.0
    )


def test_data_types_of_model_configurations() -> None:
    assert oip_messages.DATA_TYPE_NUMBERS["FP32"] == 11
    assert oip_messages.DATA_TYPE_NUMBERS["BYTES"] == 13
    assert oip_messages.DATA_TYPE_NUMBERS["BF16"] == 14


def test_the_service_has_the_methods_that_clients_call() -> None:
    request, response = oip_messages.method_classes("ModelInfer")
    assert request is oip_messages.ModelInferRequest
    assert response is oip_messages.ModelInferResponse
