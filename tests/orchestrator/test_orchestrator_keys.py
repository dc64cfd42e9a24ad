"""With --auth an orchestrator asks for keys of its own; a region never sees them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.kit.polling import until
from tests.orchestrator.region_site import ScriptedRegion, site

from penstock.control.access.keys import AccessKeys
from penstock.control.store.store import Store
from penstock.core.request.grants import Grant

PATH = "/endpoints/echo/invocations"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_who_has_no_key_of_the_orchestrator_is_not_passed_on(tmp_path: Path) -> None:
    state = tmp_path / "orchestrator"
    state.mkdir()
    store = Store(state)
    keys = AccessKeys(store, state)
    asks = keys.create_bearer_key("", now=0.0, grant=Grant("invoke")).secret
    operates = keys.create_bearer_key("", now=0.0, grant=Grant("operate"))
    region = ScriptedRegion("eu", key="psk_region")
    (tmp_path / "eu.key").write_text("psk_region")

    async def scenario() -> None:
        more = {"eu": {"key_file": "eu.key"}}
        async with site(tmp_path, regions=[region], more=more, auth=True, wait=False) as here:
            assert (await here.ask()).status == 403
            assert region.asked == []

            async def served() -> bool:
                return (await here.ask(headers=bearer(asks))).status == 200

            await until(served, "a key opens the way to the region")
            assert region.asked[-1].headers["authorization"] == "Bearer psk_region"
            for method, path, token, status in (
                ("GET", "/penstock/v1/regions", asks, 403),
                ("PUT", "/penstock/v1/ratios", asks, 403),
                ("GET", "/penstock/v1/regions", operates.secret, 200),
                ("GET", "/metrics", operates.secret, 200),
                ("GET", "/ping", "", 200),
            ):
                answer = await here.ask(path, b"", method=method, headers=bearer(token))
                assert answer.status == status, path
            keys.delete(operates.key_id)

            async def closed() -> bool:
                answer = await here.ask(
                    "/metrics", b"", method="GET", headers=bearer(operates.secret)
                )
                return answer.status == 403

            await until(closed, "a deleted key opens nothing any more")

    asyncio.run(scenario())
    store.close()
