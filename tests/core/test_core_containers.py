"""Which engine runs containers, what each may use, which are left behind."""

from __future__ import annotations

import pytest

from penstock.core.machine.containers import (
    ContainerObserved,
    ContainerWallsSpec,
    EngineObserved,
    ImageObserved,
    candidates,
    cannot_limit,
    choose_engine,
    container_memory_bytes,
    left_behind,
    scratch_bytes,
    why_it_ended,
    why_unfit,
)

MIB = 2**20
PODMAN = EngineObserved("podman", "4.3.1")
DOCKER = EngineObserved("docker", "27.1")
NO_DAEMON = EngineObserved("docker", fault="Cannot connect to the Docker daemon")


def test_podman_goes_before_docker_and_a_setting_before_both() -> None:
    assert candidates("auto") == ("podman", "docker")
    assert candidates("docker") == ("docker",)
    assert candidates("off") == ()


def test_the_first_engine_that_works_is_chosen_and_what_is_wrong_with_those_before_is_said() -> (
    None
):
    chosen = choose_engine("auto", [PODMAN, NO_DAEMON])
    assert (chosen.engine, chosen.reason) == ("podman", "chosen")
    assert chosen.words == "podman 4.3.1", "nobody misses the other one"
    assert choose_engine("auto", [PODMAN, DOCKER]).words == "podman 4.3.1"
    broken = EngineObserved("podman", fault="no subuid ranges")
    second = choose_engine("auto", [broken, DOCKER])
    assert second.engine == "docker"
    assert second.words == f"{DOCKER.words}; podman: no subuid ranges"


@pytest.mark.parametrize(
    ("choice", "seen", "reason", "words"),
    [
        ("off", [], "switched-off", "images are not run (containers.engine = off)"),
        ("auto", [NO_DAEMON], "none-usable",
         "images are not run: docker: Cannot connect to the Docker daemon"),
        ("auto", [EngineObserved("podman", fault="no answer", silent=True), NO_DAEMON],
         "none-answers",
         "images are not run: podman: no answer; docker: Cannot connect to the Docker daemon"),
        ("auto", [], "none-installed", "images are not run: there is no podman or docker here"),
        ("podman", [], "none-installed", "images are not run: there is no podman here"),
    ],
)  # fmt: skip
def test_no_engine_has_a_reason(
    choice: str, seen: list[EngineObserved], reason: str, words: str
) -> None:
    found = choose_engine(choice, seen)
    assert (found.engine, found.reason, found.words) == ("", reason, words)


def test_a_container_gets_what_its_instance_does_not_take_itself() -> None:
    assert container_memory_bytes(1024 * MIB, 100 * MIB) == (1024 - 100 - 96) * MIB
    assert container_memory_bytes(0, 100 * MIB) == 0, "not limited"
    assert container_memory_bytes(100 * MIB, 100 * MIB) == 32 * MIB, "the least that runs"


def test_the_reason_of_an_end_names_the_limit_where_that_may_be_it() -> None:
    limit = 256 * MIB
    assert why_it_ended(137, out_of_memory=True, memory_bytes=limit) == (
        "the container was killed beyond its limit of memory, 256 MiB"
    )
    assert why_it_ended(137, out_of_memory=False, memory_bytes=limit) == (
        "the container was killed (SIGKILL), maybe beyond its limit of memory, 256 MiB"
    )
    assert why_it_ended(137, out_of_memory=False, memory_bytes=0) == (
        "the container was killed (SIGKILL)"
    )
    assert why_it_ended(3, out_of_memory=False, memory_bytes=limit) == (
        "the container ended with status 3"
    )


def test_containers_of_dead_attendants_are_left_behind() -> None:
    seen = [
        ContainerObserved("c", "7:100"),
        ContainerObserved("b", "8:200"),
        ContainerObserved("a", ""),
    ]
    assert left_behind(seen, {"8:200"}.__contains__) == ("a", "c")


def test_what_may_be_written_is_in_memory_unless_the_root_is_writable() -> None:
    closed = ContainerWallsSpec(scratch=("/var/cache/nginx",))
    assert closed.in_memory(["/data"]) == (
        "/data", "/run", "/tmp", "/var/cache/nginx", "/var/tmp",
    )  # fmt: skip
    assert ContainerWallsSpec(root="writable").in_memory(["/data"]) == ()
    bounded = ContainerWallsSpec(root="writable", root_bytes=2**30)
    assert bounded.in_memory(["/data"]) == ("/data",), "a volume is outside the root's quota"


def test_a_folder_in_memory_takes_half_of_it_at_most() -> None:
    assert scratch_bytes(100 * MIB) == 50 * MIB
    assert scratch_bytes(0) > 0, "bounded without a limit of memory, too"


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (ImageObserved(architecture="amd64"), ""),
        (ImageObserved(), ""),
        (
            ImageObserved(architecture="arm64"),
            "made for linux/arm64, and this machine is linux/amd64",
        ),
        (ImageObserved(architecture="amd64", entry=False), "no entry point"),
    ],
)
def test_what_in_an_image_explains_its_end(image: ImageObserved, words: str) -> None:
    assert words in why_unfit(image, "x86_64")
    assert bool(words) == bool(why_unfit(image, "x86_64"))


def test_an_engine_that_can_limit_nothing_is_of_no_use() -> None:
    """Podman without root starts containers all the same where control groups are not its own."""
    assert cannot_limit(["cpuset", "memory", "pids"]) == ""
    assert "can't limit memory and pids" in cannot_limit([])
    assert "can't limit pids" in cannot_limit(["memory"])
