"""Every metric that Penstock publishes, as data.

`metrics/page/prometheus.py` builds its families from this table, and `docs/reference/metrics.md` is
written from it, so neither can name a metric that the other lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.metrics.loop_lag import EDGES_S


@dataclass(frozen=True, slots=True)
class PrometheusMetric:
    """One family at `/metrics`."""

    name: str
    kind: str  #: counter, gauge, histogram or info
    labels: tuple[str, ...]
    help: str
    edges: tuple[float, ...] = ()  #: upper bounds of a histogram's buckets, without infinity


@dataclass(frozen=True, slots=True)
class CloudWatchMetric:
    """One metric in the CloudWatch API, with the statistics that make sense for it."""

    namespace: str
    name: str
    dimensions: str
    unit: str
    statistics: str
    help: str


#: From a refusal by a fast model (0.5 ms) to the time AWS gives a model (60 s). Steps of 2 to 2.5
#: keep the number of series per variant small; exact percentiles are in the CloudWatch API.
DURATION_EDGES_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
)  # fmt: skip
#: Time per token after the first: from a small model on a GPU (1 ms) to reading speed and slower.
TOKEN_EDGES_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0,
)  # fmt: skip
BATCH_EDGES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

_VARIANT: Final = ("endpoint", "variant")
#: On endpoints with inference components each component has its own rows; others have no such
#: label. It stands last: rows without it leave it out.
_COMPONENT: Final = "component"
#: The most called models, at most 50 per variant; `(others)` for all others together.
_MODEL: Final = (*_VARIANT, "target_model")

REQUESTS: Final = PrometheusMetric(
    "penstock_requests", "counter", (*_VARIANT, "door", "outcome", _COMPONENT),
    "Requests by front door and outcome: ok, caller-error, model-error, refused, internal-error, "
    "cancelled.",
)  # fmt: skip
REFUSED: Final = PrometheusMetric(
    "penstock_refused", "counter", (*_VARIANT, "reason", _COMPONENT),
    "Requests refused before they were in flight, by reason.",
)  # fmt: skip
EJECTED: Final = PrometheusMetric(
    "penstock_copies_ejected", "counter", (*_VARIANT, "reason", _COMPONENT),
    "Times that a copy was sent no requests for a while, because it answered nothing while others "
    "did: instance-silent, deadlines-missed, answers-nothing.",
)  # fmt: skip
IN_FLIGHT: Final = PrometheusMetric(
    "penstock_in_flight", "gauge", (*_VARIANT, _COMPONENT),
    "Requests accepted whose last byte is not yet written.",
)  # fmt: skip
DURATION: Final = PrometheusMetric(
    "penstock_request_duration_seconds", "histogram", (*_VARIANT, _COMPONENT),
    "From a request's first byte to its answer's last byte.", DURATION_EDGES_S,
)  # fmt: skip
QUEUE: Final = PrometheusMetric(
    "penstock_queue_seconds", "histogram", (*_VARIANT, _COMPONENT),
    "Waiting in the queue of a copy, of requests that reached the model.", DURATION_EDGES_S,
)  # fmt: skip
MODEL: Final = PrometheusMetric(
    "penstock_model_seconds", "histogram", (*_VARIANT, _COMPONENT),
    "In the model, of requests that reached it.", DURATION_EDGES_S,
)  # fmt: skip
BATCH_ROWS: Final = PrometheusMetric(
    "penstock_batch_rows", "histogram", (*_VARIANT, _COMPONENT),
    "Rows of the batch in which a request was answered; one observation per request.", BATCH_EDGES,
)  # fmt: skip
FIRST_CHUNK: Final = PrometheusMetric(
    "penstock_time_to_first_chunk_seconds", "histogram", (*_VARIANT, _COMPONENT),
    "From a request's first byte to the first piece of its streamed answer.", DURATION_EDGES_S,
)  # fmt: skip
FIRST_TOKEN: Final = PrometheusMetric(
    "penstock_time_to_first_token_seconds", "histogram", (*_VARIANT, _COMPONENT),
    "To the first token of a generated answer, from the request's first byte; where the answer is "
    "not streamed, from the request's arrival at the engine.", DURATION_EDGES_S,
)  # fmt: skip
OUTPUT_TOKEN: Final = PrometheusMetric(
    "penstock_time_per_output_token_seconds", "histogram", (*_VARIANT, _COMPONENT),
    "Mean time of each token behind the first of a generated answer; one observation per answer.",
    TOKEN_EDGES_S,
)  # fmt: skip
TOKENS: Final = PrometheusMetric(
    "penstock_tokens", "counter", (*_VARIANT, "direction", _COMPONENT),
    "Tokens of generated answers, by direction: in (prompts), out (answers).",
)  # fmt: skip
STREAMS_BROKEN: Final = PrometheusMetric(
    "penstock_streams_broken", "counter", (*_VARIANT, _COMPONENT),
    "Streamed answers that ended with an error after their first piece.",
)  # fmt: skip
CAPTURED: Final = PrometheusMetric(
    "penstock_capture_calls", "counter", (*_VARIANT, _COMPONENT),
    "Calls that were sampled for data capture and are written, will be, or were dropped later.",
)  # fmt: skip
CAPTURE_DROPPED: Final = PrometheusMetric(
    "penstock_capture_dropped", "counter", (*_VARIANT, "reason", _COMPONENT),
    "Sampled calls of which no line was written, by reason: queue-full (limits.capture_bytes_max), "
    "not-written (every try to write their file has failed), answer-too-long, unreadable, "
    "stopping.",
)  # fmt: skip
CAPTURE_BYTES: Final = PrometheusMetric(
    "penstock_capture_written_bytes", "counter", (*_VARIANT, _COMPONENT),
    "Size of the captured calls that were written.",
)  # fmt: skip
CAPTURE_FAILURES: Final = PrometheusMetric(
    "penstock_capture_write_failures", "counter", (*_VARIANT, "code", _COMPONENT),
    "Tries to write a file of captured calls that failed, by error code.",
)  # fmt: skip
MIRRORED: Final = PrometheusMetric(
    "penstock_shadow_mirrored", "counter", (*_VARIANT, _COMPONENT),
    "Requests that were copied to the shadow variant, or to the component that is a shadow.",
)  # fmt: skip
MIRROR_DROPPED: Final = PrometheusMetric(
    "penstock_shadow_dropped", "counter", (*_VARIANT, "reason", _COMPONENT),
    "Sampled requests that were not copied to their shadow, by reason: in-session, "
    "too-many-in-flight, too-many-bytes, all-copies-full, no-copies, no-healthy-copy.",
)  # fmt: skip
COMPARED: Final = PrometheusMetric(
    "penstock_rollout_compared", "counter", (*_VARIANT, "outcome", _COMPONENT),
    "Requests that both generations of a rollout were asked, by what became of their two answers: "
    "agree, differ, new-failed, old-failed, both-failed, unpaired (one of them was not asked or "
    "did not answer, or the scorer had no room), unscored (the scorer failed); slower, and scored "
    "where a scorer said so, count beside the first two.",
)  # fmt: skip
COPIES: Final = PrometheusMetric(
    "penstock_copies", "gauge", (*_VARIANT, "state", _COMPONENT),
    "Copies of the variant's model by state.",
)  # fmt: skip
TIME_TO_READY: Final = PrometheusMetric(
    "penstock_time_to_ready_seconds", "gauge", (*_VARIANT, "component", "part"),
    "What the last copy took to become ready, by part: start, connect, fetch, load, warm_up, and "
    "waited for a turn or for room; and the forecast of the next one.",
)  # fmt: skip
INSTANCE_CPU: Final = PrometheusMetric(
    "penstock_instance_cpu_ratio", "gauge", (*_VARIANT, "instance"),
    "Share of the instance's cores in use, 0 to 1.",
)  # fmt: skip
INSTANCE_MEMORY: Final = PrometheusMetric(
    "penstock_instance_memory_ratio", "gauge", (*_VARIANT, "instance"),
    "Share of the instance's memory in use, 0 to 1.",
)  # fmt: skip
SEQUENCES: Final = PrometheusMetric(
    "penstock_sequences", "gauge", (*_VARIANT, "instance", "state"),
    "Answers that the instance's engines are making (running), and those that wait for a slot in "
    "one (waiting).",
)  # fmt: skip
STATEFUL: Final = PrometheusMetric(
    "penstock_stateful_sequences", "gauge", (*_VARIANT, "instance", "state"),
    "Sequences of a model with sequence_batching: with a slot (open), waiting for one (backlog); "
    "and since the instance started: ended, idle for too long, lost.",
)  # fmt: skip
KV_CACHE: Final = PrometheusMetric(
    "penstock_kv_cache_ratio", "gauge", (*_VARIANT, "instance"),
    "Share of the attention cache in use, of the instance's fullest engine, 0 to 1.",
)  # fmt: skip
ENERGY: Final = PrometheusMetric(
    "penstock_energy_joules", "counter", (*_VARIANT, "source"),
    "Energy of the variant's instances, idle ones included, by source: rapl (counters of the "
    "processors), nvml (counters of the boards), estimated (watts of the instance type), or two.",
)  # fmt: skip
COST: Final = PrometheusMetric(
    "penstock_cost_dollars", "counter", _VARIANT,
    "Price of the variant's instances for the time that they were held, idle or not.",
)  # fmt: skip
REQUEST_COST: Final = PrometheusMetric(
    "penstock_request_cost_dollars", "gauge", _VARIANT,
    "Cost of one answered request: the last hour's cost divided by its answers.",
)  # fmt: skip
REQUEST_ENERGY: Final = PrometheusMetric(
    "penstock_request_energy_joules", "gauge", _VARIANT,
    "Energy of one answered request: the last hour's energy divided by its answers.",
)  # fmt: skip
TOKENS_COST: Final = PrometheusMetric(
    "penstock_thousand_tokens_cost_dollars", "gauge", _VARIANT,
    "Cost of a thousand tokens, in and out: the last hour's cost divided by its tokens.",
)  # fmt: skip
TOKENS_ENERGY: Final = PrometheusMetric(
    "penstock_thousand_tokens_energy_joules", "gauge", _VARIANT,
    "Energy of a thousand tokens, in and out: the last hour's energy divided by its tokens.",
)  # fmt: skip
#: (metric, field of `variant_cost.PerUnit`)
PER_UNIT: Final = (
    (REQUEST_COST, "dollars_per_request"),
    (REQUEST_ENERGY, "joules_per_request"),
    (TOKENS_COST, "dollars_per_thousand_tokens"),
    (TOKENS_ENERGY, "joules_per_thousand_tokens"),
)
MODEL_REQUESTS: Final = PrometheusMetric(
    "penstock_target_model_requests", "counter", (*_MODEL, "outcome"),
    "Requests of a target model by outcome: ok, model-error, other-error (refused while it was not "
    "loaded, among others).",
)  # fmt: skip
MODEL_CALLS: Final = PrometheusMetric(
    "penstock_target_model_calls", "counter", (*_MODEL, "cache"),
    "Requests that came for a target model, by whether they found it loaded: hit, miss.",
)  # fmt: skip
MODEL_LOADS: Final = PrometheusMetric(
    "penstock_target_model_loads", "counter", (*_MODEL, "outcome"),
    "Loads of a target model by outcome: ok, failed (downloads included).",
)  # fmt: skip
MODEL_UNLOADS: Final = PrometheusMetric(
    "penstock_target_model_unloads", "counter", (*_MODEL, "reason"),
    "Unloads of a target model, by reason.",
)  # fmt: skip
MODEL_COMPUTE: Final = PrometheusMetric(
    "penstock_target_model_compute_seconds", "counter", _MODEL,
    "Time that the lanes of a target model were busy.",
)  # fmt: skip
MODEL_RESIDENT_TIME: Final = PrometheusMetric(
    "penstock_target_model_resident_seconds", "counter", (*_MODEL, "state"),
    "Time that a target model was loaded, by state: busy, idle.",
)  # fmt: skip
MODEL_BYTE_SECONDS: Final = PrometheusMetric(
    "penstock_target_model_byte_seconds", "counter", (*_MODEL, "memory"),
    "Memory of a target model over the time that it was loaded, by memory: host, accelerator.",
)  # fmt: skip
MODEL_RESIDENT: Final = PrometheusMetric(
    "penstock_target_model_resident_bytes", "gauge", (*_MODEL, "memory"),
    "What a target model takes now, on all instances that have loaded it, by memory: host, "
    "accelerator.",
)  # fmt: skip
MODEL_INSTANCES: Final = PrometheusMetric(
    "penstock_target_model_instances", "gauge", _MODEL, "Instances that have loaded a target model."
)
MODEL_WAIT: Final = PrometheusMetric(
    "penstock_model_loading_wait_seconds", "histogram", _VARIANT,
    "Waiting for a target model to be loaded, of requests that found it not loaded.",
    DURATION_EDGES_S,
)  # fmt: skip
MODEL_DOWNLOAD: Final = PrometheusMetric(
    "penstock_model_downloading_seconds", "histogram", _VARIANT,
    "Bringing a target model's artifact; milliseconds where the cache has it.", DURATION_EDGES_S,
)  # fmt: skip
MODEL_LOAD: Final = PrometheusMetric(
    "penstock_model_loading_seconds", "histogram", _VARIANT,
    "Loading a target model, its warm-up included.", DURATION_EDGES_S,
)  # fmt: skip
MODEL_UNLOAD: Final = PrometheusMetric(
    "penstock_model_unloading_seconds", "histogram", _VARIANT,
    "Unloading a target model.", DURATION_EDGES_S,
)  # fmt: skip
LOOP_LAG: Final = PrometheusMetric(
    "penstock_loop_lag_seconds", "histogram", ("process",),
    "How late a timer of ten a second was, by process: a gateway's name, or an instance's id. "
    "Whoever keeps the event loop keeps every request waiting.", EDGES_S,
)  # fmt: skip
LOOP_LAG_MAX: Final = PrometheusMetric(
    "penstock_loop_lag_max_seconds", "gauge", ("process",),
    "The longest such lag of the last minute.",
)  # fmt: skip
SERIES: Final = PrometheusMetric(
    "penstock_metric_series", "gauge", (), "Series held by the metric store."
)
SERIES_BYTES: Final = PrometheusMetric(
    "penstock_metric_store_bytes", "gauge", (), "Memory held by the metric store, estimated."
)
ITEM_FAILURES: Final = PrometheusMetric(
    "penstock_item_failures", "counter", ("loop",),
    "Single stored things (an alarm, a scalable target, a job, a row) that failed when their turn "
    "came; the others went on. The log names them.",
)  # fmt: skip
BUILD: Final = PrometheusMetric(
    "penstock_build", "info", ("version", "python"), "Versions of Penstock and Python."
)

PROMETHEUS: Final = (
    REQUESTS, REFUSED, EJECTED, IN_FLIGHT, DURATION, QUEUE, MODEL, BATCH_ROWS, FIRST_CHUNK,
    FIRST_TOKEN, OUTPUT_TOKEN, TOKENS, STREAMS_BROKEN, CAPTURED, CAPTURE_DROPPED, CAPTURE_BYTES,
    CAPTURE_FAILURES, MIRRORED, MIRROR_DROPPED, COMPARED, COPIES, TIME_TO_READY, INSTANCE_CPU,
    INSTANCE_MEMORY, SEQUENCES, STATEFUL, KV_CACHE, ENERGY, COST,
    *(metric for metric, _ in PER_UNIT),
    MODEL_REQUESTS, MODEL_CALLS, MODEL_LOADS, MODEL_UNLOADS, MODEL_COMPUTE, MODEL_RESIDENT_TIME,
    MODEL_BYTE_SECONDS, MODEL_RESIDENT, MODEL_INSTANCES, MODEL_WAIT, MODEL_DOWNLOAD, MODEL_LOAD,
    MODEL_UNLOAD, LOOP_LAG, LOOP_LAG_MAX, SERIES, SERIES_BYTES, ITEM_FAILURES, BUILD,
)  # fmt: skip

_SAGEMAKER: Final = "AWS/SageMaker"
_ENDPOINTS: Final = "/aws/sagemaker/Endpoints"
_COMPONENTS: Final = "/aws/sagemaker/InferenceComponents"
_JOBS: Final = "/aws/sagemaker/TransformJobs"
_HOST: Final = "Host (the job's name, a slash, the instance)"
_OWN: Final = "Penstock"
_V: Final = "EndpointName, VariantName"
_C: Final = "InferenceComponentName; the same with EndpointName and VariantName"
_V_INSTANCE: Final = f"{_V}, InstanceId"
_C_INSTANCE: Final = "InferenceComponentName, InstanceId"
_I: Final = f"{_V_INSTANCE}; {_C_INSTANCE}"
_V_G: Final = f"{_V}; the same with EndpointConfigName"
_V_C: Final = f"{_V_G}; {_C}"
_V_I: Final = "EndpointName, VariantName; the same with InstanceId"
_V_M: Final = "EndpointName, VariantName; the same with TargetModel"
_M: Final = "EndpointName, VariantName, TargetModel"
_K: Final = "EndpointName, VariantName, ContainerName"
_V_S: Final = "EndpointName, VariantName; the same with Source"
_RATE: Final = "Sum, Average"
_LATENCY: Final = "Average, Minimum, Maximum, Sum, SampleCount, percentiles"
_GAUGE: Final = "Average, Minimum, Maximum"

_E: Final = "EndpointName"

#: Metrics of endpoints with an AsyncInferenceConfig.
_ASYNCHRONOUS: Final = (
    (_SAGEMAKER, "ApproximateBacklogSize", _E, "Count", _GAUGE,
     "Asynchronous requests that have no outcome yet, those under way included; every ten"
     " seconds."),
    (_SAGEMAKER, "ApproximateBacklogSizePerInstance", _E, "Count", _GAUGE,
     "The same divided by the instances that are ready; not published while there is none."),
    (_SAGEMAKER, "HasBacklogWithoutCapacity", _E, "Count", _GAUGE,
     "1 while requests wait and no instance is ready, else 0."),
    (_SAGEMAKER, "ApproximateAgeOfOldestRequest", _E, "Seconds", _GAUGE,
     "Since the oldest request that has no outcome was accepted; 0 where there is none."),
    (_SAGEMAKER, "InvocationsProcessed", _E, "Count", "Sum",
     "Asynchronous requests that were answered."),
    (_SAGEMAKER, "InvocationFailures", _E, "Count", "Sum", "Asynchronous requests that failed."),
    (_SAGEMAKER, "ExpiredRequests", _E, "Count", "Sum",
     "Asynchronous requests that were not sent within their time to live."),
    (_SAGEMAKER, "OutcomesGivenUp", _E, "Count", "Sum",
     "Asynchronous requests whose outcome could not be written for a week after that."),
    (_SAGEMAKER, "TotalProcessingTime", _E, "Milliseconds", _LATENCY,
     "From a request's acceptance until its output is written."),
)  # fmt: skip

#: the fields of each `CloudWatchMetric`
_ROWS: Final = (
    *_ASYNCHRONOUS,
    (_SAGEMAKER, "ConcurrentRequestsPerModel", _V, "None", _GAUGE,
     "Requests in flight on an instance of the variant, those that wait or are queued included,"
     " until the last byte: sampled every second, published every ten. As many samples as"
     " instances, so that Average is one's and Sum of a second all of them."),
    (_SAGEMAKER, "ConcurrentRequestsPerCopy", _C, "None", _GAUGE,
     "The same on a copy of the component."),
    (_SAGEMAKER, "Invocations", _V_C, "None", "Sum", "Requests that ended or were refused."),
    (_SAGEMAKER, "InvocationsPerInstance", _V_G, "None", "Sum",
     "Invocations divided by the variant's instances."),
    (_SAGEMAKER, "InvocationsPerCopy", _C, "None", "Sum",
     "Invocations divided by the component's copies."),
    (_SAGEMAKER, "Invocation4XXErrors", _V_C, "None", _RATE,
     "1 for each request answered with a 4xx status by Penstock or the model, else 0."),
    (_SAGEMAKER, "Invocation5XXErrors", _V_C, "None", _RATE,
     "1 for each request answered with a 5xx status by Penstock or the model, else 0."),
    (_SAGEMAKER, "InvocationModelErrors", _V_C, "None", _RATE,
     "1 for each request on which the model failed, else 0."),
    (_SAGEMAKER, "NoCapacityInvocationFailures", _V_C, "None", _RATE,
     "1 for each request that met a variant without any copy, held or not, else 0."),
    (_SAGEMAKER, "ModelLatency", _V_C, "Microseconds", _LATENCY,
     "Queue of the copy and model together, of requests that reached the model."),
    (_SAGEMAKER, "OverheadLatency", _V_C, "Microseconds", _LATENCY,
     "Everything else between a request's first byte and its answer's last."),
    (_SAGEMAKER, "FirstChunkLatency", _V_C, "Microseconds", _LATENCY,
     "From a request's first byte to the first piece of its streamed answer."),
    (_SAGEMAKER, "MidStreamErrors", _V_C, "None", _RATE,
     "1 for each streamed answer that ended with an error after its first piece, else 0."),
    (_SAGEMAKER, "TimeToFirstToken", _V_C, "Microseconds", _LATENCY,
     "To the first token of a generated answer, streamed or not."),
    (_SAGEMAKER, "TimePerOutputToken", _V_C, "Microseconds", _LATENCY,
     "Mean time of each token behind the first; one sample per generated answer."),
    (_SAGEMAKER, "InputTokenCount", _V_C, "Count", _LATENCY,
     "Tokens of the prompt; one sample per generated answer."),
    (_SAGEMAKER, "OutputTokenCount", _V_C, "Count", _LATENCY,
     "Tokens of the answer; one sample per generated answer."),
    (_SAGEMAKER, "ModelCacheHit", _V_M, "None", _RATE,
     "1 for each request that found its target model loaded, 0 for each that had to wait."),
    (_SAGEMAKER, "ModelLoadingWaitTime", _V_M, "Microseconds", _LATENCY,
     "Waiting for a target model to be brought and loaded, of requests that had to wait."),
    (_SAGEMAKER, "ModelDownloadingTime", _V_M, "Microseconds", _LATENCY,
     "Bringing and unpacking a target model; milliseconds where the cache has it."),
    (_SAGEMAKER, "ModelLoadingTime", _V_M, "Microseconds", _LATENCY,
     "Loading a target model, its warm-up included."),
    (_SAGEMAKER, "ModelUnloadingTime", _V_M, "Microseconds", _LATENCY, "Unloading a target model."),
    (_SAGEMAKER, "Invocations", _M, "None", "Sum",
     "Requests that an instance answered for the target model, with an error or without."),
    (_SAGEMAKER, "InvocationModelErrors", _M, "None", _RATE,
     "1 for each of them on which the model failed, else 0."),
    (_SAGEMAKER, "ModelLatency", _M, "Microseconds", _LATENCY,
     "Queue and model together, the wait for a load included."),
    (_SAGEMAKER, "Invocations", _K, "None", "Sum",
     "Requests to a container of a model of several."),
    (_SAGEMAKER, "Invocation4XXErrors", _K, "None", _RATE,
     "1 for each of them that it answered with a 4xx status, else 0."),
    (_SAGEMAKER, "Invocation5XXErrors", _K, "None", _RATE,
     "1 for each of them that it answered with a 5xx status, or on which it failed, else 0."),
    (_SAGEMAKER, "ContainerLatency", _K, "Microseconds", _LATENCY,
     "From a request to the container until the end of its answer, its queue included."),
    (_SAGEMAKER, "Invocations", _I, "None", "Sum",
     "With EnableEnhancedMetrics: requests that the instance has answered."),
    (_SAGEMAKER, "ConcurrentRequestsPerModel", _V_INSTANCE, "None", _GAUGE,
     "With EnableEnhancedMetrics: requests on the instance, those in its queue included."),
    (_SAGEMAKER, "ConcurrentRequestsPerCopy", _C_INSTANCE, "None", _GAUGE,
     "With EnableEnhancedMetrics: the same on a copy of the component there."),
    (_COMPONENTS, "CPUUtilizationNormalized", _C, "Percent", _GAUGE,
     "Of the cores that are set aside for a copy; of copies with processes of their own."),
    (_COMPONENTS, "MemoryUtilizationNormalized", _C, "Percent", _GAUGE,
     "Of the memory that is set aside for a copy (MinMemoryRequiredInMb)."),
    (_JOBS, "CPUUtilization", _HOST, "Percent", _GAUGE, "0 to 100 times the cores."),
    (_JOBS, "MemoryUtilization", _HOST, "Percent", _GAUGE, "0 to 100."),
    (_ENDPOINTS, "CPUUtilization", _V_I, "Percent", _GAUGE, "0 to 100 times the cores."),
    (_ENDPOINTS, "CPUUtilizationNormalized", _V_I, "Percent", _GAUGE, "0 to 100."),
    (_ENDPOINTS, "MemoryUtilization", _V_I, "Percent", _GAUGE, "0 to 100."),
    (_ENDPOINTS, "DiskUtilization", _V_I, "Percent", _GAUGE, "0 to 100."),
    (_ENDPOINTS, "GPUUtilization", _V_I, "Percent", _GAUGE, "0 to 100 times the devices."),
    (_ENDPOINTS, "GPUUtilizationNormalized", _V_I, "Percent", _GAUGE, "0 to 100."),
    (_ENDPOINTS, "GPUMemoryUtilization", _V_I, "Percent", _GAUGE, "0 to 100 times the devices."),
    (_ENDPOINTS, "GPUMemoryUtilizationNormalized", _V_I, "Percent", _GAUGE, "0 to 100."),
    (_ENDPOINTS, "LoadedModelCount", _V_I, "None", _GAUGE,
     "Models loaded on the instance: its copies, of a multi-model endpoint its target models."),
    (_ENDPOINTS, "LoadedModelCount", _M, "None", _GAUGE,
     "Instances that have loaded the target model; of `(others)`, models loaded."),
    (_ENDPOINTS, "SequencesRunning", _V_I, "None", _GAUGE, "Answers that engines are making."),
    (_ENDPOINTS, "SequencesWaiting", _V_I, "None", _GAUGE,
     "Requests that wait for a slot in an engine."),
    (_ENDPOINTS, "KVCacheUtilization", _V_I, "Percent", _GAUGE,
     "Attention cache in use, of the instance's fullest engine, 0 to 100."),
    (_OWN, "Energy", _V_S, "None", "Sum",
     "Joules of the variant's instances, idle time included. Source: rapl, nvml, estimated "
     "(watts of the instance type), or two of them."),
    (_OWN, "Cost", _V, "None", "Sum", "US dollars of the variant's instances, idle time included."),
    (_OWN, "CostPerRequest", _V, "None", "Average",
     "US dollars of one answered request; what idle time cost is borne by the answers after it."),
    (_OWN, "EnergyPerRequest", _V, "None", "Average", "Joules of one answered request."),
    (_OWN, "CostPerThousandTokens", _V, "None", "Average",
     "US dollars of a thousand tokens, in and out."),
    (_OWN, "EnergyPerThousandTokens", _V, "None", "Average",
     "Joules of a thousand tokens, in and out."),
)  # fmt: skip
CLOUDWATCH: Final = tuple(CloudWatchMetric(*row) for row in _ROWS)
