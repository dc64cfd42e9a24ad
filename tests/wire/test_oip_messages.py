"""Our Open Inference Protocol messages have the names, numbers and types of the client's."""

from __future__ import annotations

import json

from google.protobuf import descriptor_pb2
from tests.kit.environments import printed_by

from penstock.wire import oip_messages

#: Prints the client's own descriptions of its messages, those inside others too.
DESCRIBE = """
import json
from google.protobuf import descriptor_pb2
from tritonclient.grpc import model_config_pb2, service_pb2

def told(messages, outer=""):
    for message in messages:
        yield outer + message.name, message.SerializeToString().hex()
        yield from told(message.nested_type, outer + message.name + ".")

found = {}
for module in (model_config_pb2, service_pb2):
    file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    found.update(told(file.message_type))
print(json.dumps(found))
"""


def fields(message: descriptor_pb2.DescriptorProto) -> dict[str, tuple[object, ...]]:
    """Name -> number, type, whether it is repeated, and the `oneof` that it belongs to."""
    return {
        field.name: (
            field.number,
            field.type,
            field.label == field.LABEL_REPEATED,
            message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None,
        )
        for field in message.field
    }


def test_every_field_has_the_number_and_type_that_tritonclient_uses() -> None:
    printed = json.loads(printed_by("client-tritonclient", "-c", DESCRIBE))
    theirs = {
        name: descriptor_pb2.DescriptorProto.FromString(bytes.fromhex(each))
        for name, each in printed.items()
    }
    assert len(oip_messages.MESSAGES) > 20
    for name, made in oip_messages.MESSAGES.items():
        ours = descriptor_pb2.DescriptorProto()
        made.DESCRIPTOR.CopyToProto(ours)
        # A gateway reads only the parameters of a request.
        other = fields(theirs["ModelInferRequest" if name == "ModelInferHead" else name])
        assert {each: other.get(each) for each in fields(ours)} == fields(ours), name


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


def test_the_repository_goes_over_the_wire_as_the_protocol_says() -> None:
    messages = oip_messages.MESSAGES
    load = messages["RepositoryModelLoadRequest"](model_name="shop:team/a")
    assert load.SerializeToString() == bytes.fromhex("120b73686f703a7465616d2f61")
    load.parameters["config"].string_param = "{}"
    assert load.SerializeToString() == bytes.fromhex(
        "120b73686f703a7465616d2f61"  # model_name
        "1a0e0a06636f6e66696712041a027b7d"  # parameters: "config" -> "{}"
    )
    unload = messages["RepositoryModelUnloadRequest"](model_name="m")
    unload.parameters["unload_dependents"].bool_param = False
    assert unload.SerializeToString() == bytes.fromhex(
        "12016d"  # model_name
        "1a170a11756e6c6f61645f646570656e64656e747312020800"  # unload_dependents -> false
    )
    assert messages["RepositoryModelLoadResponse"]().SerializeToString() == b""
    index = messages["RepositoryIndexResponse"]()
    index.models.add(name="shop:a", version="1", state="UNAVAILABLE", reason="lowest-value")
    assert index.SerializeToString() == bytes.fromhex(
        "0a26"
        "0a0673686f703a61"  # name
        "120131"  # version
        "1a0b554e415641494c41424c45"  # state
        "220c6c6f776573742d76616c7565"  # reason
    )


def test_the_service_has_the_methods_that_clients_call() -> None:
    request, response = oip_messages.method_classes("ModelInfer")
    assert request is oip_messages.ModelInferRequest
    assert response is oip_messages.ModelInferResponse


def test_the_entries_of_a_map_are_a_key_and_a_value() -> None:
    found = 0
    for made in oip_messages.MESSAGES.values():
        ours = descriptor_pb2.DescriptorProto()
        made.DESCRIPTOR.CopyToProto(ours)
        for entry in ours.nested_type:
            if entry.options.map_entry:
                found += 1
                assert [(each.name, each.number) for each in entry.field] == [
                    ("key", 1), ("value", 2),
                ]  # fmt: skip
                by_level = entry.name == "PriorityQueuePolicyEntry"
                kinds = entry.field[0].TYPE_STRING, entry.field[0].TYPE_UINT64
                assert entry.field[0].type == kinds[by_level]
    assert found == 26


def test_the_head_of_a_request_has_its_parameters() -> None:
    request = oip_messages.ModelInferRequest(model_name="m")
    request.raw_input_contents.append(b"\x01" * 8)
    request.parameters["sequence_id"].uint64_param = 7
    head = oip_messages.ModelInferHead.FromString(request.SerializeToString())
    assert head.parameters["sequence_id"].uint64_param == 7
