"""The metrics of models under the names that Triton's dashboards read, as data."""

from __future__ import annotations

from typing import Final

from penstock.metrics.catalogue.catalogue import PrometheusMetric

_MODEL: Final = ("model", "version")


def _counter(name: str, words: str, *labels: str) -> PrometheusMetric:
    # `unknown`, as Triton's names lack the suffix that the format gives to counters
    return PrometheusMetric(name, "unknown", (*_MODEL, *labels), words)


SUCCESS: Final = _counter("nv_inference_request_success", "Requests that were answered.")
FAILURE: Final = _counter(
    "nv_inference_request_failure",
    "Requests that were not: REJECTED (refused), CANCELED, BACKEND (the model failed, or its "
    "inputs could not be read), OTHER.",
    "reason",
)
COUNT: Final = _counter("nv_inference_count", "Rows that were computed, without cached answers.")
EXECUTIONS: Final = _counter(
    "nv_inference_exec_count", "Runs of the model, without cached answers."
)
REQUEST_US: Final = _counter(
    "nv_inference_request_duration_us",
    "From the first byte of requests to the last one of their answers, of those that were "
    "answered.",
)
QUEUE_US: Final = _counter("nv_inference_queue_duration_us", "Waiting in the queue of a copy.")
INPUT_US: Final = _counter(
    "nv_inference_compute_input_duration_us",
    "Always 0: inputs are read before the queue, and moving them is part of the run.",
)
INFER_US: Final = _counter("nv_inference_compute_infer_duration_us", "In the model.")
OUTPUT_US: Final = _counter(
    "nv_inference_compute_output_duration_us", "Always 0: it is part of the run."
)
PENDING: Final = PrometheusMetric(
    "nv_inference_pending_request_count", "gauge", _MODEL,
    "Rows in the queues of copies, as last measured; every ten seconds.",
)  # fmt: skip
LOAD_S: Final = PrometheusMetric(
    "nv_model_load_duration_secs", "gauge", _MODEL, "What the last copy took to load its model."
)
HITS: Final = _counter("nv_cache_num_hits_per_model", "Answers from the response cache.")
MISSES: Final = _counter(
    "nv_cache_num_misses_per_model", "Requests that the response cache had no answer for."
)
HIT_US: Final = _counter(
    "nv_cache_hit_duration_per_model", "Time to find and write such answers, in microseconds."
)
MISS_US: Final = _counter(
    "nv_cache_miss_duration_per_model",
    "Time to look for answers and to keep the computed ones, in microseconds.",
)

PROMETHEUS: Final = (
    SUCCESS, FAILURE, COUNT, EXECUTIONS, REQUEST_US, QUEUE_US, INPUT_US, INFER_US, OUTPUT_US,
    PENDING, LOAD_S, HITS, MISSES, HIT_US, MISS_US,
)  # fmt: skip
