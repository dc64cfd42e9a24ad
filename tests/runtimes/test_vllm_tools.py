"""vLLM's own tool parsers behind our interface, under vLLM's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.kit.environments import python_of
from tests.kit.generation_models import write_weights

from penstock.runtimes.vllm.tools import options_of

TOUR = Path(__file__).with_name("vllm_tools_tour.py")
SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"tool_call_parser": "hermes"}, "hermes"),
        ({"tool-call-parser": "hermes", "enable-auto-tool-choice": "true"}, "hermes"),
        ({"tool_call_parser": "hermes", "enable_auto_tool_choice": False}, ""),
        ({"enable_auto_tool_choice": True}, ""),
        ({}, ""),
    ],
)
def test_the_options_of_vllms_server_name_the_parser(options: dict[str, object], name: str) -> None:
    """And do not reach its engine, which would refuse them."""
    assert options_of({"dtype": "float32", **options}) == (name, {"dtype": "float32"})


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_calls_are_found_in_a_text_that_comes_bit_by_bit(tmp_path: Path) -> None:
    python = python_of("vllm")
    folder = write_weights(tmp_path / "model")
    done = subprocess.run(
        [str(python), str(TOUR), str(folder)],
        env=os.environ | {"PYTHONPATH": str(SOURCE), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=False, timeout=540,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    both = [[True, "weather", {"city": "Zürich"}], [True, "weather", {"city": "Bern"}]]
    content, calls = seen["auto"]
    assert (content.strip(), calls) == ("Hm.", both)
    assert seen["one"][1] == both[:1]
    content, calls = seen["none"]
    assert (content.count("<tool_call>"), calls) == (2, [])
    assert seen["text"] == ["No <tool is called.", []]
    assert seen["unknown"] == "engine-options"
