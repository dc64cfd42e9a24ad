"""Cases of what a Python model does, and of what requests say to it."""

from __future__ import annotations

from bench.triton.cases import (
    BATCHED,
    EACH,
    ONE,
    PLAIN,
    SAME,
    TOLD,
    Case,
    client,
    everywhere,
    generate,
    http,
    infer,
    seen,
    tensor,
    tensors,
)

OTHER_OUTPUT = 'output { name: "z" data_type: TYPE_FP32 dims: [1] }'

MODELS = (
    Case("twice", BATCHED, EACH + "        return answer(y=given(request) * 2)\n", (
        *everywhere("one row", ONE), *infer("two rows, an id", tensor([1.0, 2.0], [2, 1]), id="i7"),
        *infer("no rows", tensor([], [0, 1])), *infer("too many rows", tensor([1.0] * 5, [5, 1])),
        *infer("another type", tensor([1], [1, 1], "INT32")), *infer("no inputs"),
        *infer("an unknown input", tensor([1.0], [1, 1], name="z")),
        *infer("one input twice", ONE, ONE),
        *infer("an input too many", ONE, tensor([1.0], [1, 1], name="z")),
        *infer("its output", ONE, outputs=[{"name": "y"}]),
        *infer("its output twice", ONE, outputs=[{"name": "y"}, {"name": "y"}]),
        *infer("an unknown output", ONE, outputs=[{"name": "z"}]),
        *infer("too few values", tensor([1.0], [1, 2])),
        *infer("too many values", tensor([1.0, 2.0, 3.0], [1, 2])),
        *infer("a negative shape", tensor([1.0], [-1, 1])),
        *infer("no shape", tensor([1.0], [])), *infer("no dim of rows", tensor([1.0], [1])),
        *infer("an unknown type", tensor([1.0], [1, 1], "FP31")),
        *generate("values", {"x": [1.0, 2.0]}), *generate("nothing", {}),
        *generate("one value", {"x": 3.0, "id": "g"}), *generate("a text", {"x": "three"}),
        *generate("an unknown key", {"x": 3.0, "temperature": 0.5}),
        *generate("nested", {"x": [[1.0], [2.0]]}),
        http("generated from NaN", "generate", raw="eyJ4IjogTmFOfQ=="),
    )),
    Case("parameters", TOLD, seen("json.loads(request.parameters())"), (
        *everywhere("none", ONE),
        *[each for name, value in {
            "a text": "b", "a number": 3, "a fraction": 1.5, "a flag": True, "no text": "",
            "a large number": 2**40, "below zero": -1,
        }.items() for each in infer(name, ONE, parameters={"a": value})],
        *[http(name, "infer", {"inputs": [ONE], "parameters": {"a": value}}) for name, value in {
            "a list": [1], "an object": {}, "null": None, "beyond 64 bits": 2**64,
        }.items()],
        *infer("a reserved name", ONE, parameters={"triton_x": 1}),
        *infer("a priority as text", ONE, parameters={"priority": "high"}),
        *infer("a fraction of a timeout", ONE, parameters={"timeout": 1.5}),
        *infer("a number as sequence_start", ONE, parameters={"sequence_start": 1}),
        *infer("a fraction as sequence_id", ONE, parameters={"sequence_id": 1.5}),
        http("a number as binary_data_output", "infer",
             {"inputs": [ONE], "parameters": {"binary_data_output": 1}}),
        *client("given by the client", ONE, options={"parameters": {"k": "v", "n": 2}}),
        *generate("beside the input", {"x": 1.0, "k": "v", "parameters": {"n": 2}}),
    )),
    Case("identity", TOLD, seen(
        "[request.request_id(), request.correlation_id(), request.flags(), "
        "request.timeout(), sorted(request.requested_output_names())]"
    ), (
        *infer("none", ONE), *infer("a text as id", ONE, id="abc"),
        http("a number as id", "infer", {"inputs": [ONE], "id": 7}),
        *infer("a sequence", ONE, parameters={"sequence_id": 9, "sequence_start": True}),
        *infer("a named sequence", ONE, parameters={"sequence_id": "nine", "sequence_end": True}),
        *infer("a timeout", ONE, parameters={"timeout": 250}),
        *infer("a timeout below zero", ONE, parameters={"timeout": -1}),
        *client("by the client", ONE, options={
            "request_id": "r", "sequence_id": 3, "sequence_start": True, "sequence_end": True,
            "timeout": 9}),
    )),
    Case("errors", BATCHED, EACH + """
        code = int(given(request).reshape(-1)[0])
        codes = [pb_utils.TritonError.UNKNOWN, pb_utils.TritonError.INTERNAL,
                 pb_utils.TritonError.NOT_FOUND, pb_utils.TritonError.INVALID_ARG,
                 pb_utils.TritonError.UNAVAILABLE, pb_utils.TritonError.UNSUPPORTED,
                 pb_utils.TritonError.ALREADY_EXISTS, pb_utils.TritonError.CANCELLED]
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("no", codes[code]))
""", tuple(
        each for at, name in enumerate((
            "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED",
            "ALREADY_EXISTS", "CANCELLED"))
        for each in everywhere(name, tensor([float(at)], [1, 1]))
    )),
    Case("uncoded", BATCHED, EACH
         + '        return pb_utils.InferenceResponse(error=pb_utils.TritonError("no"))\n',
         infer("an error without a code", ONE)),
    Case("raises", BATCHED, EACH + '        raise RuntimeError("spilled")\n',
         infer("execute raises", ONE)),
    Case("model-exception", BATCHED, EACH
         + '        raise pb_utils.TritonModelException("spilled")\n',
         infer("execute raises the module's own", ONE)),
    Case("too-few", BATCHED, "    def execute(self, requests):\n        return []\n",
         infer("fewer responses than requests", ONE)),
    Case("nothing", BATCHED,
         "    def execute(self, requests):\n        return [None for each in requests]\n",
         infer("None for a response", ONE)),
    Case("no-list", BATCHED, "    def execute(self, requests):\n        return 3\n",
         infer("no list of responses", ONE)),
    Case("dies", BATCHED, EACH + "        import os\n        os._exit(3)\n",
         infer("the process ends", ONE)),
    Case("fewer", BATCHED + OTHER_OUTPUT, SAME, (
        *infer("an output is missing", ONE), *infer("the one there", ONE, outputs=[{"name": "y"}]),
        *infer("the missing one", ONE, outputs=[{"name": "z"}]))),
    Case("more", BATCHED, EACH + "        return answer(y=given(request), z=given(request))\n", (
        *infer("an output too many", ONE), *infer("asked for", ONE, outputs=[{"name": "z"}]))),
    Case("no-outputs", BATCHED, EACH + "        return answer()\n", infer("no outputs", ONE)),
    Case("other-type", BATCHED, EACH + "        return answer(y=given(request).astype(np.int32))\n",
         infer("another type than configured", ONE)),
    Case("other-rows", BATCHED, EACH + "        return answer(y=np.ones((3, 2), np.float32))\n",
         infer("more rows than asked", ONE)),
    Case("other-dims", "max_batch_size: 4 " + tensors(dims="2"),
         EACH + "        return answer(y=np.ones((1, 5), np.float32))\n",
         (*infer("other dims than configured", tensor([1.0, 2.0], [1, 2])),
          *infer("other dims in the request", tensor([1.0], [1, 1])),
          *infer("more dims in the request", tensor([1.0, 2.0], [1, 2, 1])))),
    Case("unbatched", tensors(dims="1") , EACH + "        return answer(y=given(request) + 1)\n",
         (*infer("as configured", tensor([1.0], [1])), *infer("a dim too many", ONE),
          *generate("a number", {"x": 4}))),
    Case("scalar", 'input { name: "x" data_type: TYPE_FP32 dims: [1] reshape { shape: [] } } '
         'output { name: "y" data_type: TYPE_INT64 dims: [1] reshape { shape: [] } } '
         "max_batch_size: 4",
         EACH + "        return answer(y=np.array([given(request).ndim], np.int64))\n",
         (*everywhere("to no dims", ONE), *infer("two rows", tensor([1.0, 2.0], [2, 1])))),
    Case("reshape", 'input { name: "x" data_type: TYPE_FP32 dims: [4] reshape { shape: [2, 2] } } '
         'output { name: "y" data_type: TYPE_FP32 dims: [4] reshape { shape: [2, 2] } } '
         "max_batch_size: 2",
         EACH + "        assert given(request).shape[1:] == (2, 2)\n"
                "        return answer(y=given(request))\n",
         (*everywhere("four to two by two", tensor([1.0, 2.0, 3.0, 4.0], [1, 4])),
          *infer("in the model's own shape", tensor([1.0, 2.0, 3.0, 4.0], [1, 2, 2])))),
    Case("optional", TOLD + 'input { name: "k" data_type: TYPE_INT32 dims: [1] optional: true }',
         seen("[each.name() for each in request.inputs()] + "
              "[pb_utils.get_input_tensor_by_name(request, 'k') is None]"),
         (*everywhere("left out", ONE), *infer("given", ONE, tensor([3], [1, 1], "INT32", "k")),
          *infer("without the one that is not", tensor([3], [1, 1], "INT32", "k")),
          *infer("other rows", ONE, tensor([3, 4], [2, 1], "INT32", "k")))),
    Case("labels", "max_batch_size: 4 " + tensors(dims="3").replace(
            'name: "y"', 'name: "y" label_filename: "labels.txt"'), SAME, (
        *client("the best", tensor([0.1, 0.7, 0.2], [1, 3]),
                outputs=[{"name": "y", "class_count": 1}]),
        *client("the two best", tensor([0.1, 0.7, 0.2], [1, 3]),
                outputs=[{"name": "y", "class_count": 2}]),
        *client("more than there are", tensor([0.1, 0.7, 0.2, 3.0, 2.0, 1.0], [2, 3]),
                outputs=[{"name": "y", "class_count": 9}]),
        *infer("in JSON", tensor([0.1, 0.7, 0.2], [1, 3]),
               outputs=[{"name": "y", "parameters": {"classification": 2}}]),
        *infer("of none", tensor([0.1, 0.7, 0.2], [1, 3]),
               outputs=[{"name": "y", "parameters": {"classification": 0}}]),
        *infer("equals", tensor([0.5, 0.5, 0.5], [1, 3]),
               outputs=[{"name": "y", "parameters": {"classification": 2}}]),
    ), {"labels.txt": "cat\ndog\n"}),
    Case("priorities", TOLD + "dynamic_batching { priority_levels: 3 default_priority_level: 2 }",
         seen("'answered'"),
         [each for level in (0, 1, 3, 4, 99, -1)
          for each in infer(f"priority {level}", ONE, parameters={"priority": level})]),
    Case("response-parameters", BATCHED, EACH + """
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("y", given(request))],
            parameters={"text": "t", "number": 7, "flag": True})
""", (*everywhere("three kinds", ONE), *generate("generated", {"x": 1.0}))),
    Case("response-parameters-bad", BATCHED, EACH + """
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("y", given(request))], parameters={"list": [1]})
""", infer("a list", ONE)),
    Case("output-names", TOLD + OTHER_OUTPUT, seen("sorted(request.requested_output_names())"), (
        *infer("all", ONE), *infer("one", ONE, outputs=[{"name": "y"}]))),
    Case("helpers", "max_batch_size: 0 " + tensors(out="STRING"), EACH + """
        told = [
            str(pb_utils.triton_string_to_numpy("TYPE_INT8")), FINAL,
            pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
            str(pb_utils.triton_to_numpy_type(11)),
            pb_utils.numpy_to_triton_type(np.float32), pb_utils.numpy_to_triton_type(np.object_),
            pb_utils.serialize_byte_tensor(np.array([b"ab", "c"], object)).hex(),
            [each.decode() for each in pb_utils.deserialize_bytes_tensor(b"\\2\\0\\0\\0ab")],
            sorted(type(each).__name__ for each in request.inputs()), request.inputs()[0].shape(),
            request.inputs()[0].is_cpu(), request.is_cancelled(),
            sorted(each for each in dir(pb_utils.TritonError) if each.isupper())]
        return answer(y=np.array([json.dumps(told)], object))
""", infer("of the module", tensor([1.0], [1]))),
    Case("arguments", PLAIN.replace("FP32", "STRING") + 'parameters { key: "k" value { '
         'string_value: "v" } } parameters { key: "n" value { string_value: "1" } }', """
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.told = [sorted(args), args["model_name"], args["model_version"],
                     args["model_instance_kind"], config["parameters"], config["max_batch_size"],
                     config["input"], sorted(config)]

    def execute(self, requests):
        told = json.dumps(self.told, sort_keys=True)
        return [answer(y=np.array([told], object)) for each in requests]
""", infer("what initialize is given", tensor(["a"], [1], "BYTES"))),
)  # fmt: skip
