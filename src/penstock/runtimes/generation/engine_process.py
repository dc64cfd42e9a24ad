"""The engine process: `python -m penstock.runtimes.generation.engine_process FD`.

One thread reads commands and makes prompts into tokens; the main thread takes what is ready
between two steps, steps the engine, and sends all that a step made in one write. Tokenizing a long
prompt therefore never holds up those that are being answered.

An engine that raises in a step has lost its sequences: the process ends, its instance gives back or
fails what was running and starts another.
"""

from __future__ import annotations

import importlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from penstock import scheduling
from penstock.errors import CallerError, ModelError, PenstockError, kind_of, plain
from penstock.runtimes.generation import wire
from penstock.runtimes.generation.answers import Answers, SequenceUnderWay, sequences_of
from penstock.runtimes.generation.base import STOP, EngineRequest, GenerationEngine, Sampling
from penstock.runtimes.generation.prompts import Prompts
from penstock.runtimes.workers import inside
from penstock.runtimes.workers.failures import LOG_HINT, log_traceback

#: While the engine works, a message is sent at least this often, so that a hang can be detected.
SIGN_OF_LIFE_S = 1.0
#: Requests that were sent together reach an idle engine one after the other. It waits this long for
#: the next of them, and no longer in all. Prompts that are read in one step cost half of what they
#: cost one by one (8 prompts of 128 tokens, a 135M Llama on 2 cores: 0.20 s against 0.30 s).
JOIN_S = 0.002
JOIN_S_MAX = 0.010


def load(init: dict[str, Any]) -> tuple[GenerationEngine, Prompts]:
    """Raises PenstockError."""
    module, _, name = init["loader"].partition(":")
    loader = getattr(importlib.import_module(module), name)
    loaded: tuple[GenerationEngine, Prompts] = loader(Path(init["model_dir"]), init["settings"])
    return loaded


