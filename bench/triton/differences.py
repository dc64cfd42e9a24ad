"""How answers differ from Triton's, and why: the rows of docs/reference/triton-differences.md."""

from __future__ import annotations

from bench.triton.rows import Difference

_CALLER = "the request is at fault, and a client that repeats what got 500 would repeat it for ever"
_SUPERSET = "nothing is lost by it"
_OLD = "the server in nvidia-pytriton is of an older release"

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "a body or a value that is wrong, over HTTP",
        "400", "500 where its JSON parser finds the fault, and 400 elsewhere", _CALLER,
        ("*(http)",), (500, 400),
    ),
    Difference(
        "more rows than `max_batch_size`",
        "computed in several runs", "400", "clients need not know the limit of a batch",
        ("*: too many rows (*)",),
    ),
    Difference(
        "a number beyond the type of its tensor",
        "400, by the input's name", "wraps around, and 1e39 as FP32 is infinity",
        "another number is computed than was sent",
        ("whole-*: beyond the largest (http)", "whole-*: below the least (http)",
         "floats: a number beyond FP32 (http)"),
    ),
    Difference(
        "`2.0` or `1e2` for an integer", "the integer, below 2**53", "500",
        "JavaScript and others write whole numbers so",
        ("whole-*: a whole fraction (http)", "whole-*: with an exponent (http)"),
    ),
    Difference(
        "`true` for a number, 1 or 0 for BOOL", "1; true or false", "500", _SUPERSET,
        ("*: a flag (http)", "flags: numbers (http)"),
    ),
    Difference(
        "FP16 and BF16 in JSON, and in `generate`", "read and written", "400: binary data only",
        _SUPERSET, ("halves: *", "brain-floats: in JSON (http)"),
    ),
    Difference(
        "`Inf` for `Infinity` in JSON", "400", "read", "no other parser writes it",
        ("floats: Inf (http)",),
    ),
    Difference(
        "data that is nested unevenly", "400", "flattened",
        "which element is meant is a guess", ("floats: nested unevenly (http)",),
    ),
    Difference(
        "bytes that are no UTF-8, in a JSON answer",
        "406, which asks for binary data", "JSON that is none", "no client can read it",
        ("bytes-out: no UTF-8 as JSON (http)",),
    ),
    Difference(
        "outputs of another type than the configuration says",
        "converted, where no value is lost", "as they are",
        "metadata is a promise to the caller", ("other-type: *",),
    ),
    Difference(
        "arrays in the other order of bytes, numpy's own strings",
        "taken", "500", _SUPERSET, ("big-endian: *", "fixed-strings: *"),
    ),
    Difference(
        "None in the place of a response", "500", "the client waits for ever",
        "a request ends with an answer", ("nothing: *",),
    ),
    Difference(
        "an input that is not optional is left out, and an optional one is given",
        "400, by the input's name", "computed: only their number is checked",
        "the model would read None", ("optional: without the one that is not (*)",),
    ),
    Difference(
        "`timeout` and `priority` below 0 over gRPC", "INVALID_ARGUMENT",
        "a very large number: the bits are read without a sign", "nobody means that",
        ("identity: a timeout below zero (grpc)",),
    ),
    Difference(
        "`parameters` of an `InferenceResponse`", "answered",
        "TypeError in release 24.10; newer ones answer them", _OLD, ("response-parameters: *",),
    ),
    Difference(
        "`optimization` in the configuration that a Python model gets",
        "left out", "filled in", "it tunes Triton itself", ("arguments: *",),
    ),
    Difference(
        "the code of a model's error in `generate` and `generate_stream`",
        "as in `infer`: 404, 503, 500 and so on", "400, whatever it was",
        "a client must know whether to try again",
        ("decoupled-*error: *alone*(http)", "decoupled-raises: *(http)",
         "decoupled-list: *(http)"),
    ),
    Difference(
        "`generate` of a model that gives no response, or several",
        "500, or the code of the error among them", "200 with `error` in the body",
        "a client that looks at the code must not take it for an answer",
        ("decoupled: ? responses (http)", "decoupled-error: an error after a response (http)"),
    ),
    Difference(
        "`model_version` in a message of a stream that only ends it", "there", "empty",
        _SUPERSET, ("decoupled: a stream, *the end wanted (grpc)",),
    ),
    Difference(
        "a correlation id that is a string, and a control tensor that is a number",
        "refused by name", "the tensor has the string's first bytes, or none",
        "two sequences would look like one", ("sequence*: a name (*)",),
    ),
    Difference(
        "a correlation id as a tensor of TYPE_STRING, with `max_batch_size`",
        "given to the model", "refused: the server miscounts its elements in release 24.10", _OLD,
        ("sequence-names: *",),
    ),
    Difference(
        "`state` of a Python model", "refused when it loads",
        "the model loads, and its state never moves on",
        "the model has memory of its own", ("sequence-state: *",),
    ),
    Difference(
        "version `01` in a path", "404", "version 1", "a folder's name is the version",
        ("versions-*: version 01 (http)",),
    ),
    Difference(
        "`preferred_batch_size` in the configuration of a model that has none",
        "empty", "`max_batch_size`", "the batcher does not need it",
        ("completed*: configuration (http)",),
    ),
    Difference(
        "a Python model without any tensor in its configuration",
        "refused when it loads", "it loads, and no request is ever right",
        "the fault is told to who deploys", ("incomplete: *",),
    ),
    Difference(
        "a version's folder without model.py", "refused when it loads", "the load never ends",
        "the fault is told to who deploys", ("config-empty-version: load",),
    ),
    Difference(
        "`name` in config.pbtxt that is not the folder's",
        "the name in config.pbtxt, or the endpoint's, is served", "refused",
        "folders are renamed when they are packed", ("config-other-name: *",),
    ),
    Difference(
        "fewest digits of FP32 in JSON", "0.1", "0.10000000149011612",
        "both are the same FP32; one is shorter", ("numbers-out: generated*",),
    ),
    Difference(
        "BF16 as a numpy array of a Python model", "an array of FP32, which BF16 is cut from again",
        "as_numpy() raises", _SUPERSET, ("brain-floats-numpy: *",),
    ),
    Difference(
        "the sequence in the answer of an ensemble", "not repeated",
        "`sequence_id`, `sequence_start` and `sequence_end` are among the parameters, 0 and false",
        "the caller sent none",
        ("ensemble: two steps (*)", "ensemble: an output (*)", "ensemble: generated*",
         "ensemble: an id and a parameter (*)"),
    ),
    Difference(
        "the code of a call of another model that can't be made", "NOT_FOUND, INVALID_ARG",
        "INTERNAL in release 24.10", "the calling code can tell what went wrong",
        ("bls-errors: *",),
    ),
    Difference(
        "headers as parameters of `generate`", "as of `infer`", "none in release 24.10",
        "one setting, one meaning", ("headers: generated (http)",),
    ),
    Difference(
        "a parameter as `uint64_param`", "taken", "refused in release 24.10", _OLD,
        ("parameter-kinds: as uint64_param (grpc)", "messages: a parameter as uint64_param (grpc)"),
    ),
    Difference(
        "a message of a stream without any request", "INVALID_ARGUMENT", "OK, without an answer",
        "the call names no model", ("streams: of no requests (grpc)",),
    ),
    Difference(
        "`max_queue_size` below `max_batch_size`", "as many rows as a batch has may wait",
        "so many requests may wait", "a request of a whole batch has to fit",
        ("queue-size: *",),
    ),
    Difference(
        "the key of the response cache", "model, version, inputs, parameters and requested outputs",
        "the inputs", "a model sees the parameters",
        ("cached: the first with a parameter (http)", "cached: counts (http)"),
    ),
    Difference(
        "a tensor of config.pbtxt given twice", "refused when it loads",
        "it loads, and requests are refused", "which one is meant is a guess",
        ("config-input-twice: *", "config-output-twice: *"),
    ),
    Difference(
        "`priority_levels` without `default_priority_level`", "the first level", "refused",
        _SUPERSET, ("config-levels-without-default: *",),
    ),
    Difference(
        "`count: -1` of an instance group", "refused when it loads", "one instance",
        "a misspelt number is told", ("config-instances-below: *",),
    ),
    Difference(
        "instance groups that are all passive", "refused when it loads",
        "it loads, and the first request ends the server", "no request could be answered",
        ("config-instances-passive: *",),
    ),
    Difference(
        "a parameter of config.pbtxt given twice", "refused when it loads", "the last one counts",
        "which one is meant is a guess", ("config-repeated-parameter: *",),
    ),
    Difference(
        "an `Inference-Header-Content-Length` that is no number", "400",
        "as 0: the whole body is the one tensor's bytes", "the header would be taken for numbers",
        ("bytes: no number as length (http)",),
    ),
    Difference(
        "an empty body without that header", "400", "a tensor without elements",
        "a body that was lost must not be answered", ("bodies: empty (http)",),
    ),
    Difference(
        "an unknown `Content-Encoding`", "415", "501", "the request is at fault",
        ("bytes: an unknown encoding (http)",),
    ),
    Difference(
        "a key of a JSON object that stands there twice", "the last one counts",
        "the first one counts", "as in Python's and JavaScript's parsers",
        ("bodies: a key twice (http)",),
    ),
    Difference(
        "a version that is no number, over gRPC", "NOT_FOUND", "INVALID_ARGUMENT",
        "there is no such version, as over HTTP", ("messages: no number as version (grpc)",),
    ),
    Difference(
        "an unknown model or version, in readiness, statistics and trace settings",
        "404, NOT_FOUND", "400, INVALID_ARGUMENT", "as everywhere else",
        ("server: *unknown model*", "server: version 2 ready (http)",
         "server: of another version (http)", "settings: *unknown model*"),
    ),
    Difference(
        "loading and unloading through the repository",
        "of target models and of no others; 404 for an unknown one",
        "of every model; unloading an unknown one succeeds, loading it is 500",
        "models are deployed as endpoints",
        ("server: load an unknown model (http)", "server: unload an unknown model (http)",
         "server: RepositoryModel*"),
    ),
    Difference(
        "statistics", "requests that were refused are failures; runs that failed are no executions",
        "requests that were refused are not counted; runs that failed are executions",
        "a caller sees both as failures", ("counted: *",),
    ),
    Difference(
        "the log's switches", "one level; what can't be set so is refused by name",
        "each for itself; unknown settings are dropped", "what is dropped is never noticed",
        ("settings: warnings off alone (http)", "settings: an unknown log setting (http)",
         "settings: a format (http)", "settings: an unknown format (http)",
         "settings: a file (http)"),
    ),
    Difference(
        "trace settings", "told, and refused where another is asked for (501)",
        "set by requests; unknown ones are dropped", "the operator decides what is traced",
        ("settings: trace level (http)", "settings: an unknown trace setting (http)",
         "settings: a trace rate as text (http)"),
    ),
    Difference(
        "a region of shared memory that can't be registered, or is known",
        "400, INVALID_ARGUMENT", "500, INTERNAL; 400, ALREADY_EXISTS", _CALLER,
        ("shared-memory: a region's life *",),
    ),
    Difference(
        "headers as parameters", "of the names that are given, or of beginnings with `*`",
        "of names in which an expression matches anywhere",
        "an expression may cost any time with a stranger's names",
        ("headers: a longer name (http)", "headers: metadata of a longer name (grpc)"),
    ),
)  # fmt: skip
