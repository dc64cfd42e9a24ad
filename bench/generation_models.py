"""The language models that the generation benchmarks run, their prompts, and how they are deployed.

Models have real shapes and random weights, made once into `.cache/bench-generate` by a seed
(`peers/generate_prepare.py`). Prompts are sentences of words that are single tokens wherever they
stand, so that a text has exactly as many tokens as it has words, and no two share a beginning
unless they are meant to.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import copytree
from typing import Any

import boto3
from tokenizers import Tokenizer

from bench.processes import VENVS, peer_python
from bench.report import ROOT

CACHE = ROOT / ".cache" / "bench-generate"
PEERS = Path(__file__).parent / "peers"


class Model:
    """`source`: Hugging Face's format, BF16. `artifact`: ours, INT8 weights."""

    def __init__(self, shape: str) -> None:
        folder = CACHE / shape
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / f"{shape}.log").open("w") as log:
            made = subprocess.run(
                [str(compiler()), str(PEERS / "generate_prepare.py"), str(folder), shape],
                check=False, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            )  # fmt: skip
        if made.returncode:
            raise RuntimeError(f"the model was not made: see {log.name}")
        self.shape = shape
        self.source, self.artifact = folder / "source", folder / "artifact"
        self._words: list[str] = json.loads((folder / "words.json").read_text())
        self._tokenizer = Tokenizer.from_file(str(self.artifact / "tokenizer.json"))

    def text(self, tokens: int, chance: random.Random) -> str:
        return "".join(chance.choices(self._words, k=tokens))

    def ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def decoded(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


def cache_mb(model: Model, tokens: int) -> int:
    """MiB of a cache that holds so many tokens: 8 bits a number, and 8 bytes for each head."""
    config = json.loads((model.artifact / "config.json").read_text())
    heads: int = config["num_hidden_layers"] * config["num_key_value_heads"] * 2
    return -int(-tokens * heads * (config["head_dim"] + 8) // (1 << 20))


def compiler() -> Path:
    """Python of the environment that has the extra `compile`."""
    if (VENVS / "compile" / "bin" / "python").exists():
        return VENVS / "compile" / "bin" / "python"
    return peer_python("compile", "-e", f"{ROOT}[compile]")


@contextlib.contextmanager
def with_engine(artifact: Path, **engine: Any) -> Iterator[Path]:
    """A copy of the artifact with settings of its engine; everything else stays."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(copytree(artifact, Path(folder, "artifact")))
        described = copy / "model.yaml"
        text = described.read_text()
        for name, value in engine.items():
            line = f"  {name}: {value}"
            text, changed = re.subn(rf"(?m)^  {name}: .*$", line, text)
            if not changed:
                text = text.replace("engine:\n", f"engine:\n{line}\n", 1)
        described.write_text(text)
        yield copy


def deploy(
    base_url: str,
    name: str,
    folder: Path,
    *,
    copies: int = 1,
    instance_type: str = "ml.local.medium",
    routing: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Returns when the endpoint is in service."""
    client = _sagemaker(base_url)
    container = {"ModelDataUrl": folder.as_uri(), "Environment": dict(environment or {})}
    client.create_model(ModelName=name, PrimaryContainer=container)
    variant: dict[str, Any] = {
        "VariantName": "all",
        "ModelName": name,
        "InstanceType": instance_type,
        "InitialInstanceCount": copies,
    }
    if routing:
        variant["RoutingConfig"] = dict(routing)
    client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    waiter = client.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})


def _sagemaker(base_url: str) -> Any:
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
    return boto3.client("sagemaker", endpoint_url=base_url, region_name="us-east-1", **keys)
