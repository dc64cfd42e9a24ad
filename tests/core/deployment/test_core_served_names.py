"""`core/deployment/served_names.py`: what tags say, what can't be served, which tags add a name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.apply.plan import ENDPOINT_NAME
from penstock.core.deployment.served_names import (
    MODELS,
    TAG,
    check,
    endpoints_named_by,
    legal_endpoint_name,
    listed,
    of_tags,
    tags_for,
)
from penstock.errors import CallerError

#: Names of models as they are in public repositories and hubs.
REAL = (
    "densenet_onnx", "inception_graphdef", "simple_identity", "yolov8n.v2", "ensemble_dali",
    "Qwen/Qwen3-0.6B", "sentence-transformers/all-MiniLM-L6-v2", "llama3.2:1b-instruct-q4_K_M",
    "gpt-4o-mini", "ft:gpt-3.5-turbo:my-org::7p4lURel", "123_model", "_private", "m@2",
    "infer", "a.versions",
)  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_models_are_served_under_the_names_that_they_have(name: str) -> None:
    check({TAG: name})
    assert of_tags({TAG: name}) == {name: ""}


def test_a_tag_has_several_names_a_target_and_keys_of_its_own_for_more() -> None:
    tags = {
        TAG: "a_1 Qwen/Qwen3-0.6B",
        f"{TAG}:2": "resnet=team/resnet.tar.gz",
        f"{TAG}:all": MODELS,
        f"{TAG}s": "no_name",
        "team": "no_name",
    }
    check(tags)
    assert of_tags(tags) == {
        "a_1": "", "Qwen/Qwen3-0.6B": "", "resnet": "team/resnet.tar.gz", MODELS: "",
    }  # fmt: skip
    assert MODELS not in listed(of_tags(tags))


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("", "no name"),
        (" ", "no name"),
        ("/a", "no model's name"),
        ("a/", "no model's name"),
        ("a//b", "no model's name"),
        ("../a", "no model's name"),
        ("a/..", "no model's name"),
        ("-a", "no model's name"),
        ("ä", "no model's name"),
        ("a" * 257, "no model's name"),
        ("=target", "no model's name"),
        ("@all", "no model's name"),
        ("a/infer", "'infer'"),
        ("a/versions/1", "'versions'"),
        ("a/load", "'load'"),
        ("stats", "path of the protocol"),
        ("a a", "twice"),
        ("a A", "twice"),
        ("a=x a=y", "twice"),
    ],
)
def test_what_a_path_or_another_name_could_be_is_refused(value: str, word: str) -> None:
    with pytest.raises(CallerError) as raised:
        check({TAG: value})
    assert raised.value.code == "served-name-invalid"
    assert word in raised.value.message


def test_a_name_may_be_as_long_as_a_tags_value() -> None:
    check({TAG: "a" * 256})


def test_tags_of_before_that_name_nothing_are_passed_over() -> None:
    assert of_tags({TAG: "a/infer good", f"{TAG}:2": "good=x"}) == {"good": ""}


@given(st.lists(st.sampled_from([*REAL, "r=t", MODELS]), max_size=6), st.integers(0, 3))
def test_added_names_are_beside_those_that_there_were(names: list[str], before: int) -> None:
    tags = tags_for(REAL[:before], {})
    added = tags_for(names, tags)
    assert not tags.keys() & added.keys()
    check(tags | added)
    expected = of_tags({TAG: " ".join((*REAL[:before], *names))})
    assert of_tags(tags | added) == expected
    assert tags_for(names, tags | added) == {}


def test_the_first_name_has_the_plain_tag() -> None:
    assert tags_for(["a", "b=c", "d"], {}) == {TAG: "a", f"{TAG}:2": "b=c", f"{TAG}:3": "d"}


@given(st.text() | st.sampled_from(REAL))
def test_the_nearest_endpoints_name_is_one_that_sagemaker_allows(name: str) -> None:
    legal = legal_endpoint_name(name)
    assert not legal or ENDPOINT_NAME.fullmatch(legal)


def test_a_name_stays_readable_as_an_endpoints() -> None:
    assert legal_endpoint_name("densenet_onnx") == "densenet-onnx"
    assert legal_endpoint_name("Qwen/Qwen3-0.6B") == "Qwen-Qwen3-0-6B"
    assert legal_endpoint_name("_" * 70) == ""
    assert legal_endpoint_name("a" * 70) == "a" * 63


def test_a_name_with_colons_would_be_several_endpoints() -> None:
    assert endpoints_named_by("Shop:a:b") == ["shop:a:b", "shop", "shop:a"]
