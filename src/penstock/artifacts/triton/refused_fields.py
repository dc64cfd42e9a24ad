"""Fields of Triton's config.pbtxt that are refused, and those that change nothing here.

`config.py` and `ensemble.py` refuse with the words of this table, and `docs/howto/refused.md` is
generated from it.
"""

from __future__ import annotations

from typing import Final

_PLAIN: Final = "every request gives every input, in its plain form"
_ENSEMBLE: Final = "an ensemble computes nothing itself"

#: Field -> (why it is refused, what to do; "" where leaving it out is all).
REFUSED: Final[dict[str, tuple[str, str]]] = {
    "is_shape_tensor": (_PLAIN, ""),
    "is_non_linear_format_io": (_PLAIN, ""),
    "allow_ragged_batch": (
        "tensors of different shapes are not joined into one",
        "Leave it out: requests of different shapes are then computed one after the other.",
    ),
    "iterative_sequence": (
        "a request runs once: the model would have to ask for itself again",
        "Let the model loop inside one request.",
    ),
    "generative_sequence": (
        "it is the old name of iterative_sequence, and a request runs once",
        "Let the model loop inside one request.",
    ),
    "batch_input": (
        "inputs come from the request alone, and a ragged batch is never made",
        "Let the model find its rows by the shapes of its inputs.",
    ),
    "batch_output": ("outputs are split by rows", ""),
    "decoupled": ("only a Python model has any number of responses to a request", ""),
    "agents": ("repository agents are programs of Triton", ""),
}
#: The same of an ensemble alone.
REFUSED_OF_ENSEMBLES: Final[dict[str, tuple[str, str]]] = {
    "dynamic_batching": (_ENSEMBLE, "Give it to the ensemble's models."),
    "instance_group": (_ENSEMBLE, "Give it to the ensemble's models."),
    "sequence_batching": (_ENSEMBLE, "Serve the stateful model as an endpoint of its own."),
    "default_model_filename": ("an ensemble has no file", "Its steps name models that do."),
    "reshape": (_ENSEMBLE, "Give it to the model that has the tensor."),
    "optional": (_ENSEMBLE, "Leave it out: a request to an ensemble gives every input."),
    "model_namespace": ("one repository is served", "Put all models into one repository."),
}
#: Where a refused field stands, and which of its values are refused where not all are.
PLACES: Final = {
    "is_shape_tensor": "input[], output[]",
    "is_non_linear_format_io": "input[], output[]",
    "allow_ragged_batch": "input[] (of other backends than python)",
    "iterative_sequence": "sequence_batching",
    "generative_sequence": "sequence_batching",
    "decoupled": "model_transaction_policy (of other backends than python)",
    "agents": "model_repository_agents",
    "reshape": "input[], output[]",
    "optional": "input[]",
    "model_namespace": "ensemble_scheduling.step[]",
}

_TUNES: Final = "it tunes or prepares Triton itself and never changes an answer"
_PLACED: Final = "the instance decides where a copy runs"
#: Field of the top level -> why it is accepted and has no effect.
NO_EFFECT: Final = dict.fromkeys(
    ("optimization", "cc_model_filenames", "runtime", "metric_tags",
     "model_operations", "model_metrics"),
    _TUNES,
)  # fmt: skip
#: The same of an entry of instance_group.
NO_EFFECT_OF_GROUPS: Final = dict.fromkeys(
    ("name", "profile", "host_policy", "secondary_devices"), _PLACED
) | {"rate_limiter": "as in Triton, where `control.rate_limit` is off"}
#: Read and checked, and without effect.
READ_WITHOUT_EFFECT: Final = {
    "instance_group[].gpus": _PLACED,
    "response_cache (of an ensemble)": "its models have caches of their own",
    "input[].format": "it says how to read the dims, and changes nothing",
    "sequence_batching.oldest.preserve_ordering": (
        "replies name their request, so their order is free"
    ),
    "sequence_batching.state[].use_same_buffer_for_input_output": _TUNES,
    "sequence_batching.state[].use_growable_memory": _TUNES,
    "ensemble_scheduling.max_inflight_requests": "every model's own queue bounds memory",
}
