"""Weights from Hugging Face, deployed as they are: compiled by the instance, once per content."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import tiny_models
import torch
import transformers
from tests.kit.servers import Server

from penstock.compile.targets import AUTO, target_of

LABELS = {0: "buy", 1: "track", 2: "return"}
#: What a format may differ by: that which this processor gets without being asked.
APART = target_of(AUTO).tolerance.difference_max
TEXT = "where is my package"


def compiled(server: Server) -> list[Path]:
    return list((server.state_dir / "cache" / "compiled-models").glob("*/model.yaml"))


def test_a_directory_is_compiled_on_deploy_and_never_again(tmp_path: Path) -> None:
    """On an instance with 1 GiB, which importing PyTorch alone would nearly fill."""
    source = tmp_path / "intent"
    model = tiny_models.save(source, "bert", id2label=LABELS)
    server = Server(tmp_path / "state").start()
    try:
        server.deploy("first", source)
        status, body = server.post(
            "/endpoints/first/invocations", json.dumps({"inputs": TEXT}).encode()
        )
        assert status == 200, body
        answer = json.loads(body)[0]
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(source / "tokenizer.json")
        )
        with torch.inference_mode():
            logits = model(**tokenizer(TEXT, return_tensors="pt")).logits[0]
        assert answer["label"] == LABELS[int(logits.argmax())]
        assert answer["score"] == pytest.approx(float(logits.softmax(-1).max()), abs=APART)

        (entry,) = compiled(server)
        made = os.stat(entry).st_mtime_ns
        shutil.copytree(source, tmp_path / "elsewhere")
        server.deploy("second", tmp_path / "elsewhere")
        status, again = server.post(
            "/endpoints/second/invocations", json.dumps({"inputs": TEXT}).encode()
        )
        assert (status, again) == (200, body)
        assert compiled(server) == [entry]
        assert os.stat(entry).st_mtime_ns == made
    finally:
        assert server.stop() == 0, server.log()