class Commands:
    """Reads the socket on a thread; the main thread takes (kind, value) from `inbox`.

    Kinds: "add" (a `SequenceUnderWay`), "told" (the event that is the answer), "refuse" (id,
    error), "cancel" (ids), "adapter" (content as in `wire`), "end".
    """

    def __init__(
        self,
        messages: Iterator[tuple[int, int, bytes]],
        prompts: Prompts,
        engine: GenerationEngine,
        *,
        sequences_max: int,
    ) -> None:
        self.inbox: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._messages = messages
        self._prompts = prompts
        self._engine = engine
        self._context = engine.context_tokens_max
        self._sequences_max = sequences_max
        self._random = random.SystemRandom()
        self._special = prompts.special_ids()
        self._schemas = ThreadPoolExecutor(1, "schemas")
        self._checking: set[int] = set()  #: requests whose schema is being checked

    def start(self) -> None:
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def _read(self) -> None:
        try:
            for kind, _, payload in self._messages:
                value = json.loads(payload)
                if kind == wire.ADD and wire.is_question(value["prompt"]):
                    told = partial(self._told, value["i"], value["prompt"])
                    self._answered(value["i"], told, self.inbox.put)
                elif kind == wire.ADD:
                    prepared = partial(self._prepared, value["i"], value)
                    self._answered(value["i"], prepared, self._begin)
                elif kind == wire.CANCEL:
                    self._checking.difference_update(value)
                    self.inbox.put(("cancel", value))
                elif kind == wire.ADAPTER:
                    self.inbox.put(("adapter", value))
        except (OSError, ValueError) as error:
            log_traceback(error)
        self.inbox.put(("end", None))

    def _told(self, ident: int, question: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        told = self._prompts.told(question, tokens_max=self._context)
        return "told", {"i": ident, "v": told, "f": STOP}

    def _begin(self, sequences: list[SequenceUnderWay]) -> None:
        request = sequences[0].request
        if not request.sampling.constrained and request.tools is None:
            self._hand_over(sequences)
            return
        # Compiling a grammar may take seconds: its own thread keeps other requests from waiting.
        ident = request.ident
        self._checking.add(ident)

        def checked() -> None:
            self._engine.check_constraint(request)
            if ident in self._checking:  # else it was cancelled meanwhile
                self._checking.discard(ident)
                self._hand_over(sequences)

        self._schemas.submit(self._answered, ident, checked, lambda _: None)

    def _hand_over(self, sequences: list[SequenceUnderWay]) -> None:
        for answering in sequences:
            self.inbox.put(("add", answering))

    def _answered(self, ident: int, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Any error becomes this request's answer, and no thread ends."""
        try:
            then(work())
        except PenstockError as error:
            self.inbox.put(("refuse", (ident, error)))
        except Exception as error:
            log_traceback(error)
            words = f"the request can't be read: {kind_of(error)}: {plain(error, 300)}"
            self.inbox.put(("refuse", (ident, ModelError("prompt-failed", words))))

    def _prepared(self, ident: int, call: dict[str, Any]) -> list[SequenceUnderWay]:
        sampling = wire.sampling_of(call["sampling"])
        engine = self._engine
        asked, readers = call["prompt"], []
        prompts = asked["several"] if isinstance(asked, dict) and "several" in asked else [asked]
        self._check_count(sampling.sequences, len(prompts))
        if sampling.logprobs and sampling.logprobs > max(1, engine.logprobs_max):
            raise CallerError(
                "logprobs-unsupported",
                f"log-probabilities of the {sampling.logprobs} likeliest tokens: the engine "
                f"{engine.name} knows those of {engine.logprobs_max or 'the chosen token alone'}",
                hint="Ask for the chosen token's alone.",
                param="logprobs",
            )
        if sampling.prompt_scored and not engine.scores_prompts:
            raise CallerError(
                "parameter-unsupported",
                f"echo with logprobs is not supported: the engine {engine.name} tells none of a "
                "prompt's log-probabilities",
                param="prompt_scored",
            )
        if sampling.constrained and not engine.has_grammars:
            raise CallerError(
                "json-schema-unsupported",
                f"the engine {engine.name} can't hold this model to a JSON schema or a grammar",
                hint="Leave the response format out, or serve the model with runtime vllm.",
                param="json_schema",
            )
        if isinstance(asked, dict) and asked.get("tools"):
            readers = [
                engine.tool_text(asked, sampling.json_schema) for _ in range(sampling.sequences)
            ]
        seed = sampling.seed if sampling.seed is not None else self._random.getrandbits(31)
        adapter = call.get("adapter", "")
        requests = [self._request(ident, each, sampling, seed, adapter) for each in prompts]
        return sequences_of(requests, self._prompts, self._special, readers)

    def _check_count(self, sequences: int, prompts: int) -> None:
        if sequences * prompts <= self._sequences_max:
            return
        of = f" to {prompts} prompts" if prompts > 1 else ""
        raise CallerError(
            "invalid-parameter",
            f"{sequences * prompts} answers{of} are asked for, and the engine {self._engine.name} "
            f"makes at most {self._sequences_max} at once here",
            hint="Ask for fewer, or raise engine.sequences_max in model.yaml.",
            param="prompt" if prompts > 1 else "sequences",
        )

    def _request(
        self, ident: int, asked: Any, sampling: Sampling, seed: int, adapter: str
    ) -> EngineRequest:
        """One prompt's."""
        prompt = self._prompts.tokens(
            asked, tokens_max=self._context, last=sampling.prompt_tokens_max
        )
        left = self._context - len(prompt)
        wanted = sampling.tokens_new_max
        most = left if wanted is None else min(wanted, left)
        if sampling.tokens_new_min > most:
            raise CallerError(
                "invalid-parameter",
                f"at least {sampling.tokens_new_min} tokens are asked for, and {most} fit behind "
                "the prompt",
                param="tokens_new_min",
            )
        return EngineRequest(ident, prompt, sampling, most, seed, adapter=adapter)


class Loop:
    """The work of the main thread."""

    def __init__(self, engine: GenerationEngine, commands: Commands, channel: Any) -> None:
        self._engine = engine
        self._commands = commands
        self._channel = channel
        self._answers = Answers(engine)

    def run(self) -> None:
        """Runs until the instance closes its end. Raises what the engine raises in a step."""
        engine = self._engine
        said = 0.0
        while True:
            events = self._obey()
            if events is None:
                return
            if engine.has_work:
                events += self._answers.take(engine.step())
            now = time.monotonic()
            if events or now - said >= SIGN_OF_LIFE_S:
                said = now
                self._send(events)

    def _obey(self) -> list[dict[str, Any]] | None:
        """Carries out commands and returns their events; None: the process is to end.

        An idle engine waits for a command and for those that come with it; a busy one does not
        wait.
        """
        inbox, idle = self._commands.inbox, not self._engine.has_work
        events: list[dict[str, Any]] = []
        wait_s: float | None = None if idle else 0.0
        began: float | None = None
        while True:
            try:
                kind, value = inbox.get(wait_s != 0.0, wait_s)
            except Empty:
                return events
            if kind == "end":
                return None
            if kind == "adapter":
                self._adapt(value)
                continue
            events += self._answers.command(kind, value)
            if idle:
                now = time.monotonic()
                began = now if began is None else began
                joins = self._engine.has_work and now < began + JOIN_S_MAX
                wait_s = JOIN_S if joins else 0.0

    def _adapt(self, asked: dict[str, Any]) -> None:
        """Loads or unloads an adapter between two steps. An error is only reported: the base goes
        on."""
        told: dict[str, Any] = {"key": asked["key"]}
        try:
            if asked.get("folder"):
                self._engine.load_adapter(asked["key"], Path(asked["folder"]))
            else:
                self._engine.unload_adapter(asked["key"])
        except PenstockError as error:
            told["error"] = error.to_dict()
        except Exception as error:  # engines raise their own kinds
            log_traceback(error)
            words = f"the adapter can't be loaded: {kind_of(error)}: {plain(error, 300)}"
            told["error"] = ModelError("adapter-failed", words).to_dict()
        self._channel.sendall(wire.message(wire.ADAPTED, told))

    def _send(self, events: list[dict[str, Any]]) -> None:
        seen = self._engine.statistics()
        statistics = [seen.running, seen.waiting, seen.cache_use, seen.cache_bytes]
        self._channel.sendall(wire.message(wire.EVENTS, {"s": statistics, "e": events}))


def _explain(error: BaseException, init: dict[str, Any]) -> PenstockError:
    """Turns any exception of an engine into an error of ours."""
    if isinstance(error, PenstockError):
        return error
    words = plain(" ".join(plain(error).split()), 300)
    return ModelError(
        "engine-failed",
        f"the engine {init['engine']} did not start: {kind_of(error)}: {words}",
        hint=LOG_HINT,
    )


def _about(loaded: tuple[GenerationEngine, Prompts]) -> dict[str, Any]:
    engine, prompts = loaded
    return {
        "engine": engine.name,
        "context_tokens_max": engine.context_tokens_max,
        "cache_tokens": engine.cache_tokens,
        "has_grammars": engine.has_grammars,
        "logprobs_max": engine.logprobs_max,
        "scores_prompts": engine.scores_prompts,
        "adapters": engine.adapters,
        "sampling": dict(prompts.sampling),
        "special_tokens": {name: text or None for name, text in prompts.special_tokens().items()},
    }


def serve(channel: socket.socket) -> None:
    scheduling.compute()
    loaded = inside.loaded(channel, load, explain=_explain, about=_about)
    if loaded is None:
        return
    (engine, prompts), init, messages = loaded
    sequences_max = int(init["settings"]["sequences_max"])
    commands = Commands(messages, prompts, engine, sequences_max=sequences_max)
    commands.start()
    try:
        Loop(engine, commands, channel).run()
    finally:
        engine.close()


if __name__ == "__main__":
    inside.main(serve)
