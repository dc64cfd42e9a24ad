"""What is asked of a generation engine, and what it yields.

Settings are checked in `limits`, once for all dialects: an engine never sees an impossible one.
Nothing here knows a protocol, a tokenizer or an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock.errors import CallerError, ModelError
from penstock.runtimes.statistics import EngineStatistics

#: Likeliest tokens that any engine is asked for, as OpenAI's `top_logprobs`.
LOGPROBS_MAX = 20
#: How an engine comes by LoRA adapters: not at all, all of them when it starts, one by one.
NO_ADAPTERS, AT_START, ANY_TIME = "none", "at-start", "any-time"
#: What finished a sequence: a stop token or string, the length asked for, nobody wanting it.
STOP, LENGTH, CANCELLED = "stop", "length", "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen, and when to end. Made by `limits.checked`."""

    tokens_new_max: int | None = None  #: None: what is left of the context
    tokens_new_min: int = 0
    temperature: float = 0.0  #: 0 = the likeliest token, always
    top_p: float = 1.0
    top_k: int = 0  #: 0 = all
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None  #: None: the engine's process chooses one and tells it
    stop: tuple[str, ...] = ()
    stop_included: bool = False  #: the text ends with the stop string instead of before it
    logprobs: int | None = None  #: None: none; n: of the chosen token and the n likeliest
    json_schema: str | None = None  #: the text is JSON that this schema allows; "" = any object
    ignore_eos: bool = False
    echo: bool = False  #: the answer's text begins with the prompt
    sequences: int = 1  #: answers to the one prompt


class ToolText(Protocol):
    """Reads the function calls in one sequence's text as it comes. Made by an engine."""

    keeps_special: bool  #: it needs the text of special tokens too

    def begin(self, prompt: list[int]) -> None:
        """Before the first `add`."""

    def add(
        self, text: str, token_ids: list[int], *, finished: bool
    ) -> tuple[str, list[list[Any]]]:
        """What of the text is content, and what is new of calls: [index, id, name, arguments];
        id and name come with the first part of a call and are None in the rest."""


@dataclass(slots=True)
class EngineRequest:
    """One sequence as an engine takes it: the prompt is not empty and fits the context."""

    ident: int
    prompt: list[int]
    sampling: Sampling
    tokens_new_max: int  #: at most what is left of the context
    seed: int
    deadline: float | None = None
    tools: ToolText | None = None  #: of a chat with tools
    adapter: str = ""  #: key of the adapter that computes it; none: the base alone


@dataclass(slots=True)
class StepOutput:
    """What a step added to one sequence."""

    ident: int
    token_ids: list[int]
    logprobs: list[float] | None = None  #: of each token
    top: list[list[tuple[int, float]]] | None = None  #: of each token, the likeliest ones
    finish: str | None = None  #: STOP, LENGTH; None: it goes on
    tokens_cached: int = 0  #: of the prompt, found in the prefix cache


class GenerationEngine(Protocol):
    """Lives in the engine process. Calls come from one thread; none is made during a step."""

    name: str
    context_tokens_max: int  #: of prompt and answer together
    cache_tokens: int  #: of prompts, kept for later ones; 0: none, or it can't say
    logprobs_max: int  #: likeliest tokens that it can name; 0: the chosen one only
    has_json_schema: bool
    adapters: str  #: NO_ADAPTERS | AT_START (in its settings) | ANY_TIME (`load_adapter`)

    def load_adapter(self, key: str, folder: Path) -> None:
        """One of those that take them at any time. Raises PenstockError; nothing has changed
        then."""

    def unload_adapter(self, key: str) -> None:
        """No sequence of it is running. Unknown ones are ignored."""

    def add(self, request: EngineRequest) -> None:
        """Takes a sequence. Raises PenstockError where it can't be run."""

    def check_schema(self, schema: str) -> None:
        """Raises CallerError for a JSON schema that can't be held to. Called from another thread
        than the rest, and before `add`."""

    def tool_text(self, chat: dict[str, Any], json_schema: str | None) -> ToolText:
        """For one sequence of a chat that has tools. Raises CallerError, where the engine reads
        none or not these. Called from another thread than the rest, and before `add`."""

    def cancel(self, ident: int) -> None:
        """Ends a sequence; its blocks are free for the next step. Unknown ones are ignored."""

    def step(self) -> Sequence[StepOutput]:
        """Computes the next token of what runs. Returns at once where nothing does."""

    @property
    def has_work(self) -> bool: ...

    def statistics(self) -> EngineStatistics: ...

    def close(self) -> None: ...


def adapters_unsupported(engine: str, reason: str) -> ModelError:
    """The one refusal of adapters by engines that don't load them."""
    return ModelError(
        "adapters-unsupported",
        f"the engine {engine} loads no adapters beside this base: {reason}",
        hint="Merge the adapter into the model and create a component of its own.",
    )


def tools_unsupported(reason: str) -> CallerError:
    """The one refusal of tools by engines that don't read them."""
    return CallerError("parameter-unsupported", f"tools is not supported: {reason}", param="tools")
