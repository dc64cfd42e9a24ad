"""A model's other names are for the regions where its endpoint has them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.kit.polling import until
from tests.orchestrator.region_site import OrchestratorSite, ScriptedRegion, site

from penstock.control.access.keys import AccessKeys
from penstock.control.store.store import Store
from penstock.core.request.grants import Grant

NAMES = {"densenet_onnx": "", "q/q:8b": "", "resnet": "team/resnet"}


def regions() -> list[ScriptedRegion]:
    """Only one has the endpoint; any could answer that it knows no such model."""
    named = ScriptedRegion("eu", load={"served_names": NAMES, "copies": 1})
    return [named, ScriptedRegion("us", rooms={"other": 8})]


async def answered_by(here: OrchestratorSite, name: str, **headers: str) -> set[str]:
    body = json.dumps({"model": name}).encode()
    large = json.dumps({"messages": "x" * 200_000, "model": name}).encode()
    found = set()
    for path, sent in (
        (f"/v2/models/{name}/infer", b"{}"),
        ("/v1/completions", body),
        ("/v1/completions", large),
    ):
        answer = await here.ask(path, sent, headers=headers)
        found.add(answer.headers.get("x-penstock-region", str(answer.status)))
    return found


@pytest.mark.parametrize("name", [*NAMES, "densenet_onnx:target"])
def test_a_name_goes_to_a_region_whose_endpoint_has_it(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        async with site(tmp_path, regions=regions(), wait=False) as here:
            await here.wait_serving("eu")
            await here.wait_serving("us", endpoint="other")
            for _ in range(4):
                assert await answered_by(here, name) == {"eu"}
            assert {one.path for one in here.regions["eu"].asked} >= {f"/v2/models/{name}/infer"}
            assert not here.regions["us"].asked
            here.regions["eu"].load = {"copies": 1}

            async def forgotten() -> bool:
                return "us" in await answered_by(here, name)

            await until(forgotten, "a name that its endpoint lost")

    asyncio.run(scenario())


def test_a_key_is_for_the_endpoint(tmp_path: Path) -> None:
    state = tmp_path / "orchestrator"
    state.mkdir()
    keys = AccessKeys(Store(state), state)
    made = {
        endpoint: keys.create_bearer_key(
            "", now=0.0, grant=Grant("invoke", frozenset({endpoint}))
        ).secret
        for endpoint in ("echo", "densenet_onnx")
    }

    async def scenario() -> None:
        async with site(tmp_path, regions=regions(), auth=True, wait=False) as here:

            async def opened() -> bool:
                token = {"Authorization": f"Bearer {made['echo']}"}
                return await answered_by(here, "densenet_onnx", **token) == {"eu"}

            await until(opened, "the endpoint's key opens")
            other = {"Authorization": f"Bearer {made['densenet_onnx']}"}
            assert await answered_by(here, "densenet_onnx", **other) == {"403"}

    asyncio.run(scenario())


@pytest.mark.parametrize("told", [None, 7, [], {"a": 1}, {"a/infer": ""}, {"": ""}, {"a b": "c"}])
def test_a_region_s_report_is_trusted_only_so_far(tmp_path: Path, told: Any) -> None:
    async def scenario() -> None:
        region = ScriptedRegion("eu", load={"served_names": told, "copies": 1})
        async with site(tmp_path, regions=[region]) as here:
            assert (await here.ask()).status == 200

    asyncio.run(scenario())
