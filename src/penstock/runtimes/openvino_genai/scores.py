"""Log-probabilities that GenAI does not tell: of a prompt's tokens, and the likeliest tokens.

GenAI tells the log-probability of the token it chose and no other number, so a second copy of the
same graph is computed here, by requests of its own: the engine's cache and its steps are not
touched. It is loaded when the first request needs it and dropped after `IDLE_S_MAX` without one;
meanwhile the weights are twice in memory. Numbers are those of the model, before temperature,
penalties and grammars, with keys and values that are not rounded.

Prompts that wait together are read as one batch. Rows end in padding, which comes behind all real
tokens and can't reach them. A sequence whose answer is followed reads its tokens as they come, with
a state of its own; only `FOLLOWED_MAX` have one at a time, the others wait.

One thread computes; all methods but those of `_ScoreWorker` are called by the engine's thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import numpy as np

from penstock.errors import ModelError, NotNowError, PenstockError, kind_of, plain
from penstock.runtimes.generation.base import LENGTH, EngineRequest, StepOutput, TokenScore
from penstock.runtimes.workers.failures import log_traceback

#: Tokens of prompts that are read as one batch, padding included, unless one prompt is longer.
BATCH_TOKENS_MAX: Final = 512
#: Logits that are computed at a time: a long prompt is read in parts.
LOGITS_BYTES_MAX: Final = 64 << 20
FOLLOWED_MAX: Final = 4
#: After so long without a request the graph's memory is given back.
IDLE_S_MAX: Final = 120.0
_VOCABULARY: Final = 256_000  #: of a graph that does not say
#: Weights take so many times their file while they are brought into the processor's form.
_ROOM: Final = 2
#: The engine's thread has other work: it looks again after this.
_PAUSE_S: Final = 0.005


def needs_scores(request: EngineRequest) -> bool:
    """Whether a request asks for more than the engine's own number of each chosen token."""
    sampling = request.sampling
    if sampling.prompt_scored:
        return True
    if not sampling.logprobs:
        return False
    # In a plain greedy answer the chosen token is the likeliest.
    plain_greedy = (
        sampling.temperature == 0.0
        and sampling.repetition_penalty == 1.0
        and sampling.presence_penalty == 0.0
        and sampling.frequency_penalty == 0.0
        and sampling.tokens_new_min == 0
        and not sampling.constrained
        and request.tools is None
    )
    return sampling.logprobs > 1 or not plain_greedy


