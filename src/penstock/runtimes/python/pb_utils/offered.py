"""What each name of Triton's `triton_python_backend_utils` does here: a row per name.

The page in the reference is generated from this table; a test tries each row.
"""

from __future__ import annotations

from typing import Final

_HOST: Final = "tensors are in host memory in any case"

#: Name -> what it does here.
TABLE: Final[dict[str, str]] = {
    "InferenceRequest": (
        "all that the client says: `inputs`, `request_id`, `correlation_id` (number or string), "
        "`flags`, `timeout` (us), `parameters` (JSON), `requested_output_names`, `trace`, "
        "`is_cancelled`, `get_response_sender`. Made by a model: `exec` and `async_exec` call a "
        "model of the repository with all of it; with `decoupled=True` they return an iterator "
        "over its responses. `set_release_flags` for another execute is refused"
    ),
    "InferenceResponse": (
        "tensors or an error, and `parameters` (bool, int, str), which the client gets over HTTP, "
        "gRPC and from a call"
    ),
    "InferenceResponseSender": (
        "decoupled models: any number of responses, from any thread, until the one with the final "
        "flag. Other models: one. One that is let go without the end is an error of the model"
    ),
    "InferenceTrace": "`get_context()`: the request's W3C trace context as JSON; None untraced",
    "TritonError": (
        "all eight codes, which are over HTTP and gRPC what they are in Triton: UNAVAILABLE 503, "
        "UNSUPPORTED 501, NOT_FOUND 404, INTERNAL 500, the others 400"
    ),
    "TritonModelException": "raised by the module for wrong use",
    "Tensor": f"numpy arrays, and DLPack with host memory; {_HOST}, and a GPU's are refused",
    "PreferredMemory": f"accepted: {_HOST}",
    "MemoryType": "`TRITONSERVER_MEMORY_CPU`, `TRITONSERVER_MEMORY_GPU`",
    "TRITONSERVER_MEMORY_CPU": "for `PreferredMemory`",
    "TRITONSERVER_MEMORY_GPU": f"for `PreferredMemory`; {_HOST}",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START": "1, in `flags()`",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END": "2, in `flags()`",
    "TRITONSERVER_REQUEST_RELEASE_ALL": "1, the one that `set_release_flags` takes",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE": "2, which `set_release_flags` refuses",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL": "1, the flag of the last response",
    "TRITON_STRING_TO_NUMPY": "`TYPE_...` -> numpy's type; bfloat16 is float32",
    "Logger": "lines of the endpoint's log; WARNING, ERROR and VERBOSE stand in front of theirs",
    "Metric": (
        "`increment`, `set`, `observe`, `value` (of this process of the model), as its kind allows"
    ),
    "MetricFamily": (
        "COUNTER, GAUGE, HISTOGRAM: on `/metrics` under its own name, with the labels endpoint, "
        "variant and instance beside the model's, and target_model where there are several. At "
        "most 100 families and 1000 metrics of a model; names of penstock_, process_ and python_ "
        "are refused"
    ),
    "MetricKind": "the kinds of `MetricFamily`",
    "ModelConfig": "the configuration in `auto_complete_config`",
    "get_input_tensor_by_name": "None where there is none",
    "get_output_tensor_by_name": "None where there is none",
    "get_input_config_by_name": "None where there is none",
    "get_output_config_by_name": "None where there is none",
    "using_decoupled_model_transaction_policy": "of `json.loads(args['model_config'])`",
    "triton_string_to_numpy": "`TYPE_FP32` -> `numpy.float32`",
    "triton_to_numpy_type": "the number of a type in Triton's API -> numpy's type",
    "numpy_to_triton_type": "the inverse",
    "serialize_byte_tensor": "strings as the bytes of a BYTES tensor",
    "deserialize_bytes_tensor": "the inverse, flat",
    "is_model_ready": "whether the model, and the version, is loaded; in `initialize` False",
    "load_model": (
        "in a multi-model endpoint: waits until the model is loaded; in `initialize`, it is loaded "
        "afterwards. A configuration or files are refused. Elsewhere refused: the models are one "
        "artifact"
    ),
    "unload_model": (
        "in a multi-model endpoint: returns at once, and the model goes when it has answered; with "
        "`unload_dependents` those of an ensemble's steps, too. Elsewhere refused"
    ),
    "get_model_dir": "the folder of the version that is served",
}
