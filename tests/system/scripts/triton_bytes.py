"""Bytes that are no text through an unmodified tritonclient: triton_bytes.py HTTP GRPC NAME TEXT.

NAME: a model with a BYTES input `x` and an output `y` that is the same; TEXT: one that reads text.
"""

import json
import sys

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, deserialize_bytes_tensor

http_address, grpc_address, name, text_name = sys.argv[1:5]
given = [
    bytes(range(256)),
    b"",
    b"\0",
    b"a\0b\0\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    bytes(range(256)) * 300,
]
array = np.array(given, dtype=object)


def refused(client, *asked, **options):
    try:
        client.infer(*asked, **options)
    except InferenceServerException as error:
        return [error.status(), error.message()]
    return None


seen = {}
for door, module, address in (
    ("http", triton_http, http_address),
    ("grpc", triton_grpc, grpc_address),
):
    client = module.InferenceServerClient(address)
    tensor = module.InferInput("x", [len(given)], "BYTES")
    tensor.set_data_from_numpy(array)
    outputs = [module.InferRequestedOutput("y")]
    same = []
    for wanted in (None, outputs):
        answer = client.infer(name, [tensor], outputs=wanted).as_numpy("y")
        same.append(answer.tolist() == given)
    texts = module.InferInput("text", [2], "BYTES")
    texts.set_data_from_numpy(np.array([b"fine", b"a\xff"], dtype=object))
    seen[door] = {"same": same, "text model": refused(client, text_name, [texts])}
    if door == "http":
        plain = [module.InferRequestedOutput("y", binary_data=False)]
        seen["as json"] = refused(client, name, [tensor], outputs=plain)
        words = module.InferInput("x", [2], "BYTES")
        words.set_data_from_numpy(np.array(["h\u00e9", ""], dtype=object), binary_data=False)
        seen["from json"] = [
            each.hex() for each in client.infer(name, [words]).as_numpy("y").tolist()
        ]
    client.close()

import grpc  # noqa: E402

request = service_pb2.ModelInferRequest(model_name=name)
request.inputs.add(name="x", datatype="BYTES", shape=[len(given)]).contents.bytes_contents.extend(
    given
)
with grpc.insecure_channel(grpc_address) as channel:
    answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
seen["contents"] = deserialize_bytes_tensor(answer.raw_output_contents[0]).tolist() == given
print(json.dumps(seen))
