"""Cases of a model's files: what loads, what is refused, what is completed."""

from __future__ import annotations

from bench.triton.cases import (
    BATCHED,
    DECOUPLED,
    EACH,
    HEAD,
    ONE,
    PLAIN,
    SAME,
    Ask,
    Case,
    http,
    infer,
    tensor,
    tensors,
)

CONFIG = http("configuration", "config", view="config")
METADATA = http("metadata", "", view="tensors")


def versioned(label: str, version: str, path: str = "infer") -> Ask:
    body = {"inputs": [tensor([1.0], [1])]} if path else None
    return http(label, f"versions/{version}/{path}".rstrip("/"), body, view="" if path else "code")


def _versions(policy: str) -> Case:
    label = policy.partition(" ")[0].strip("{") or "default"
    code = (
        "    def execute(self, requests):\n        return [answer(y=np.array([{}], np.float32))"
        " for each in requests]\n"
    )
    files = {
        f"{number}/model.py": HEAD + code.format(number) for number in (2, 3, 11)
    }  # fmt: skip
    return Case(
        f"versions-{label}", PLAIN + (f"version_policy {{ {policy} }}" if policy else ""),
        code.format(1),
        (http("of no version", "infer", {"inputs": [tensor([1.0], [1])]}),
         *[versioned(f"version {each}", each) for each in ("1", "2", "3", "11", "4", "x", "-1", "0",
                                                           "01")],
         *[versioned(f"about version {each}", each, "") for each in ("1", "11", "4")],
         http("versions", "", view="versions")),
        files,
    )  # fmt: skip


def _loads(name: str, config: str | None, code: str | None = SAME, **more: object) -> Case:
    """Only whether it loads, and one request if it does."""
    return Case(f"config-{name}", config, code, infer("one request", ONE)[:1], **more)  # type: ignore[arg-type]


WARMUP = """model_warmup [ { name: "w" batch_size: 1 count: 2
  inputs { key: "x" value { data_type: TYPE_FP32 dims: [1] %s } } } ]"""

