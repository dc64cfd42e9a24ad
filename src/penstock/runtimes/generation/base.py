"""What a generation engine takes and returns.

Settings are checked in `limits`, once for all dialects: an engine never sees an invalid one.
Nothing here knows a protocol, a tokenizer or an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.errors import CallerError, ModelError, PenstockError
from penstock.runtimes.statistics import EngineStatistics

#: How many likeliest tokens can be requested from any engine, as in OpenAI's `top_logprobs`.
LOGPROBS_MAX = 20
#: How an engine takes LoRA adapters: not at all, all when it starts, one by one at any time.
NO_ADAPTERS, AT_START, ANY_TIME = "none", "at-start", "any-time"
#: What finished a sequence: a stop token or string, the requested length, a cancellation.
STOP, LENGTH, CANCELLED = "stop", "length", "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen, and when to end. Made by `limits.checked`."""

    #: None: as many as the context has room for; 0: none, the prompt alone is answered
    tokens_new_max: int | None = None
    tokens_new_min: int = 0
    temperature: float = 0.0  #: 0 = always the likeliest token
    top_p: float = 1.0
    top_k: int = 0  #: 0 = all
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None  #: None: the engine's process chooses one and reports it
    stop: tuple[str, ...] = ()
    stop_included: bool = False  #: the text ends with the stop string, instead of before it
    #: None: no log-probabilities; n: of the chosen token and the n likeliest
    logprobs: int | None = None
    #: What the whole text must be, at most one of the four: JSON of this schema, a match of this
    #: regular expression, a text of this grammar (EBNF as in GBNF), one of these texts.
    json_schema: str | None = None
    regex: str | None = None
    grammar: str | None = None
    choices: tuple[str, ...] = ()
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()  #: they end the answer as the model's own end does
    special_shown: bool = False  #: the text has special tokens too
    prompt_tokens_max: int | None = None  #: of a longer prompt the last ones; -1: what fits
    echo: bool = False  #: the answer's text begins with the prompt
    prompt_scored: bool = False  #: `logprobs` are of the prompt's tokens, too
    sequences: int = 1  #: answers to the one prompt

    @property
    def constrained(self) -> bool:
        bound = (self.json_schema, self.regex, self.grammar)
        return bool(self.choices) or any(each is not None for each in bound)


class ToolText(Protocol):
    """Reads the function calls in one sequence's text as it comes. Made by an engine."""

    keeps_special: bool  #: it also needs the text of special tokens

    def begin(self, prompt: list[int]) -> None:
        """Before the first `add`."""

    def add(
        self, text: str, token_ids: list[int], *, finished: bool
    ) -> tuple[str, list[list[Any]]]:
        """Returns the new content, and the new parts of calls: [index, id, name, arguments]; id and
        name come with the first part of a call and are None in the others."""


@dataclass(slots=True)
class EngineRequest:
    """One sequence for an engine; the prompt is not empty and fits into the context."""

    ident: int
    prompt: list[int]
    sampling: Sampling
    tokens_new_max: int  #: at most the rest of the context
    seed: int
    tools: ToolText | None = None  #: for a chat with tools
    adapter: str = ""  #: key of its LoRA adapter; "" = the base alone


class TokenScore(NamedTuple):
    """How likely the model found a token of the prompt."""

    logprob: float | None  #: None of the first one: nothing is before it
    top: list[tuple[int, float]]  #: the likeliest tokens at its place


@dataclass(slots=True)
class StepOutput:
    """What a step added to one sequence."""

    ident: int
    token_ids: list[int]
    logprobs: list[float] | None = None  #: one for each token
    top: list[list[tuple[int, float]]] | None = None  #: the likeliest tokens at each place
    finish: str | None = None  #: STOP or LENGTH; None: the sequence goes on
    #: Tokens of the prompt that the prefix cache had; None: the engine does not tell
    tokens_cached: int | None = 0
    #: One for each token of a prompt that is scored, with or before the first token of the answer
    prompt: list[TokenScore] | None = None
    error: PenstockError | None = None  #: the sequence has failed, alone


class GenerationEngine(Protocol):
    """Lives in the engine process. One thread makes all calls but two; none is made during a
    step. What has a body here is right for an engine that has no such thing."""

    name: str
    context_tokens_max: int  #: bound for prompt and answer together
    cache_tokens: int  #: capacity of the prefix cache in tokens; 0: none, or unknown
    logprobs_max: int  #: how many likeliest tokens it can return; 0: the chosen one only
    scores_prompts: bool = False  #: it takes requests whose `prompt_scored` is set
    has_grammars: bool  #: it can hold answers to a schema, expression, grammar or choice
    adapters: str  #: NO_ADAPTERS | AT_START (in its settings) | ANY_TIME (`load_adapter`)

    def load_adapter(self, key: str, folder: Path) -> None:
        """Loads an adapter, in an engine with ANY_TIME. Raises PenstockError; then nothing has
        changed."""
        raise adapters_unsupported(self.name, "it takes none while it runs")

    def unload_adapter(self, key: str) -> None:
        """Removes an adapter that no running sequence uses. Unknown keys are ignored."""
        return

    def add(self, request: EngineRequest) -> None:
        """Takes a sequence. Raises PenstockError where it can't be run."""

    def check_constraint(self, request: EngineRequest) -> None:
        """Raises CallerError for a schema, grammar or tools that the engine can't hold an answer
        to. Called from another thread than the rest, and before `add`."""
        return

    def tool_text(self, chat: dict[str, Any], json_schema: str | None) -> ToolText:
        """The reader for one sequence of a chat with tools. Raises CallerError where the engine
        supports no tools, or not these. Called from another thread than the rest, and before
        `add`."""

    def cancel(self, ident: int) -> None:
        """Ends a sequence; its blocks are free for the next step. Unknown ones are ignored."""

    def step(self) -> Sequence[StepOutput]:
        """Computes the next token of all running sequences. Returns at once where none is
        running."""

    @property
    def has_work(self) -> bool: ...

    def statistics(self) -> EngineStatistics: ...

    def close(self) -> None:
        """The process, and all that it started, ends right after."""
        return


def adapters_unsupported(engine: str, reason: str) -> ModelError:
    """The one error for adapters in engines that don't load them."""
    return ModelError(
        "adapters-unsupported",
        f"the engine {engine} loads no adapters beside this base: {reason}",
        hint="Merge the adapter into the model and create a component of its own.",
    )


def tools_unsupported(reason: str) -> CallerError:
    """The one error for tools in engines that don't support them."""
    return CallerError("parameter-unsupported", f"tools is not supported: {reason}", param="tools")
