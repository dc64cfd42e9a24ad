"""The assistant's model in the platform's engine, without the platform around it.

Serves `judge_chat.py` and the tests: answers are those of an endpoint, token for token, because the
engine, its settings and the prompts are the instance's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import EngineOptions
from penstock.runtimes.generation import engine_process
from penstock.runtimes.generation.base import EngineRequest, Sampling
from penstock.runtimes.openvino_genai.record import RECORD
from penstock.runtimes.record import Interface

_CACHE_BYTES = 64 << 20
_LOADER = RECORD.loaders[Interface.ENGINE]
Messages = list[dict[str, str]]


class Served:
    def __init__(self, artifact: Path, *, threads: int = 1) -> None:
        options = EngineOptions(cache_bytes=_CACHE_BYTES, sequences_max=16)
        settings = {**dataclasses.asdict(options), "threads": threads, "precision": ""}
        self._engine, self._prompts = engine_process.load(
            {"model_dir": str(artifact), "loader": _LOADER, "settings": settings}
        )

    def answers(self, prompts: Sequence[Messages], *, tokens_max: int = 160) -> list[str]:
        """One greedy answer for each, computed together."""
        for ident, messages in enumerate(prompts):
            self._engine.add(self._request(ident, messages, tokens_max))
        written: dict[int, list[int]] = {ident: [] for ident in range(len(prompts))}
        while self._engine.has_work:
            for output in self._engine.step():
                written[output.ident] += output.token_ids
        return [self._text(written[ident]) for ident in range(len(prompts))]

    def _request(self, ident: int, messages: Messages, tokens_max: int) -> EngineRequest:
        chat: dict[str, Any] = {"messages": messages}
        ids = self._prompts.tokens(chat, tokens_max=self._engine.context_tokens_max)
        return EngineRequest(ident, ids, Sampling(), tokens_max, seed=0)

    def _text(self, ids: list[int]) -> str:
        text: str = self._prompts.tokenizer.decode(ids, skip_special_tokens=True)
        return text
