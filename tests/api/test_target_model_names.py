"""One word for a model: `endpoint`, or `endpoint:target` with whatever the target's name holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.access import asked_of
from penstock.api.model_names import (
    ModelName,
    OipTarget,
    endpoint_of,
    model_target,
    parse,
    parts_of,
    repository_target,
)
from penstock.errors import CallerError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shop", ModelName("shop")),
        ("shop:a", ModelName("shop", "a")),
        ("shop:team/a.tar.gz", ModelName("shop", "team/a.tar.gz")),
        ("shop:a:b", ModelName("shop", "a:b")),
        ("shop:a b", ModelName("shop", "a b")),
        ("", ModelName("")),
    ],
)
def test_the_first_colon_ends_the_endpoint(name: str, expected: ModelName) -> None:
    assert parse(name) == expected
    assert str(expected) == name
    assert endpoint_of(name) == expected.endpoint


@pytest.mark.parametrize("target", ["", " a", "\x00", "a\n", "ä", "a" * 1025])
def test_what_awss_own_model_refuses_as_a_target_is_refused(target: str) -> None:
    with pytest.raises(CallerError) as raised:
        parse(f"shop:{target}")
    assert raised.value.code == "target-model-invalid"


TEAM = ModelName("shop", "team/a")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("models/shop/infer", OipTarget(ModelName("shop"), "", "infer")),
        ("models/shop/versions/3/infer", OipTarget(ModelName("shop"), "3", "infer")),
        ("models/shop/versions/3", OipTarget(ModelName("shop"), "3", "")),
        ("models/shop", OipTarget(ModelName("shop"), "", "")),
        ("models/shop/", OipTarget(ModelName("shop"), "", "")),
        ("models/shop:a/infer", OipTarget(ModelName("shop", "a"), "", "infer")),
        ("models/shop%3Ateam/a/infer", OipTarget(TEAM, "", "infer")),  # as tritonclient writes it
        ("models/shop:team%2Fa/infer", OipTarget(TEAM, "", "infer")),
        ("models/shop:team/a", OipTarget(TEAM, "", "")),
        ("models/shop:team/a/versions/1/ready", OipTarget(TEAM, "1", "ready")),
        ("models/shop:team/a/versions/1", OipTarget(TEAM, "1", "")),
        ("models/shop:infer", OipTarget(ModelName("shop", "infer"), "", "")),
        ("models/shop:versions/1", OipTarget(ModelName("shop", "versions/1"), "", "")),
        ("models/shop:team/ready", OipTarget(ModelName("shop", "team"), "", "ready")),
        ("models/shop:team%2Fready", OipTarget(ModelName("shop", "team/ready"), "", "")),
        ("models/shop:a/generate_stream", OipTarget(ModelName("shop", "a"), "", "generate_stream")),
    ],
)
def test_a_path_is_read_from_its_end_where_a_target_may_hold_slashes(
    path: str, expected: OipTarget
) -> None:
    raw = f"/v2/{path}".encode()
    assert model_target(parts_of(raw)[1:], raw) == expected


@pytest.mark.parametrize(
    "path", ["models//infer", "models/shop/x:a/infer", "models/shop/elsewhere"]
)
def test_other_paths_are_not_of_the_protocol(path: str) -> None:
    raw = f"/v2/{path}".encode()
    with pytest.raises(CallerError) as raised:
        model_target(parts_of(raw)[1:], raw)
    assert raised.value.status == 404


def test_the_repositorys_paths_name_a_model_and_what_is_to_become_of_it() -> None:
    for path, expected in {
        "shop:team/a/load": OipTarget(TEAM, "", "load"),
        "shop%3Ateam%2Fa/unload": OipTarget(TEAM, "", "unload"),
        "shop/load": OipTarget(ModelName("shop"), "", "load"),
        "shop:load/load": OipTarget(ModelName("shop", "load"), "", "load"),
    }.items():
        raw = f"/v2/repository/models/{path}".encode()
        assert repository_target(parts_of(raw)[2:], raw) == expected
    for path in ("", "load", "/load", "shop", "shop/other:a/load", "shop/index", "/a:b/load"):
        raw = f"/v2/repository/models/{path}".encode()
        with pytest.raises(CallerError):
            repository_target(parts_of(raw)[2:], raw)


WORDS = "shop bank shop:a bank:b a : %3A %2F infer load unload versions 1 ready models repository"
PARTS = st.lists(st.sampled_from([*WORDS.split(), "stats", "..", "%2e%2e", "%25", ""]), max_size=7)


@given(PARTS, st.sampled_from(["models", "repository/models"]))
def test_who_may_ask_is_decided_of_the_endpoint_that_is_asked(parts: list[str], room: str) -> None:
    """A key of one endpoint must not reach another by a path that two readers read differently."""
    raw = f"/v2/{room}/{'/'.join(parts)}".encode()
    split = parts_of(raw)
    try:
        if room == "models":
            if len(split) < 2 or split[1:] == ["stats"]:
                return
            target = model_target(split[1:], raw)
        else:
            target = repository_target(split[2:], raw)
    except CallerError:
        return
    assert asked_of("POST", raw, ()).endpoint == target.model.endpoint
