"""Cases of models that call each other, have state, wait in queues, or answer more than once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.triton.cases import (
    BATCHED,
    DECOUPLED,
    EACH,
    ONE,
    PLAIN,
    TOLD,
    Ask,
    Case,
    everywhere,
    generate,
    grpc,
    http,
    infer,
    message,
    seen,
    stream,
    tensor,
    tensors,
)

SENDS = """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
"""
TWICE = EACH + "        return answer(y=given(request) * 2)\n"
PLUS = EACH + "        return answer(y=given(request) + 1)\n"


def step(model: str, given: str, made: str) -> str:
    return (
        f'step {{ model_name: "{model}" model_version: -1 input_map {{ key: "x" value: "{given}" }}'
        f' output_map {{ key: "y" value: "{made}" }} }} '
    )


def ensemble(*steps: str) -> str:
    return f'platform: "ensemble" {BATCHED}ensemble_scheduling {{ {" ".join(steps)} }}'


def sequence(label: str, value: int, number: Any, **flags: bool) -> list[Ask]:
    given = {"sequence_id": number, **flags}
    return infer(label, tensor([value], [1, 1], "INT32"), parameters=given)


def _alone(asks: list[Ask]) -> list[Ask]:
    return asks[:1]


def life(kind: int) -> tuple[Ask, ...]:
    """A sequence over one door: 0 HTTP, 1 gRPC."""
    return tuple(each[kind] for each in (
        sequence("the start", 1, 7 + kind, sequence_start=True),
        sequence("another's start", 10, 17 + kind, sequence_start=True),
        sequence("goes on", 2, 7 + kind), sequence("the other goes on", 20, 17 + kind),
        sequence("its end", 3, 7 + kind, sequence_end=True), sequence("after the end", 4, 7 + kind),
        sequence("starts again while it goes on", 5, 17 + kind, sequence_start=True),
        sequence("start and end", 6, 27 + kind, sequence_start=True, sequence_end=True),
        sequence("the other ends", 5, 17 + kind, sequence_end=True),
        sequence("never started", 7, 37 + kind), infer("no sequence", tensor([1], [1, 1], "INT32")),
        sequence("the number 0", 1, 0, sequence_start=True, sequence_end=True),
        sequence("a name", 1, f"name{kind}", sequence_start=True, sequence_end=True),
        sequence("an empty name", 1, "", sequence_start=True, sequence_end=True),
    ))  # fmt: skip


CONTROLS = """control_input [
  { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } },
  { name: "END" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [0, 1] } },
  { name: "READY" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [false, true] } },
  { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } } ] """
ADDS = """
    def initialize(self, args):
        self.totals = {}

    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        ready = given(request, "READY").item()
        key = given(request, "CORRID").item()
        if ready and given(request, "START").item():
            self.totals[key] = 0
        if ready:
            self.totals[key] = self.totals.get(key, 0) + int(given(request).item())
        told = [self.totals.get(key), given(request, "START").dtype.name,
                given(request, "END").item(), given(request, "CORRID").shape]
        return answer(y=np.array([[json.dumps(told)]], object))
"""
NUMBERS = "max_batch_size: 4 " + tensors("INT32", out="STRING")
FINAL_WANTED: Mapping[str, Any] = {"triton_enable_empty_final_response": {"bool_param": True}}


def streamed(label: str, value: float, shape: list[int], **more: Any) -> Ask:
    made = message({"inputs": [tensor([value], shape)]}) | {"id": "s"}
    return stream(label, {**made, "parameters": dict(more)})


SLEEPS = (
    EACH + "        time.sleep(given(request).item())\n        return answer(y=given(request))\n"
)


def queued(label: str, *asks: Ask) -> Ask:
    return Ask(label, "together", {"asks": [{**one.what, "door": one.door} for one in asks]})


def slow(seconds: float, **parameters: Any) -> Ask:
    return infer("", tensor([seconds], [1, 1]), parameters=parameters)[0]


CALLS = (
    Case("ensemble", ensemble(step("doubled", "x", "middle"), step("added", "middle", "y")),
         None, (
        *everywhere("two steps", ONE), *infer("an output", ONE, outputs=[{"name": "y"}]),
        *infer("a tensor between", ONE, outputs=[{"name": "middle"}]), *infer("no inputs"),
        *infer("an unknown output", ONE, outputs=[{"name": "z"}]),
        *infer("too many rows", tensor([1.0] * 5, [5, 1])), *generate("generated", {"x": 2.0}),
        http("metadata", "", view="tensors"),
        *infer("an id and a parameter", ONE, id="e", parameters={"k": "v"}),
    ), others={"doubled": (BATCHED, TWICE), "added": (BATCHED, PLUS)}),
    Case("ensemble-fails", ensemble(step("fine", "x", "middle"), step("refuses", "middle", "y")),
         None, everywhere("a step refuses", ONE),
         others={"fine": (BATCHED, TWICE), "refuses": (BATCHED, EACH + """
        return pb_utils.InferenceResponse(
            error=pb_utils.TritonError("no", pb_utils.TritonError.UNAVAILABLE))
