"""Run by the client's own environment: the unmodified tritonclient reads a pipeline's events.

Arguments: host:port of gRPC, endpoint, request as JSON. Prints [kind, data] of each event in order.
"""

from __future__ import annotations

import json
import queue
import sys

import numpy as np
import tritonclient.grpc as triton


def main() -> None:
    address, endpoint, request = sys.argv[1:4]
    answers: queue.Queue[tuple[object, object]] = queue.Queue()
    client = triton.InferenceServerClient(address)
    client.start_stream(lambda result, error: answers.put((result, error)))
    tensor = triton.InferInput("request", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([request.encode()], dtype=object))
    client.async_stream_infer(endpoint, [tensor], enable_empty_final_response=True)
    events, last = [], False
    while not last:
        result, error = answers.get(timeout=60)
        if error is not None:
            raise SystemExit(str(error))
        last = result.get_response().parameters["triton_final_response"].bool_param  # type: ignore[attr-defined]
        kinds = result.as_numpy("event")  # type: ignore[attr-defined]
        if kinds is not None:
            data = result.as_numpy("data")  # type: ignore[attr-defined]
            events.append([kinds[0].decode(), json.loads(data[0])])
    client.stop_stream()
    print(json.dumps({"events": events}))


if __name__ == "__main__":
    main()