class PromptScores:
    """The scores of an engine's sequences. `add`, then `follow` each of its outputs; all come back
    from `take`, in the same order, with their scores."""

    def __init__(self, model_file: Path, properties: dict[str, Any], *, told: int | None) -> None:
        """`told`: `StepOutput.tokens_cached` of outputs that are made here."""
        self._worker = _ScoreWorker(model_file, properties, told)
        self._awaited: dict[int, int] = {}  #: id -> outputs that have not come back
        self._scored: dict[int, _Scored] = {}  #: the same sequences
        self._thread: threading.Thread | None = None

    @property
    def has_work(self) -> bool:
        return any(self._awaited.values())

    def knows(self, ident: int) -> bool:
        return ident in self._awaited

    def add(self, request: EngineRequest, ids: list[int]) -> None:
        """`ids`: the prompt as the graph reads it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._worker.run, name="scores", daemon=True)
            self._thread.start()
        self._awaited[request.ident] = int(request.sampling.prompt_scored)
        scored = self._scored[request.ident] = _Scored(request, list(ids))
        self._worker.inbox.put(scored)

    def follow(self, output: StepOutput) -> None:
        self._awaited[output.ident] += 1
        self._worker.inbox.put(output)

    def drop(self, ident: int) -> None:
        if self._awaited.pop(ident, None) is not None:
            self._scored.pop(ident).cancelled = True
            self._worker.inbox.put(ident)

    def take(self, *, wait: bool) -> list[StepOutput]:
        """What is ready; `wait`: for a moment, if nothing is."""
        found: list[StepOutput] = []
        while True:
            try:
                output = self._worker.done.get(wait and not found, _PAUSE_S)
            except Empty:
                return found
            if output.ident not in self._awaited:
                continue  # cancelled meanwhile
            self._awaited[output.ident] -= 1
            if output.finish is not None or output.error is not None:
                del self._awaited[output.ident], self._scored[output.ident]
            found.append(output)


@dataclass(slots=True)
class _Scored:
    """A sequence as the worker sees it."""

    request: EngineRequest
    unread: list[int]  #: tokens that its reading has not had
    logits: np.ndarray | None = None  #: [tokens of the vocabulary], behind the last one read
    reading: _ScoringPass | None = None
    held: list[StepOutput] = field(default_factory=list)  #: until it may have a reading
    cancelled: bool = False  #: set by the engine's thread; nobody wants what is not computed yet

    @property
    def top(self) -> int:
        return self.request.sampling.logprobs or 0


class _ScoreWorker:
    """What the thread does."""

    def __init__(self, model_file: Path, properties: dict[str, Any], told: int | None) -> None:
        self.inbox: SimpleQueue[_Scored | StepOutput | int] = SimpleQueue()
        self.done: SimpleQueue[StepOutput] = SimpleQueue()
        self._model_file = model_file
        self._properties = properties
        self._told = told
        self._graph: _ScoringGraph | None = None
        self._sequences: dict[int, _Scored] = {}

    def run(self) -> None:
        while True:
            try:
                work = self.inbox.get(timeout=IDLE_S_MAX)
            except Empty:
                if not self._sequences:
                    self._graph = None
                continue
            self._do(work)

    def _do(self, work: _Scored | StepOutput | int) -> None:
        if isinstance(work, int):
            self._forget(work)
            return
        prompts = [work] if isinstance(work, _Scored) else []
        rest: deque[_Scored | StepOutput | int] = deque() if prompts else deque([work])
        while prompts and not self.inbox.empty():
            follower = self.inbox.get()
            if not isinstance(follower, _Scored) or not _fits(prompts, follower):
                rest.append(follower)
                break
            prompts.append(follower)
        prompts = [each for each in prompts if not each.cancelled]
        if prompts:
            self._tried([each.request.ident for each in prompts], self._read_together, prompts)
        for each in rest:
            if isinstance(each, StepOutput):
                self._tried([each.ident], self._follow, each)
            else:
                self._do(each)

    def _tried(self, idents: list[int], work: Any, value: Any) -> None:
        """An error is the answer to these sequences, and ends nothing else."""
        try:
            work(value)
        except PenstockError as error:
            refused = error
        except Exception as error:  # of the library, which has its own kinds
            log_traceback(error)
            words = f"log-probabilities can't be computed: {kind_of(error)}: {plain(error, 300)}"
            refused = ModelError("logprobs-failed", words)
        else:
            return
        for ident in idents:
            self._forget(ident)
            self.done.put(StepOutput(ident, [], error=refused))

    def _loaded(self) -> _ScoringGraph:
        if self._graph is None:
            _check_room(self._model_file)
            self._graph = _ScoringGraph(self._model_file, self._properties)
        return self._graph

    def _read_together(self, prompts: list[_Scored]) -> None:
        graph = self._loaded()
        try:
            self._read_prompts(graph, prompts)
        except Exception:
            if len(prompts) == 1:
                raise
            for each in prompts:  # one of them may be the reason
                self._tried([each.request.ident], self._read_together, [each])

    def _read_prompts(self, graph: _ScoringGraph, prompts: list[_Scored]) -> None:
        rows = [each.unread for each in prompts]
        width = max(map(len, rows))
        padded = np.zeros((len(rows), width), dtype=np.int64)
        real = np.zeros((len(rows), width), dtype=np.int64)
        for at, row in enumerate(rows):
            padded[at, : len(row)], real[at, : len(row)] = row, 1
        found: list[list[TokenScore]] = [[TokenScore(None, [])] for _ in rows]
        for start, logits in graph.reading().parts(padded, real):
            for at, each in enumerate(prompts):
                size = len(each.unread)
                here = logits[at, : max(0, size - start)]
                if each.request.sampling.prompt_scored:
                    following = each.request.prompt[start + 1 : start + 1 + len(here)]
                    found[at] += scores(here[: len(following)], following, each.top)
                if start < size <= start + logits.shape[1]:
                    each.logits = here[-1].copy()
        for at, each in enumerate(prompts):
            request = each.request
            alone = request.tokens_new_max == 0
            if not alone:
                self._sequences[request.ident] = each
            if request.sampling.prompt_scored:
                output = StepOutput(request.ident, [], finish=LENGTH if alone else None)
                output.prompt, output.tokens_cached = found[at], self._told
                self.done.put(output)

    def _follow(self, output: StepOutput) -> None:
        sequence = self._sequences.get(output.ident)
        if sequence is None:
            return
        sequence.held.append(output)
        ids = [each for one in sequence.held for each in one.token_ids]
        at_once = not ids or (len(ids) == 1 and sequence.logits is not None)
        if not at_once and sequence.reading is None:
            if sum(each.reading is not None for each in self._sequences.values()) >= FOLLOWED_MAX:
                return
            sequence.reading, sequence.logits = self._loaded().reading(), None
        self._score(sequence, ids)
        if output.finish is not None:
            self._forget(output.ident)

    def _score(self, sequence: _Scored, ids: list[int]) -> None:
        outputs, sequence.held = sequence.held, []
        found: list[TokenScore] = []
        if ids and sequence.logits is not None:
            found = scores(sequence.logits[None], ids, sequence.top)
            sequence.logits = None
        elif ids and sequence.reading is not None:
            unread = [*sequence.unread, *ids[:-1]]
            sequence.unread = []
            first = len(unread) - len(ids)  # from this row on, a row's next token is one of `ids`
            tokens = np.array([unread], dtype=np.int64)
            for start, logits in sequence.reading.parts(tokens, np.ones_like(tokens)):
                here = logits[0, max(0, first - start) :]
                found += scores(here, ids[len(found) : len(found) + len(here)], sequence.top)
        sequence.unread += ids[-1:]
        for output in outputs:
            mine, found = found[: len(output.token_ids)], found[len(output.token_ids) :]
            output.logprobs = [each.logprob or 0.0 for each in mine]
            output.top = [each.top for each in mine]
            self.done.put(output)

    def _forget(self, ident: int) -> None:
        """One that waited for a reading may have it now."""
        gone = self._sequences.pop(ident, None)
        if gone is None or gone.reading is None:
            return
        for each in self._sequences.values():
            if each.held:
                last = each.held.pop()
                self._tried([last.ident], self._follow, last)
                return


def _check_room(model_file: Path) -> None:
    """Raises NotNowError where a second copy of the weights would have no room: the engine and its
    sequences would die with it."""
    weights = model_file.with_suffix(".bin").stat().st_size
    available = available_bytes()
    if available is not None and weights * _ROOM > available:
        raise NotNowError(
            "logprobs-no-memory",
            f"log-probabilities need a second copy of the weights, about {weights >> 20} MiB, and "
            f"{available >> 20} MiB of memory are left",
            hint="Send the request again later, or leave out logprobs; a smaller engine.cache_mb "
            "in model.yaml makes room, too.",
        )


def available_bytes() -> int | None:
    """The machine's free memory; None where it does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] << 10 if found else None


