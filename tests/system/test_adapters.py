"""Adapter components through boto3, against a real server and a real engine: LoRA on one base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from botocore.exceptions import ClientError
from tests.kit.adapter_files import pairs, write_adapter, write_merged
from tests.kit.components import ComponentSite
from tests.kit.generation_models import greedy, write_model
from tests.kit.polling import wait_until
from tests.kit.repeating import Repeating
from tests.kit.servers import Server

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")
pytestmark = [pytest.mark.system, pytest.mark.integration]

TOKENS = 12
ASKED = {"inputs": "Hello", "parameters": {"max_new_tokens": TOKENS, "details": True}}
FIRST, SECOND = pairs(1), pairs(2, ("q_proj", "up_proj"), rank=8)
NEEDS = {"MinMemoryRequiredInMb": 256, "NumberOfCpuCoresRequired": 0.5}


class AdapterSite(ComponentSite):
    """With a base `chat` on endpoint `shop`, and adapters beside it on the disk."""

    def __init__(self, server: Server, folder: Path) -> None:
        super().__init__(server, folder)
        self.endpoint(InitialInstanceCount=2)
        server.model("chat", write_model(folder / "base"))
        write_adapter(folder / "first", FIRST)
        write_adapter(folder / "second", SECOND)
        self.component("chat", "chat", ComputeResourceRequirements=NEEDS)
        self.serves("chat")

    def adapter(self, name: str, artifact: str, base: str = "chat") -> dict[str, Any]:
        self.client.create_inference_component(
            InferenceComponentName=name, EndpointName="shop",
            Specification=self.specification(artifact, base),
        )  # fmt: skip
        return self.settled(name)

    def specification(self, artifact: str, base: str = "chat") -> dict[str, Any]:
        url = (self.folder / artifact).as_uri()
        return {"BaseInferenceComponentName": base, "Container": {"ArtifactUrl": url}}

    def tokens(self, component: str) -> list[int]:
        [answer] = self.server.invoke("shop", ASKED, InferenceComponentName=component)
        return [each["id"] for each in answer["details"]["tokens"]]

    def expected(self, *names: str) -> dict[str, list[int]]:
        """What a model of its own answers, for each."""
        from tests.instance.test_generation_serving import prompt_ids

        given = {"first": FIRST, "second": SECOND}
        found = {}
        for name in names:
            folder = self.folder / "base"
            if name in given:
                folder = write_merged(self.folder / f"merged-{name}", given[name])
            found[name] = greedy(folder, prompt_ids("Hello"), TOKENS)
        assert len({str(each) for each in found.values()}) == len(names)
        return found

    def phases(self) -> dict[str, list[str]]:
        return {name: sorted(states) for name, states in self.states().items()}


@pytest.fixture
def site(fresh_server: Server, tmp_path: Path) -> AdapterSite:
    return AdapterSite(fresh_server, tmp_path)


def test_adapters_answer_as_their_merged_models_at_every_door_and_go(site: AdapterSite) -> None:
    expected = site.expected("base", "first", "second")
    described = site.adapter("first", "first")
    assert described["InferenceComponentStatus"] == "InService", described
    assert described["Specification"]["BaseInferenceComponentName"] == "chat"
    assert "RuntimeConfig" not in described
    assert described["VariantName"] == "all"
    shutil.make_archive(str(site.folder / "packed"), "gztar", site.folder / "second")
    assert site.adapter("second", "packed.tar.gz")["InferenceComponentStatus"] == "InService"
    for name, tokens in (("chat", "base"), ("first", "first"), ("second", "second")):
        assert site.tokens(name) == expected[tokens]
    texts = {name: whole_text(site, name) for name in ("chat", "first", "second")}
    assert len(set(texts.values())) == 3
    for name, text in texts.items():
        assert streamed_text(site, name) == text
        asked = {"prompt": "Hello", "max_tokens": TOKENS, "temperature": 0}
        path = f"/endpoints/shop/inference-components/{name}/openai/v1/completions"
        for where, body in (
            ("/v1/completions", asked | {"model": f"shop:{name}"}),
            (path, asked | {"model": "any"}),
        ):
            status, answer = site.server.post(where, json.dumps(body).encode())
            assert status == 200, answer
            assert json.loads(answer)["choices"][0]["text"] == text
        generate = json.dumps({"text_input": "Hello", "parameters": {"max_tokens": TOKENS}})
        status, answer = site.server.post(f"/v2/models/shop:{name}/generate", generate.encode())
        assert status == 200, answer
        assert json.loads(answer)["text_output"] == text
    listed = site.client.list_inference_components(EndpointNameEquals="shop")
    assert {one["InferenceComponentName"] for one in listed["InferenceComponents"]} == set(texts)
    with pytest.raises(ClientError, match="Delete its adapters first"):
        site.client.delete_inference_component(InferenceComponentName="chat")
    for name in ("second", "first", "chat"):
        site.delete(name)
    assert site.states() == {"": ["ready", "ready"]} or "chat" not in site.states()


def test_an_adapter_is_on_every_copy_of_its_base_as_these_come_and_go(site: AdapterSite) -> None:
    expected = site.expected("base", "first")
    site.adapter("first", "first")
    site.set_copies("chat", 2)
    wait_until(
        lambda: site.phases() == {"chat": ["ready"] * 2, "first": ["ready"] * 2},
        "both are on both instances",
        90,
    )
    assert [site.tokens("first") for _ in range(6)] == [expected["first"]] * 6
    site.set_copies("chat", 0)
    wait_until(lambda: "chat" not in site.states(), "the base has no copy", 60)
    assert "first" not in site.states()
    assert site.describe("first")["InferenceComponentStatus"] == "InService"
    site.set_copies("chat", 1)
    assert site.tokens("first") == expected["first"]  # it was held until there was a copy


def test_an_update_of_an_adapter_and_one_of_its_base_lose_no_request(site: AdapterSite) -> None:
    """Every answer is of the one or the other; none is an error, and none of the base alone."""
    expected = site.expected("base", "first", "second")
    site.adapter("own", "first")
    found: list[list[int]] = []
    with Repeating(lambda: found.append(site.tokens("own")), threads=3):
        wait_until(lambda: len(found) > 5, "requests are answered", 60)
        site.client.update_inference_component(
            InferenceComponentName="own", Specification=site.specification("second")
        )
        site.serves("own")
        wait_until(lambda: found[-1] == expected["second"], "the new one answers", 60)
        changed = {"ModelName": "chat", "ComputeResourceRequirements": NEEDS}
        site.client.update_inference_component(InferenceComponentName="chat", Specification=changed)
        assert "FailureReason" not in site.serves("chat")
        before = len(found)
        wait_until(lambda: len(found) > before + 5, "more are answered", 60)
    assert [one for one in found if one not in (expected["first"], expected["second"])] == []
    first_new = found.index(expected["second"])
    late = [one for one in found[first_new:] if one == expected["first"]]
    assert len(late) <= 3, "those that were under way, and no other"


def test_an_adapter_is_held_to_the_answers_of_the_one_before(site: AdapterSite) -> None:
    """Both are on the one copy of their base meanwhile, and no request is lost."""
    expected = site.expected("first", "second")
    write_adapter(site.folder / "same", FIRST)
    arn = site.adapter("own", "first")["InferenceComponentArn"]
    words = "text tolerance=0 disagree=0.1 errors=0.1 slower=0"
    site.client.add_tags(ResourceArn=arn, Tags=[{"Key": "penstock:agreement", "Value": words}])

    def update(artifact: str) -> dict[str, Any]:
        site.client.update_inference_component(
            InferenceComponentName="own",
            Specification=site.specification(artifact),
            DeploymentConfig={
                "RollingUpdatePolicy": {
                    "MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1},
                    "WaitIntervalInSeconds": 3600,
                }
            },
        )
        return site.serves("own")

    found: list[list[int]] = []
    with Repeating(lambda: found.append(site.tokens("own")), threads=3):
        back = update("second")
        assert "answers disagree (sure to 99" in back["FailureReason"]
        assert back["Specification"]["Container"]["ArtifactUrl"].endswith("/first")
        taken = update("same")
        assert "FailureReason" not in taken
        assert taken["Specification"]["Container"]["ArtifactUrl"].endswith("/same")
    told = site.server.get("/admin/endpoints/shop/rollout?component=own")
    assert told["old"]["source"].endswith("/same")
    assert told["agreement"]["verdict"] == "as-good"
    assert told["agreement"]["pairs"]["differ"] == 0
    assert {str(one) for one in found} == {str(one) for one in expected.values()}
    assert site.tokens("own") == expected["first"]


def test_what_does_not_fit_fails_by_itself_and_its_neighbours_serve_on(site: AdapterSite) -> None:
    expected = site.expected("base", "first")
    site.adapter("first", "first")
    one = np.ones((2, 40), np.float32), np.ones((48, 2), np.float32)
    write_adapter(site.folder / "other", {"model.layers.0.self_attn.q_proj": one})
    failed = site.adapter("other", "other")
    assert failed["InferenceComponentStatus"] == "Failed"
    assert "does not fit its base" in failed["FailureReason"]
    assert "q_proj maps 48 to 48 numbers" in failed["FailureReason"]
    with pytest.raises(ClientError, match="can only be deleted"):
        site.client.update_inference_component(
            InferenceComponentName="other", Specification=site.specification("second")
        )
    site.client.update_inference_component(
        InferenceComponentName="first", Specification=site.specification("other")
    )
    kept = site.settled("first")
    assert kept["InferenceComponentStatus"] == "InService"
    assert "the former specification serves on" in kept["FailureReason"]
    assert kept["Specification"]["Container"]["ArtifactUrl"].endswith("/first")
    assert site.tokens("first") == expected["first"]
    assert site.tokens("chat") == expected["base"]


def test_a_server_that_is_started_again_has_its_adapters_again(site: AdapterSite) -> None:
    expected = site.expected("base", "first")
    site.adapter("first", "first")
    site.server.kill()
    site.server.start()
    again = ComponentSite(site.server, site.folder)
    site.client, site.runtime = again.client, again.runtime
    assert site.tokens("first") == expected["first"]
    assert site.describe("first")["InferenceComponentStatus"] == "InService"


def test_a_base_that_is_no_language_model_says_so(site: AdapterSite) -> None:
    site.model("plain")
    site.component("plain", "plain")
    site.settled("plain")
    failed = site.adapter("odd", "first", base="plain")
    assert failed["InferenceComponentStatus"] == "Failed"
    assert "takes no adapters" in failed["FailureReason"]
    assert site.ask("plain")["name"] == "plain"


def whole_text(site: AdapterSite, component: str) -> str:
    asked = {"inputs": "Hello", "parameters": {"max_new_tokens": TOKENS}}
    [answer] = site.server.invoke("shop", asked, InferenceComponentName=component)
    return str(answer["generated_text"])


def streamed_text(site: AdapterSite, component: str) -> str:
    answer = site.runtime.invoke_endpoint_with_response_stream(
        EndpointName="shop", InferenceComponentName=component, ContentType="application/json",
        Body=json.dumps({"inputs": "Hello", "parameters": {"max_new_tokens": TOKENS}}).encode(),
    )  # fmt: skip
    pieces = [event["PayloadPart"]["Bytes"] for event in answer["Body"]]
    return str(json.loads(pieces[-1][len(b"data:") :])["generated_text"])