""")}),
    Case("ensemble-incomplete", ensemble(step("gone", "x", "y")), None,
         others={"unused": (BATCHED, TWICE)}),
    Case("bls", BATCHED, EACH + """
        call = pb_utils.InferenceRequest(
            model_name="added-bls", requested_output_names=["y"],
            inputs=[pb_utils.Tensor("x", given(request))])
        return answer(y=call.exec().output_tensors()[0].as_numpy())
""", (*everywhere("calls another", ONE), *generate("generated", {"x": 2.0})),
         others={"added-bls": (BATCHED, PLUS)}),
    Case("bls-async", BATCHED, """
    async def execute(self, requests):
        import asyncio
        calls = [pb_utils.InferenceRequest(
            model_name="added-async", requested_output_names=["y"],
            inputs=[pb_utils.Tensor("x", given(each))]).async_exec() for each in requests]
        return [answer(y=each.output_tensors()[0].as_numpy())
                for each in await asyncio.gather(*calls)]
""", everywhere("awaits another", ONE), others={"added-async": (BATCHED, PLUS)}),
    Case("bls-errors", TOLD, EACH + """
        said = []
        for model, version, outputs, kind in (
                ("added-errors", -1, ["y"], np.float32), ("added-errors", 9, ["y"], np.float32),
                ("gone", -1, ["y"], np.float32), ("added-errors", -1, ["z"], np.float32),
                ("added-errors", -1, ["y"], np.int32), ("added-errors", -1, [], np.float32)):
            try:
                found = pb_utils.InferenceRequest(
                    model_name=model, model_version=version, requested_output_names=outputs,
                    inputs=[pb_utils.Tensor("x", given(request).astype(kind))]).exec()
                said.append([found.has_error(), found.has_error() and int(found.error().code()),
                             len(found.output_tensors())])
            except Exception as error:
                said.append(type(error).__name__)
        return answer(y=np.array([[json.dumps(said)]], object))
""", infer("calls that fail", ONE), others={"added-errors": (BATCHED, PLUS)}),
    Case("sequence", NUMBERS + "sequence_batching { direct { } " + CONTROLS + "}", ADDS,
         (*life(0), *life(1))),
    Case("sequence-oldest", NUMBERS + "sequence_batching { oldest { max_candidate_sequences: 4 } "
         + CONTROLS + "}", ADDS, (*life(0), *life(1))),
    Case("sequence-names", NUMBERS + """sequence_batching { direct { } control_input [
  { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } },
  { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } } ] }""",
         EACH + """
        told = [given(request, "CORRID").item().decode(), given(request, "START").item()]
        return answer(y=np.array([[json.dumps(told)]], object))
""", (*sequence("a name", 1, "abc", sequence_start=True),
      *_alone(sequence("a number", 1, 5, sequence_start=True)))),
    Case("sequence-state", "max_batch_size: 2 " + tensors("INT32") + """sequence_batching {
  control_input [ { name: "START" control { kind: CONTROL_SEQUENCE_START
      int32_false_true: [0, 1] } },
    { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [0, 1] } } ]
  state [ { input_name: "before" output_name: "after" data_type: TYPE_INT32 dims: [1]
    initial_state { name: "first" data_type: TYPE_INT32 dims: [1] zero_data: true } } ] }""",
         EACH + """
        total = given(request, "before") + given(request)
        return answer(y=total, after=total)
""", (*_alone(sequence("the start", 1, 5, sequence_start=True)),
      *_alone(sequence("goes on", 2, 5)),
      *_alone(sequence("another", 10, 6, sequence_start=True)),
      *_alone(sequence("the end", 3, 5, sequence_end=True)))),
    Case("sender", BATCHED, SENDS
         + "            sender.send(answer(y=given(request)), flags=FINAL)\n",
         (*everywhere("by its sender", ONE), *generate("generated", {"x": 1.0}))),
    Case("decoupled", PLAIN + DECOUPLED, SENDS + """
            for number in range(int(given(request).reshape(-1)[0])):
                sender.send(answer(y=np.array([number], np.float32)))
            sender.send(flags=FINAL)