def _fits(prompts: list[_Scored], other: _Scored) -> bool:
    longest = max(len(each.unread) for each in (*prompts, other))
    return (len(prompts) + 1) * longest <= BATCH_TOKENS_MAX


class _ScoringGraph:
    """The compiled graph; memory of its weights goes with it."""

    def __init__(self, model_file: Path, properties: dict[str, Any]) -> None:
        import openvino as ov

        core = ov.Core()
        known = set(core.get_property("CPU", "SUPPORTED_PROPERTIES"))
        taken = {name: value for name, value in properties.items() if name in known}
        # Nothing is kept for long: rounded keys and values would only make the numbers worse.
        self.compiled = core.compile_model(model_file, "CPU", taken | {"KV_CACHE_PRECISION": "f32"})
        self.inputs = {name for each in self.compiled.inputs for name in each.get_names()}
        vocabulary = self.compiled.output("logits").get_partial_shape()[2]
        size = vocabulary.get_length() if vocabulary.is_static else _VOCABULARY
        self.row_bytes = 4 * size  #: of the logits behind one token

    def reading(self) -> _ScoringPass:
        return _ScoringPass(self)


class _ScoringPass:
    """Rows of tokens that are read from left to right."""

    def __init__(self, graph: _ScoringGraph) -> None:
        self._inputs = graph.inputs
        self._row_bytes = graph.row_bytes
        self._request = graph.compiled.create_infer_request()
        self._mask: np.ndarray | None = None  #: of what was read

    def parts(self, tokens: np.ndarray, real: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Reads `tokens` [rows, tokens] (`real`: 0 where one is padding) in parts; yields each
        part's first index, and its logits [rows, tokens, vocabulary] until the next one."""
        rows, count = tokens.shape
        size = max(1, LOGITS_BYTES_MAX // (rows * self._row_bytes))
        for start in range(0, count, size):
            yield start, self._read(tokens[:, start : start + size], real[:, start : start + size])

    def _read(self, tokens: np.ndarray, real: np.ndarray) -> np.ndarray:
        rows, count = tokens.shape
        past = 0 if self._mask is None else self._mask.shape[1]
        self._mask = real if self._mask is None else np.concatenate([self._mask, real], axis=1)
        given = {
            "input_ids": tokens,
            "attention_mask": self._mask,
            "position_ids": np.tile(np.arange(past, past + count, dtype=np.int64), (rows, 1)),
            "beam_idx": np.arange(rows, dtype=np.int32),
        }
        self._request.infer({name: value for name, value in given.items() if name in self._inputs})
        logits: np.ndarray = self._request.get_tensor("logits").data
        return logits


def scores(logits: np.ndarray, ids: Sequence[int], top: int) -> list[TokenScore]:
    """Log-probabilities of `ids`, each behind its row of `logits` [tokens, vocabulary], and of the
    `top` likeliest tokens there, the likeliest first."""
    if not len(ids):
        return []
    rows = logits.astype(np.float32, copy=False)
    highest = rows.max(axis=1, keepdims=True)
    total = highest[:, 0] + np.log(np.exp(rows - highest).sum(axis=1))
    chosen = rows[np.arange(len(ids)), list(ids)] - total
    best = _likeliest(rows, min(top, rows.shape[1]))
    values = np.take_along_axis(rows, best, axis=1) - total[:, None]
    return [
        TokenScore(float(one), list(zip(map(int, each), map(float, value), strict=True)))
        for one, each, value in zip(chosen, best, values, strict=True)
    ]


def _likeliest(rows: np.ndarray, top: int) -> np.ndarray:
    """[tokens, top]: ids, the likeliest first and of equals the smallest."""
    best: np.ndarray = np.zeros((len(rows), 0), dtype=np.int64)
    if top == 1:
        best = np.argmax(rows, axis=1, keepdims=True)
    elif top:
        found = np.sort(np.argpartition(rows, -top, axis=1)[:, -top:], axis=1)
        order = np.argsort(-np.take_along_axis(rows, found, axis=1), axis=1, kind="stable")
        best = np.take_along_axis(found, order, axis=1)
    return best
