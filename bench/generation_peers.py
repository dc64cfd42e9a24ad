"""Engines by themselves: processes that stay loaded and answer a line of JSON with one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tools.environments import make

from bench.generation_models import CACHE, PEERS, Model
from bench.machine import memory_bytes
from bench.report import ROOT

#: Engines whose threads wait for each other by spinning make no headway where others want the
#: cores: then they are given up.
START_S_MAX = 420.0
ANSWER_S_MAX = 90.0


class Peer:
    """`ask` gives seconds and the token ids of each answer. `version`: what it says it is.

    RuntimeError from `wait_ready` and `ask` where the process ended or took too long.
    """

    def __init__(self, name: str, argv: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.version = ""
        self._log = (CACHE / f"{name}.log").open("w")
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
                 **environment},
        )  # fmt: skip

    def wait_ready(self) -> None:
        self.version = self._answer("ready", START_S_MAX).removeprefix("ready").strip()

    def ask(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": prompts, "tokens": tokens}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._answer("{", ANSWER_S_MAX))
        if [len(each) for each in answer["ids"]] != [tokens] * len(prompts):
            raise RuntimeError(f"{self.name} did not make {tokens} tokens of each prompt")
        return answer

    def _answer(self, begins: str, s_max: float) -> str:
        assert self._process.stdout is not None
        patience = threading.Timer(s_max, self._process.kill)
        patience.start()
        try:
            for line in self._process.stdout:  # libraries may print before it
                if line.startswith(begins):
                    return line
        finally:
            patience.cancel()
        raise RuntimeError(f"{self.name} ended, or took over {s_max:.0f} s: see {self._log.name}")

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Of its process and all below it."""
        return memory_bytes(self._process.pid)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()


def bare(model: Model, folder: Path, *, sequences_max: int, cache_gib: int, threads: int) -> Peer:
    """Our engine's library by itself. `folder`: the artifact."""
    argv = [sys.executable, str(PEERS / "generate_genai.py"), str(folder)]
    argv += [str(each) for each in (sequences_max, cache_gib, threads)]
    return Peer(f"bare-{model.shape}", argv, {"PYTHONPATH": str(ROOT / "src")})


def vllm(model: Model, *, sequences_max: int, cache_gib: int) -> Peer:
    """Raises RuntimeError where it can't be installed."""
    python = make("vllm")
    cores = sorted(os.sched_getaffinity(0))
    bound = {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "OMP_NUM_THREADS": str(len(cores)),
        "VLLM_CPU_KVCACHE_SPACE": str(cache_gib),
        "VLLM_CACHE_ROOT": str(CACHE / "vllm"),  # it compiles its graph once
    }
    argv = [str(python), str(PEERS / "generate_vllm.py"), str(model.source), str(sequences_max)]
    return Peer("vllm", argv, bound)


def transformers(model: Model, dtype: str) -> Peer:
    argv = [str(make("compile")), str(PEERS / "generate_torch.py"), str(model.source), dtype]
    return Peer(f"transformers-{dtype}", argv, {})
