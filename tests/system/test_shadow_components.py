"""A component that is the shadow of another one of its endpoint, as unmodified boto3 asks for it:
it gets copies of the callers' requests, and whatever it does with them, callers get the other's
answers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from tests.kit.components import SMALL, ComponentSite
from tests.kit.polling import wait_until
from tests.kit.python_models import ECHO, python_model
from tests.kit.servers import Server, penstock
from tests.system.test_shadows import DARK

from penstock.core.deployment.shadow_tag import TAG

pytestmark = pytest.mark.system


_OUTCOMES = ("mirrored", "dropped")


class ShadowedSite(ComponentSite):
    """Component `of` says back what it is sent; `name` fails as it is asked to. Each test has names
    of its own: metrics outlive their component."""

    of, name = "quote", "quote-next"

    def begin(self, shadow: str = "") -> None:
        """`shadow`: what `name` is from its creation on."""
        self.endpoint()
        for name, code in ((self.of, ECHO), (self.name, DARK)):
            self.server.model(name, python_model(self.folder / name, code))
        self.component(self.of, self.of)
        self.client.create_inference_component(
            InferenceComponentName=self.name, EndpointName="shop", VariantName="all",
            Specification={"ModelName": self.name, "ComputeResourceRequirements": SMALL},
            RuntimeConfig={"CopyCount": 1}, Tags=[{"Key": TAG, "Value": shadow}] if shadow else [],
        )  # fmt: skip
        for name in (self.of, self.name):
            self.serves(name, copies=1)

    def arn(self, name: str) -> str:
        return str(self.describe(name)["InferenceComponentArn"])

    def tag(self, value: str) -> None:
        tags = [{"Key": TAG, "Value": value}]
        self.client.add_tags(ResourceArn=self.arn(self.name), Tags=tags)

    def answers(self, component: str) -> str:
        """What it answers a caller, or the error."""
        try:
            return str(self.server.invoke("shop", "who", InferenceComponentName=component))
        except ClientError as error:
            return str(error)

    def says(self, text: str, count: int = 1) -> None:
        for _ in range(count):
            assert self.server.invoke("shop", text, InferenceComponentName=self.of) == text

    def refuses(self, why: str) -> None:
        """A call of `name` itself; gateways hear of a change a moment later."""

        wait_until(lambda: why in self.answers(self.name), why, 30)

    def counted(self, metric: str, component: str, **labels: str) -> float:
        """On the page of metrics, of all other labels."""
        wanted = {"endpoint": "shop", "component": component} | labels
        rows = [
            line
            for line in self.server.page().splitlines()
            if line.startswith(f"penstock_{metric}_total{{")
            and all(f'{name}="{value}"' in line for name, value in wanted.items())
        ]
        return sum(float(row.rpartition(" ")[2]) for row in rows)

    def copied(self, count: int) -> tuple[float, float]:
        """Of so many requests for `of`: how many were copied, and how many were dropped though
        they were sampled; once all copies are over."""
        wait_until(lambda: self.counted("requests", self.of) == count, "all requests", 30)
        mirrored = self.counted("shadow_mirrored", self.name)
        over = lambda: self.counted("requests", self.name, door="shadow") == mirrored  # noqa: E731
        wait_until(over, "the copies' end", 90)
        return self.sampled()

    def sampled(self) -> tuple[float, float]:
        """How many requests were copied so far, and how many were dropped."""
        copied, dropped = (self.counted(f"shadow_{one}", self.name) for one in _OUTCOMES)
        return copied, dropped

    def summed(self, metric: str, **dimensions: str) -> float:
        return sum(self.server.datapoints(metric, "Sum", **dimensions))


@pytest.fixture
def site(empty_server: Server, tmp_path: Path) -> ShadowedSite:
    return ShadowedSite(empty_server, tmp_path)


def test_it_gets_what_callers_ask_the_other_one_and_no_caller_asks_it(site: ShadowedSite) -> None:
    site.begin("quote share=0.5")
    site.refuses(
        "Inference component quote-next of endpoint shop answers no caller: it is the shadow of"
    )
    names = [one["id"] for one in site.server.get("/v1/models")["data"]]
    status, index = site.server.post("/v2/repository/index", b"{}")
    assert status == 200
    assert b'"shop:quote"' in index
    assert b"shop:quote-next" not in index
    assert not any("next" in name for name in names)
    count = 200
    site.says("who", count)
    mirrored, dropped = site.copied(count)
    assert abs(mirrored + dropped - count / 2) < 4 * math.sqrt(count / 4)
    assert mirrored > 0
    wait_until(
        lambda: (
            site.summed("Invocations", InferenceComponentName="quote") == count
            and site.summed("Invocations", InferenceComponentName="quote-next") == mirrored
        ),
        "the metrics of both", 60,
    )  # fmt: skip
    shown = penstock("status", "shop", "--json", server=site.server).stdout
    assert json.loads(shown)["shadows"] == {"quote-next": "quote share=0.5"}
    # It answers callers again once it is no shadow.
    site.client.delete_tags(ResourceArn=site.arn("quote-next"), TagKeys=[TAG])
    wait_until(lambda: site.answers("quote-next") == "dark", "an answer of its own", 30)
    site.says("who", 20)
    assert site.counted("shadow_mirrored", "quote-next") == mirrored


def test_whatever_it_does_and_whatever_happens_to_it_callers_do_not_see(
    site: ShadowedSite,
) -> None:
    site.of, site.name = "talk", "talk-next"
    site.begin()
    assert site.answers("talk-next") == "dark"
    site.tag("talk")
    site.refuses("answers no caller")
    texts = ["raise", "slow", "die"]
    for text in texts:
        site.says(text, 15)
    mirrored, dropped = site.copied(45)
    assert mirrored + dropped == 45
    assert mirrored >= len(texts)
    assert site.server.in_flight("shop") == 0
    # A server that starts again knows it.
    site.server.kill()
    site.server.start()
    for name in ("talk", "talk-next"):
        site.serves(name, copies=1)
    site.refuses("answers no caller")
    site.says("who", 5)
    before = site.copied(5)
    assert sum(before) == 5
    # Its update is an update like any other.
    site.server.model("talk-newer", python_model(site.folder / "talk-newer", ECHO))
    site.client.update_inference_component(
        InferenceComponentName="talk-next",
        Specification={"ModelName": "talk-newer", "ComputeResourceRequirements": SMALL},
    )
    assert site.serves("talk-next", copies=1)["Specification"]["ModelName"] == "talk-newer"
    site.refuses("answers no caller")
    site.says("who", 5)
    assert sum(site.copied(10)) == 10
    # Without the other one it gets nothing, and says so; nothing is stuck.
    site.delete("talk")
    assert "which is no component of endpoint 'shop'" in site.describe("talk-next")["FailureReason"]
    site.refuses("answers no caller")
    site.component("talk", "talk")
    assert "FailureReason" not in site.serves("talk-next")
    site.serves("talk", copies=1)
    site.says("who", 5)
    wait_until(lambda: sum(site.sampled()) == 15, "copies again", 30)
    site.delete("talk-next")
    site.says("who", 5)
