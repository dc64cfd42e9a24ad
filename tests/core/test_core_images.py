"""Which images may be pulled, what names one for good, which are removed again."""

from __future__ import annotations

import pytest

from penstock.core.machine.images import (
    PulledImage,
    PullRoute,
    RegistrySpec,
    is_loopback,
    is_place,
    may_pull,
    registry_of,
    repository_of,
    resolved,
    route_of,
    unused,
    whole_id,
    wrong_platform,
)

ALLOWED = ("docker.io/library/*", "127.0.0.1:5000/team/server:[0-9]")


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("docker.io/library/python:3.12-slim", "allowed"),
        ("docker.io/others/python", "not-allowed"),
        ("127.0.0.1:5000/team/server:1", "allowed"),
        ("127.0.0.1:5000/team/server:latest", "not-allowed"),
        ("127.0.0.1:5001/team/server:1", "not-listed"),
        ("evil.example/docker.io/library/python", "not-listed"),
        ("docker.io.evil.example/library/python", "not-listed"),
        ("python:3.12", "no-registry"),
        ("library/python", "no-registry"),
        ("localhost/mine", "no-registry"),
        ("local://python", "no-registry"),
        ("", "no-registry"),
        ("-v/x", "no-registry"),
        ("--config=a.b/x", "no-registry"),
    ],
)
def test_only_whole_names_that_a_pattern_allows_are_pulled(image: str, reason: str) -> None:
    ruling = may_pull(image, ALLOWED)
    assert (ruling.allowed, ruling.reason) == (reason == "allowed", reason)


def test_a_pattern_has_no_wildcard_for_registries() -> None:
    assert not may_pull("docker.io/library/python", ("*",)).allowed
    assert not may_pull("docker.io/library/python", ("*/library/python",)).allowed
    assert may_pull("docker.io/library/python", ()).reason == "nothing-allowed"


def test_a_registry_is_asked_with_its_login_and_in_its_place_its_mirror_with_its_own() -> None:
    hub = RegistrySpec(host="docker.io", mirror="reg.example/hub")
    ours = RegistrySpec(host="reg.example", user="robot", secret_file="/s")
    known = (hub, ours, RegistrySpec(host="ghcr.io"))
    assert route_of("docker.io/library/x", known) == PullRoute(
        "reg.example", "reg.example/hub", ours
    )
    assert route_of("reg.example/x", known) == PullRoute("reg.example", "", ours)
    assert route_of("ghcr.io/x", known) == PullRoute("ghcr.io", "", None)
    assert route_of("quay.io/x", known) == PullRoute("quay.io", "", None)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("reg.example", True), ("reg.example:5000/hub/x", True), ("127.0.0.1:1", True),
        ("reg", False), ("", False), ("reg.example/", False), ("reg.example/Up", False),
        ('reg.example/x"', False), ("https://reg.example", False), ("reg.example/x:1", False),
    ],
)  # fmt: skip
def test_a_mirror_is_a_place_in_a_registry(text: str, whole: bool) -> None:
    assert is_place(text) == whole


@pytest.mark.parametrize(
    ("platform", "machine", "words"),
    [
        ("linux/amd64", "x86_64", ""),
        ("linux/386", "x86_64", ""),
        ("linux/arm64", "x86_64", "it is made for linux/arm64, and this machine is linux/amd64"),
        ("windows/amd64", "x86_64", "it is made for windows/amd64"),
        ("linux/amd64", "aarch64", "it is made for linux/amd64, and this machine is linux/arm64"),
        ("/", "x86_64", ""),
        ("linux/s390x", "s390x", ""),
    ],
)
def test_an_image_of_another_machine_is_known(platform: str, machine: str, words: str) -> None:
    told = wrong_platform(platform, machine)
    assert told.startswith(words)
    assert bool(told) == bool(words)


def test_what_names_begin_and_end_with() -> None:
    assert registry_of("ghcr.io/a/b") == "ghcr.io"
    assert registry_of("localhost:5000/b") == "localhost:5000"
    assert repository_of("ghcr.io/a/b:1.2") == "ghcr.io/a/b"
    assert repository_of("localhost:5000/b") == "localhost:5000/b"
    assert repository_of("b@sha256:12") == "b"
    loopback = ("localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000", "localhost")
    assert all(map(is_loopback, loopback))
    assert not any(
        map(is_loopback, ("10.0.0.1:5000", "docker.io", "127.0.0.1.evil.example:5000", ""))
    )


def test_a_digest_of_its_own_repository_names_an_image_best() -> None:
    digests = ("other.io/x@sha256:1", "ghcr.io/a/b@sha256:2")
    assert resolved("ghcr.io/a/b:1", "ab12", digests) == "ghcr.io/a/b@sha256:2"
    assert resolved("b:1", "ab12", digests) == "other.io/x@sha256:1"
    assert resolved("b:1", "ab12", ()) == "sha256:ab12"
    assert resolved("b:1@sha256:9", "ab12", ("b@sha256:8",)) == "b@sha256:9"
    assert resolved("b:1", "sha256:ab12", ()) == whole_id("ab12") == "sha256:ab12"


def test_an_image_that_no_model_names_is_unused() -> None:
    pulled = [PulledImage(image=name, id=name) for name in ("c", "a", "b")]
    assert [one.image for one in unused(pulled, {"b"})] == ["a", "c"]