CONFIGS = (
    *map(_versions, ("", "all { }", "latest { num_versions: 2 }", "specific { versions: [1, 3] }")),
    Case("versions-absent", PLAIN + "version_policy { specific { versions: [7] } }", SAME),
    Case("completed", None, """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        return config
""" + SAME, (*infer("no config.pbtxt", ONE), CONFIG, METADATA)),
    Case("completed-partly", "", """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [-1], "optional": True})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [-1]})
        return config
""" + SAME, (*infer("a config.pbtxt of the backend alone", tensor([1.0], [1])), METADATA)),
    Case("completed-decoupled", "", """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_model_transaction_policy(dict(decoupled=True))
        return config

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(answer(y=given(request)), flags=FINAL)
""", (http("streamed", "generate_stream", {"x": 1.0}), CONFIG)),
    Case("completed-against", PLAIN, """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_INT32", "dims": [-1]})
        return config
""" + SAME),
    Case("completed-raises", PLAIN, """
    @staticmethod
    def auto_complete_config(config):
        raise RuntimeError("no")
""" + SAME),
    Case("incomplete", "", SAME, infer("no tensors anywhere", tensor([1.0], [1]))),
    Case("described", BATCHED + 'dynamic_batching { preferred_batch_size: [2, 4] '
         'max_queue_delay_microseconds: 100 } instance_group { count: 2 kind: KIND_CPU } '
         'parameters { key: "k" value { string_value: "v" } } ', SAME,
         (*infer("one row", ONE), CONFIG, METADATA)),
    Case("warm", BATCHED + WARMUP % "zero_data: true", """
    def initialize(self, args):
        self.runs = 0

    def execute(self, requests):
        self.runs += 1
        return [answer(y=np.full((1, 1), self.runs, np.float32)) for each in requests]
""", infer("after two runs", ONE)),
    Case("warm-fails", BATCHED + WARMUP % "zero_data: true",
         EACH + '        raise ValueError("no")\n'),
    Case("warm-file", BATCHED + WARMUP % 'input_data_file: "first"', """
    def initialize(self, args):
        self.seen = 0.0

    def execute(self, requests):
        made = [answer(y=np.full((1, 1), self.seen, np.float32)) for each in requests]
        self.seen = given(requests[-1]).item()
        return made
""", infer("what the file held", ONE), {"warmup/first": b"\x00\x00\x20\x41"}),
    Case("warm-file-missing", BATCHED + WARMUP % 'input_data_file: "first"', SAME),
    Case("finalizes", PLAIN, SAME + '\n    def finalize(self):\n        raise RuntimeError("no")\n',
         infer("one", tensor([1.0], [1]))),
    Case("beside", PLAIN.replace("FP32", "STRING"), """
    def execute(self, requests):
        import pathlib, beside
        own = pathlib.Path(__file__).parent.name
        told = [beside.WORD, own, pathlib.Path(pb_utils.get_model_dir()).name]
        return [answer(y=np.array([json.dumps(told)], object)) for each in requests]
""", infer("a module beside it", tensor(["a"], [1], "BYTES")), {"1/beside.py": 'WORD = "here"\n'}),
    Case("other-file", PLAIN + 'default_model_filename: "other.py"', None,
         infer("a file of another name", tensor([1.0], [1])), {"1/other.py": HEAD + SAME}),
    Case("rate-limited", BATCHED + 'instance_group { count: 1 rate_limiter { resources { name: "R" '
         "count: 4 } priority: 2 } }", SAME, infer("limits that are off", ONE)),
    Case("ragged", 'max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: [-1] '
         'allow_ragged_batch: true } output { name: "y" data_type: TYPE_FP32 dims: [-1] }', SAME,
         infer("one request", ONE)),
    # What does not load, or may not.
    _loads("no-model", BATCHED, None),
    _loads("empty-version", BATCHED, None, files={"1/readme": ""}),
    _loads("syntax", BATCHED, "    def execute(:\n"),
    _loads("no-execute", BATCHED, "    def other(self):\n        pass\n"),
    _loads("no-class", BATCHED, "    pass\n\ndel TritonPythonModel\n"),
    _loads("initialize-raises", BATCHED,
           '    def initialize(self, args):\n        raise ValueError("no")\n' + SAME),
    _loads("import-missing", BATCHED, "    import not_there\n" + SAME),
    _loads("other-name", BATCHED + 'name: "another"'),
    _loads("own-name", BATCHED + 'name: "config-own-name"'),
    _loads("unknown-field", BATCHED + "max_batch_sice: 4"),
    _loads("broken-text", BATCHED + "input {"),
    _loads("rows-below-zero", "max_batch_size: -1 " + PLAIN),
    _loads("dim-zero", "max_batch_size: 4 " + tensors(dims="0")),
    _loads("dim-below", "max_batch_size: 4 " + tensors(dims="-2")),
    _loads("no-dims", "max_batch_size: 4 " + tensors(dims="")),
    _loads("no-type", 'max_batch_size: 4 input { name: "x" dims: [1] } ' + tensors()),
    _loads("unknown-type", "max_batch_size: 4 " + tensors("FP31")),
    _loads("input-twice", BATCHED + 'input { name: "x" data_type: TYPE_FP32 dims: [1] }'),
    _loads("output-twice", BATCHED + 'output { name: "y" data_type: TYPE_FP32 dims: [1] }'),
    _loads("input-no-name", BATCHED + "input { data_type: TYPE_FP32 dims: [1] }"),
    _loads("reshape-wrong", 'max_batch_size: 4 output { name: "y" data_type: TYPE_FP32 dims: [1] } '
           'input { name: "x" data_type: TYPE_FP32 dims: [4] reshape { shape: [3] } }'),
    _loads("backend-unknown", BATCHED, backend="nothing-like-it"),
    _loads("preferred-too-large", BATCHED + "dynamic_batching { preferred_batch_size: [8] }"),
    _loads("preferred-zero", BATCHED + "dynamic_batching { preferred_batch_size: [0] }"),
    _loads("dynamic-unbatched", "max_batch_size: 0 " + tensors(dims="-1, -1")
           + "dynamic_batching { }"),
    _loads("default-level-beyond", BATCHED
           + "dynamic_batching { priority_levels: 2 default_priority_level: 3 }"),
    _loads("levels-without-default", BATCHED + "dynamic_batching { priority_levels: 2 }"),
    _loads("policy-of-no-level", BATCHED + "dynamic_batching { priority_levels: 2 "
           "default_priority_level: 1 priority_queue_policy { key: 5 value { "
           "max_queue_size: 1 } } }"),
    _loads("ordering-and-levels", BATCHED + "dynamic_batching { preserve_ordering: true "
           "priority_levels: 2 default_priority_level: 1 }"),
    _loads("instances-zero", BATCHED + "instance_group { count: 0 }"),
    _loads("instances-below", BATCHED + "instance_group { count: -1 }"),
    _loads("instances-gpu", BATCHED + "instance_group { kind: KIND_GPU }"),
    _loads("instances-passive", BATCHED + "instance_group { passive: true }"),
    _loads("two-batchers", BATCHED + "dynamic_batching { } sequence_batching { }"),
    _loads("cached-decoupled", BATCHED + DECOUPLED + "response_cache { enable: true }"),
    _loads("cached-sequences", BATCHED + "sequence_batching { } response_cache { enable: true }"),
    _loads("no-label-file", 'max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: [1] } '
           'output { name: "y" data_type: TYPE_FP32 dims: [1] label_filename: "gone.txt" }'),
    _loads("environment-missing", BATCHED + 'parameters { key: "EXECUTION_ENV_PATH" value { '
           'string_value: "$$TRITON_MODEL_DIRECTORY/gone.tar.gz" } }'),
    _loads("environment-elsewhere", BATCHED + 'parameters { key: "EXECUTION_ENV_PATH" value { '
           'string_value: "/nowhere/gone.tar.gz" } }'),
    _loads("agents", BATCHED + 'model_repository_agents { agents { name: "checksum" } }'),
    _loads("optimization", BATCHED + "optimization { priority: PRIORITY_MAX }"),
    _loads("control-twice", "max_batch_size: 2 " + tensors() + """
      sequence_batching { control_input [
      { name: "A" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } },
      { name: "B" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } } ] }"""),
    _loads("policy-empty", BATCHED + "version_policy { specific { } }"),
    _loads("repeated-parameter", BATCHED + 'parameters { key: "k" value { string_value: "1" } } '
           'parameters { key: "k" value { string_value: "2" } }'),
    _loads("scalar-twice", BATCHED + "max_batch_size: 8"),
    _loads("json-like", '{ max_batch_size: 4, input: [ { name: "x", data_type: TYPE_FP32, '
           "dims: [-1] } ] }"),
)  # fmt: skip
