"""Where endpoint steps find their platform, and who must not see its key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.artifacts.description.description import ModelDescription
from penstock.errors import ModelError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.pipeline import platform as pipeline_platform
from penstock.runtimes.pipeline.platform import platform_of, seen_by_artifacts

TOLD = {"url": "http://127.0.0.1:8080", "key": "ours"}
VARIABLES = ("PENSTOCK_URL", "PENSTOCK_KEY", "PENSTOCK_CERTIFICATE")


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "of a shell")


def context(**environment: str) -> LoadContext:
    return LoadContext(
        model_dir=Path("artifact"),
        description=ModelDescription(runtime="python", task="payload", file="pipeline.yaml"),
        endpoint_name="e", variant_name="v", cores=1.0, memory_bytes_max=0,
        environment=environment,
    )  # fmt: skip


def test_the_server_says_where_it_is() -> None:
    pipeline_platform.tell(TOLD)
    assert platform_of(context(), "answer", "chat") == ("http://127.0.0.1:8080", "ours", None)


def test_a_platform_that_the_model_names_gets_its_own_key_and_never_ours() -> None:
    pipeline_platform.tell(TOLD)
    other = context(PENSTOCK_URL="http://elsewhere:1/")
    assert platform_of(other, "answer", "chat") == ("http://elsewhere:1", "", None)
    keyed = context(PENSTOCK_URL="http://elsewhere:1", PENSTOCK_KEY="theirs")
    assert platform_of(keyed, "answer", "chat").key == "theirs"


def test_what_a_shell_had_is_not_taken_for_it() -> None:
    pipeline_platform.tell({})
    assert [name for name in VARIABLES if name in os.environ] == []
    with pytest.raises(ModelError, match="step 'answer' asks the endpoint 'chat'"):
        platform_of(context(), "answer", "chat")


def test_an_artifacts_files_see_neither_address_nor_key() -> None:
    pipeline_platform.tell(TOLD)
    seen = seen_by_artifacts(context(CATALOGUE="127.0.0.1:1"))
    assert seen["CATALOGUE"] == "127.0.0.1:1"
    assert [name for name in seen if name.startswith("PENSTOCK_")] == []


def test_a_certificate_that_is_gone_is_named() -> None:
    pipeline_platform.tell({"url": "https://127.0.0.1:1", "certificate": "gone.pem"})
    with pytest.raises(ModelError, match="can't be read"):
        platform_of(context(), "answer", "chat")
