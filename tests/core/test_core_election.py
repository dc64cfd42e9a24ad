"""`core/servers/election.py`: when a server that follows waits, tries the lock, or evicts the
leader.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.core.servers.election import (
    EVICT,
    LOCK,
    WAIT,
    Candidacy,
    Election,
    ElectionSpec,
    LeaderObserved,
)

SPEC = ElectionSpec(beat_s=0.25, look_s=0.25, released_s=1.0, silent_s=2.5)
LEADER = LeaderObserved(epoch=3, name="a", address="http://a", session="s", beat=7)
LIVES = Candidacy(action=WAIT, reason="leader-lives")
GONE = Candidacy(action=LOCK, reason="leader-gone")
SILENT = Candidacy(action=EVICT, reason="leader-silent")
NOBODY = Candidacy(action=LOCK, reason="nobody-leads")


def beats(number: int) -> LeaderObserved:
    return replace(LEADER, beat=number)


def test_a_leader_that_counts_is_left_alone() -> None:
    election = Election(SPEC)
    for number in range(100):
        assert election.look(beats(number), now=10.0 + number * 0.99) == LIVES


def test_a_leader_that_stands_still_loses_its_lock_if_it_can_and_then_its_connections() -> None:
    election = Election(SPEC)
    assert election.look(LEADER, now=10.0) == LIVES
    assert election.look(LEADER, now=10.9) == LIVES
    assert election.look(LEADER, now=11.0) == GONE  # it may have ended: the lock tells
    assert election.look(LEADER, now=12.4) == GONE  # it has the lock: it may come back
    assert election.look(LEADER, now=12.5) == SILENT
    assert election.look(LEADER, now=12.6) == SILENT  # until the lock is ours
    assert election.look(beats(8), now=12.7) == LIVES  # it came back


def test_a_new_leader_begins_anew_though_its_beat_is_the_one_before() -> None:
    election = Election(SPEC)
    assert election.look(LEADER, now=10.0) == LIVES
    assert election.look(replace(LEADER, epoch=4), now=13.0) == LIVES
    assert election.look(replace(LEADER, epoch=4), now=13.9) == LIVES
    assert election.look(replace(LEADER, epoch=4), now=14.0) == GONE


def test_a_leader_that_counts_at_this_server_s_own_address_is_another_server() -> None:
    election = Election(SPEC)
    election.look(LEADER, now=10.0)
    assert not election.shares_address("http://a"), "perhaps its own record, of before a restart"
    election.look(LEADER, now=10.3)
    assert not election.shares_address("http://a")
    election.look(beats(8), now=10.5)
    assert election.shares_address("http://a")
    assert not election.shares_address("http://b")
    election.look(replace(LEADER, epoch=4, name="b", session="t"), now=10.8)
    assert not election.shares_address("http://a"), "another leader, not yet seen to count"
    election.look(replace(LEADER, epoch=4, name="b", session="t", beat=8, address=""), now=11.0)
    assert not election.shares_address("")


def test_one_that_has_resigned_and_none_at_all_are_not_waited_for() -> None:
    assert Election(SPEC).look(replace(LEADER, session=""), now=10.0) == NOBODY
    assert Election(SPEC).look(LeaderObserved(epoch=0), now=10.0) == NOBODY


def test_what_passed_while_the_database_could_not_be_asked_does_not_count() -> None:
    """The leader could not count either: it may come back a moment later than we do."""
    election = Election(SPEC)
    assert election.look(LEADER, now=10.0) == LIVES
    election.forget()
    assert election.look(LEADER, now=60.0) == LIVES
    assert election.look(LEADER, now=60.9) == LIVES
    assert election.look(LEADER, now=61.0) == GONE
