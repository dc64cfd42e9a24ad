"""Run by the client's own environment: the unmodified tritonclient streams from a live server.

Arguments: host:port of gRPC, model, prompt, tokens. Prints the texts of two requests on one call.
"""

from __future__ import annotations

import json
import queue
import sys

import numpy as np
import tritonclient.grpc as triton


def tensor(name: str, kind: str, values: object) -> triton.InferInput:
    made = triton.InferInput(name, [1], kind)
    made.set_data_from_numpy(values)
    return made


def main() -> None:
    address, model, prompt, tokens = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    answers: queue.Queue[tuple[object, object]] = queue.Queue()
    client = triton.InferenceServerClient(address)
    client.start_stream(lambda result, error: answers.put((result, error)))
    inputs = [
        tensor("text_input", "BYTES", np.array([prompt.encode()], dtype=object)),
        tensor("stream", "BOOL", np.array([True])),
        tensor("max_tokens", "INT32", np.array([tokens], dtype=np.int32)),
    ]
    texts = {"a": "", "b": ""}
    for ident in texts:
        client.async_stream_infer(model, inputs, request_id=ident, enable_empty_final_response=True)
    left = len(texts)
    while left:
        result, error = answers.get(timeout=60)
        if error is not None:
            raise SystemExit(str(error))
        response = result.get_response()  # type: ignore[attr-defined]
        text = result.as_numpy("text_output")  # type: ignore[attr-defined]
        texts[response.id] += text[0].decode() if text is not None else ""
        left -= response.parameters["triton_final_response"].bool_param
    client.stop_stream()
    print(json.dumps(texts))


if __name__ == "__main__":
    main()
