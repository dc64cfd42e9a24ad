"""What `penstock apply` has to do, as whole plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.core.apply.plan import (
    Action,
    AppliedEndpointObserved,
    AppliedEndpointSpec,
    ArtifactPlace,
    Content,
    Plan,
    PlanObserved,
    PlanSpec,
    PlanStep,
    plan,
)

PREFIX = "s3://models/embed/"
ACME = ArtifactPlace(PREFIX, "acme.tar.gz")
BEST = ArtifactPlace(PREFIX, "best.tar.gz")
CONTENT = Content(digest="d1", size=10)
#: Versioned names of the endpoint `embed`.
MODEL, OLD_MODEL = "embed-0000000001", "embed-0000000002"
CONFIG, OLD_CONFIG = "embed-0000000003", "embed-0000000004"
TAGS = {"team": "search", "penstock:stack": "support"}
ENDPOINT = AppliedEndpointSpec(name="embed", config=CONFIG, models=(MODEL,), tags=TAGS)
WISH = PlanSpec(artifacts={BEST: CONTENT, ACME: CONTENT}, endpoints=(ENDPOINT,))
#: All of it is there.
DONE = PlanObserved(
    artifacts={ACME: CONTENT, BEST: CONTENT},
    endpoints={"embed": AppliedEndpointObserved(status="InService", config=CONFIG, tags=TAGS)},
    models=frozenset({MODEL}),
    configs=frozenset({CONFIG}),
    stack_endpoints=frozenset({"embed"}),
)


def test_from_nothing_all_is_made_in_the_order_in_which_one_needs_the_other() -> None:
    planned = plan(WISH, PlanObserved(artifacts={}))
    assert [step.size for step in planned.steps] == [10, 10, 0, 0, 0]
    assert planned == Plan(
        (
            PlanStep(Action.UPLOAD, "acme.tar.gz", "not-there", PREFIX, 10),
            PlanStep(Action.UPLOAD, "best.tar.gz", "not-there", PREFIX, 10),
            PlanStep(Action.CREATE_MODEL, MODEL, "not-there"),
            PlanStep(Action.CREATE_ENDPOINT_CONFIG, CONFIG, "not-there"),
            PlanStep(Action.CREATE_ENDPOINT, "embed", "not-there"),
        ),
        unchanged=0,
    )


@pytest.mark.parametrize("prune", [False, True])
def test_where_all_is_as_it_should_be_nothing_is_done(prune: bool) -> None:
    assert plan(WISH, DONE, prune=prune) == Plan((), unchanged=5)


def test_a_run_that_was_killed_is_continued_with_what_is_missing() -> None:
    """Killed behind CreateModel, with one upload done and one on its way."""
    seen = PlanObserved(
        artifacts={ACME: CONTENT},
        left_over=(ArtifactPlace(PREFIX, "._b"), ArtifactPlace(PREFIX, "._a")),
        models=frozenset({MODEL}),
    )
    assert plan(WISH, seen) == Plan(
        (
            PlanStep(Action.REMOVE_LEFT_OVER, "._a", "upload-not-finished", PREFIX),
            PlanStep(Action.REMOVE_LEFT_OVER, "._b", "upload-not-finished", PREFIX),
            PlanStep(Action.UPLOAD, "best.tar.gz", "not-there", PREFIX, 10),
            PlanStep(Action.CREATE_ENDPOINT_CONFIG, CONFIG, "not-there"),
            PlanStep(Action.CREATE_ENDPOINT, "embed", "not-there"),
        ),
        unchanged=2,
    )


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (Content(digest="d0", size=10), "other-content"),
        (Content(digest="", size=10), "other-content"),
        (Content(digest="d1", size=9), "not-whole"),
    ],
)
def test_an_archive_is_put_again_where_another_or_a_part_of_it_lies(
    there: Content, reason: str
) -> None:
    seen = replace(DONE, artifacts={ACME: there, BEST: CONTENT})
    assert plan(WISH, seen) == Plan(
        (PlanStep(Action.UPLOAD, "acme.tar.gz", reason, PREFIX, 10),), unchanged=4
    )


@pytest.mark.parametrize(
    ("status", "config", "step"),
    [
        ("InService", OLD_CONFIG, PlanStep(Action.UPDATE_ENDPOINT, "embed", "other-config")),
        ("Updating", OLD_CONFIG, PlanStep(Action.UPDATE_ENDPOINT, "embed", "other-config")),
        ("Failed", CONFIG, PlanStep(Action.CREATE_ENDPOINT, "embed", "failed")),
        ("Deleting", CONFIG, PlanStep(Action.CREATE_ENDPOINT, "embed", "being-deleted")),
    ],
)
def test_an_endpoint_that_serves_something_else_is_updated_and_a_dead_one_made_anew(
    status: str, config: str, step: PlanStep
) -> None:
    seen = replace(
        DONE, endpoints={"embed": AppliedEndpointObserved(status=status, config=config, tags=TAGS)}
    )
    assert plan(WISH, seen) == Plan((step,), unchanged=4)


@pytest.mark.parametrize("status", ["Creating", "Updating", "InService"])
def test_an_endpoint_on_its_way_to_what_is_asked_for_is_left_alone(status: str) -> None:
    seen = replace(
        DONE, endpoints={"embed": AppliedEndpointObserved(status=status, config=CONFIG, tags=TAGS)}
    )
    assert plan(WISH, seen) == Plan((), unchanged=5)


def test_tags_are_added_and_those_of_others_stay() -> None:
    others = AppliedEndpointObserved(
        status="InService", config=CONFIG, tags=TAGS | {"owner": "ops"}
    )
    assert plan(WISH, replace(DONE, endpoints={"embed": others})).steps == ()
    wrong = AppliedEndpointObserved(status="InService", config=CONFIG, tags=TAGS | {"team": "ads"})
    assert plan(WISH, replace(DONE, endpoints={"embed": wrong})) == Plan(
        (PlanStep(Action.TAG_ENDPOINT, "embed", "other-tags"),), unchanged=5
    )


def test_tags_of_an_endpoint_that_is_made_anew_come_with_it() -> None:
    for status in ("Failed", "Deleting"):
        gone = AppliedEndpointObserved(status=status, config=CONFIG)
        planned = plan(WISH, replace(DONE, endpoints={"embed": gone}))
        assert [step.action for step in planned.steps] == [Action.CREATE_ENDPOINT]


def test_a_model_that_two_variants_share_is_made_once() -> None:
    shared = replace(ENDPOINT, models=(MODEL, MODEL))
    planned = plan(PlanSpec(artifacts={}, endpoints=(shared,)), PlanObserved(artifacts={}))
    assert planned.of(Action.CREATE_MODEL) == (PlanStep(Action.CREATE_MODEL, MODEL, "not-there"),)
    assert planned.unchanged == 0


#: Beside what is asked for: what earlier runs made, and what others did.
MORE = replace(
    DONE,
    artifacts=DONE.artifacts
    | {
        ArtifactPlace(PREFIX, "gone.tar.gz"): Content(digest="d2", size=7),
        ArtifactPlace(PREFIX, "by-hand.tar.gz"): Content(digest="", size=7),
    },
    endpoints=DONE.endpoints | {"old": AppliedEndpointObserved(status="InService", config="old-x")},
    models=frozenset({MODEL, OLD_MODEL, "old-0000000005", "other-0000000006", "embed-by-hand"}),
    configs=frozenset({CONFIG, OLD_CONFIG, "old-0000000007", "embed-large-0000000008"}),
    stack_endpoints=frozenset({"embed", "old"}),
)


def test_nothing_is_deleted_unless_pruning_is_asked_for() -> None:
    assert plan(WISH, MORE) == Plan((), unchanged=5)


@pytest.mark.parametrize("reads", [{}, {MODEL: (PREFIX,), "other-0000000006": ("s3://other/",)}])
def test_pruning_deletes_what_bears_the_marks_of_earlier_runs_and_nothing_else(
    reads: dict[str, tuple[str, ...]],
) -> None:
    assert plan(WISH, replace(MORE, reads=reads), prune=True) == Plan(
        (
            PlanStep(Action.DELETE_ENDPOINT, "old", "not-asked-for"),
            PlanStep(Action.DELETE_ENDPOINT_CONFIG, OLD_CONFIG, "not-asked-for"),
            PlanStep(Action.DELETE_ENDPOINT_CONFIG, "old-0000000007", "not-asked-for"),
            PlanStep(Action.DELETE_MODEL, OLD_MODEL, "not-asked-for"),
            PlanStep(Action.DELETE_MODEL, "old-0000000005", "not-asked-for"),
            PlanStep(Action.DELETE_ARTIFACT, "gone.tar.gz", "not-asked-for", PREFIX),
        ),
        unchanged=5,
    )


SHARED = "s3://shared/"
#: Models that an earlier run made for `old`, which nobody asks for any more.
OLD_ONE, OLD_MANY = "old-0000000005", "old-0000000009"


def test_pruning_takes_the_archives_of_what_it_deletes_from_wherever_they_lie() -> None:
    seen = replace(
        DONE,
        artifacts=DONE.artifacts
        | {
            ArtifactPlace("s3://models/old/", "one.tar.gz"): CONTENT,
            ArtifactPlace("s3://models/old/", "kept-by-hand.tar.gz"): CONTENT,
            ArtifactPlace("s3://models/old-many/", "a/b.tar.gz"): CONTENT,
            ArtifactPlace("s3://models/old-many/", "notes.txt"): Content(digest="", size=3),
        },
        models=DONE.models | {OLD_ONE, OLD_MANY},
        stack_endpoints=frozenset({"embed", "old"}),
        reads={
            MODEL: (PREFIX,),
            OLD_ONE: ("s3://models/old/one.tar.gz",),
            OLD_MANY: ("s3://models/old-many/",),
        },
    )
    deleted = plan(WISH, seen, prune=True).of(Action.DELETE_ARTIFACT)
    assert deleted == (
        PlanStep(
            Action.DELETE_ARTIFACT, "a/b.tar.gz", "model-not-asked-for", "s3://models/old-many/"
        ),
        PlanStep(Action.DELETE_ARTIFACT, "one.tar.gz", "model-not-asked-for", "s3://models/old/"),
    )
    assert plan(WISH, seen).steps == ()
    nothing = PlanSpec(artifacts={}, endpoints=())
    seen = replace(seen, stack_endpoints=frozenset({"old"}))
    assert plan(nothing, seen, prune=True).of(Action.DELETE_ARTIFACT) == deleted


@pytest.mark.parametrize("read", ["s3://shared/one.tar.gz", "s3://shared/", "s3://shared", "s3://"])
def test_pruning_leaves_an_archive_that_another_model_reads(read: str) -> None:
    """An endpoint of another stack serves it, by its name or as one of many below a prefix."""
    place = ArtifactPlace(SHARED, "one.tar.gz")
    seen = replace(
        DONE,
        artifacts={place: CONTENT},
        models=frozenset({OLD_ONE, "theirs"}),
        stack_endpoints=frozenset({"old"}),
        reads={OLD_ONE: ("s3://shared/one.tar.gz",), "theirs": (read,)},
    )
    for wish in (WISH, PlanSpec(artifacts={ArtifactPlace(SHARED, "mine"): CONTENT}, endpoints=())):
        planned = plan(wish, seen, prune=True)
        assert [step.name for step in planned.of(Action.DELETE_MODEL)] == [OLD_ONE]
        assert planned.of(Action.DELETE_ARTIFACT) == ()


def test_a_name_that_only_begins_alike_is_another_archive() -> None:
    seen = replace(
        DONE,
        artifacts={ArtifactPlace(SHARED, "one.tar.gz"): CONTENT},
        models=frozenset({OLD_ONE, "theirs"}),
        stack_endpoints=frozenset({"old"}),
        reads={OLD_ONE: ("s3://shared/one.tar.gz",), "theirs": ("s3://shared/one",)},
    )
    assert len(plan(WISH, seen, prune=True).of(Action.DELETE_ARTIFACT)) == 1


def test_pruning_knows_an_endpoint_whose_name_is_written_in_another_case() -> None:
    seen = replace(DONE, stack_endpoints=frozenset({"EMBED"}))
    assert plan(WISH, seen, prune=True) == Plan((), unchanged=5)