""", (
        *infer("as one answer", tensor([1.0], [1])),
        *[each for count in (0.0, 1.0, 5.0)
          for each in generate(f"{count:g} responses", {"x": count, "id": "s"})],
        *[streamed(f"a stream, {count:g} responses", count, [1]) for count in (0.0, 1.0, 3.0)],
        streamed("a stream, the end wanted", 2.0, [1], **FINAL_WANTED),
        streamed("a stream, no response, the end wanted", 0.0, [1], **FINAL_WANTED),
        stream("a stream of a wrong request and a right one",
               message({"inputs": []}), message({"inputs": [tensor([1.0], [1])]}) | {"id": "2"}),
        http("metadata", "", view="tensors"),
    )),
    Case("decoupled-flagged", PLAIN + DECOUPLED, SENDS
         + "            sender.send(answer(y=given(request)), flags=FINAL)\n",
         (streamed("the end with a response", 2.0, [1], **FINAL_WANTED),
          *generate("generated", {"x": 1.0}))),
    Case("decoupled-error", PLAIN + DECOUPLED, SENDS + """
            error = pb_utils.TritonError("no", pb_utils.TritonError.NOT_FOUND)
            sender.send(answer(y=given(request)))
            sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)
""", (*generate("an error after a response", {"x": 1.0}), streamed("a stream", 1.0, [1]))),
    Case("decoupled-first-error", PLAIN + DECOUPLED, SENDS + """
            error = pb_utils.TritonError("no", pb_utils.TritonError.NOT_FOUND)
            sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)
""", (*generate("an error alone", {"x": 1.0}), streamed("a stream", 1.0, [1]))),
    Case("decoupled-raises", PLAIN + DECOUPLED, '    def execute(self, requests):\n        raise '
         'RuntimeError("spilled")\n',
         (*generate("execute raises", {"x": 1.0}), streamed("a stream", 1.0, [1]))),
    Case("decoupled-list", PLAIN + DECOUPLED, TWICE,
         (*generate("returns a list", {"x": 1.0}), streamed("a stream", 1.0, [1]))),
    Case("streams", BATCHED, TWICE, (
        streamed("one answer each", 2.0, [1, 1]), streamed("the end wanted", 2.0, [1, 1],
                                                           **FINAL_WANTED),
        stream("of an unknown model", {"model_name": "gone", **message({"inputs": [ONE]})}),
        stream("of no requests"),
        stream("of three", *(message({"inputs": [ONE]}) | {"id": str(n)} for n in range(3))),
    )),
    Case("queue-timeout", BATCHED + "dynamic_batching { default_queue_policy { "
         "timeout_action: REJECT default_timeout_microseconds: 100000 "
         "allow_timeout_override: true } }", SLEEPS, (
        queued("waits too long", slow(1.5), slow(0.0)),
        queued("its own timeout is shorter", slow(1.5), slow(0.0, timeout=1000)),
        queued("its own timeout is longer", slow(1.5), slow(0.0, timeout=5_000_000)),
    )),
    Case("queue-no-override", BATCHED + "dynamic_batching { default_queue_policy { "
         "default_timeout_microseconds: 4000000 } }", SLEEPS,
         [queued("a timeout of its own", slow(1.5), slow(0.0, timeout=1000))]),
    Case("queue-delay", BATCHED + "dynamic_batching { default_queue_policy { timeout_action: DELAY"
         " default_timeout_microseconds: 100000 } }", SLEEPS,
         [queued("goes behind", slow(1.5), slow(0.0))]),
    Case("queue-size", BATCHED + "dynamic_batching { default_queue_policy { max_queue_size: 1 } }",
         SLEEPS, [queued("others find it full", slow(2.5), *[slow(0.0)] * 5)]),
    Case("client-timeout", TOLD + "dynamic_batching { }", seen("request.timeout()"),
         infer("a timeout that nothing honours", ONE, parameters={"timeout": 1})),
    Case("cached", BATCHED + "response_cache { enable: true }", """
    def initialize(self, args):
        self.runs = 0

    def execute(self, requests):
        self.runs += len(requests)
        return [answer(y=np.full((1, 1), self.runs, np.float32)) for each in requests]
""", (
        *[http(f"time {time}", "infer", {"inputs": [ONE]}) for time in (1, 2)],
        http("another input", "infer", {"inputs": [tensor([2.0], [1, 1])]}),
        http("the first with an id", "infer", {"inputs": [ONE], "id": "c"}),
        http("the first with a parameter", "infer", {"inputs": [ONE], "parameters": {"k": 1}}),
        grpc("the first over gRPC", "ModelInfer", message({"inputs": [ONE]})),
        http("its output asked for", "infer", {"inputs": [ONE], "outputs": [{"name": "y"}]}),
        http("counts", "stats", view="counts", settles=True),
    )),
)  # fmt: skip
