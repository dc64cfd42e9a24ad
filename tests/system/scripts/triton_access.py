"""An unmodified tritonclient with a bearer key over TLS, HTTP and gRPC.

triton_access.py HTTP_ADDRESS GRPC_ADDRESS NAME CERTIFICATE TOKEN. Prints one JSON object.
"""

import json
import sys

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

http_address, grpc_address, name, certificate, token = sys.argv[1:6]
clients = {
    "http": (
        triton_http,
        triton_http.InferenceServerClient(
            http_address, ssl=True, ssl_options={"ca_certs": certificate}
        ),
    ),
    "grpc": (
        triton_grpc,
        triton_grpc.InferenceServerClient(grpc_address, ssl=True, root_certificates=certificate),
    ),
}
seen = {}
for door, (module, client) in clients.items():
    tensor = module.InferInput("text", [1], "BYTES")
    tensor.set_data_from_numpy(np.array(["where is my order"], dtype=object))

    def tried(headers, module=module, client=client, tensor=tensor):
        try:
            result = client.infer(name, [tensor], headers=headers)
        except InferenceServerException as error:
            return error.status()
        return result.as_numpy("label").tolist()[0].decode()

    seen[door] = {
        "live": client.is_server_live(),
        "right": tried({"authorization": f"Bearer {token}"}),
        "wrong": tried({"authorization": "Bearer psk_wrong"}),
        "none": tried(None),
    }
print(json.dumps(seen))
