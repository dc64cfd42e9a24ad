"""What a run of a span leaves on the disk of the records that are at work."""

from __future__ import annotations

from pathlib import Path

from penstock.core.jobs.spec import Span
from penstock.records.at_work import AtWork, forget_at_work, take_at_work

SPAN = Span(object=0, number=3, start=0, stop=100)


def test_what_began_and_is_not_over_is_at_work(tmp_path: Path) -> None:
    uri = (tmp_path / "parts").as_uri()
    noted = AtWork(uri, SPAN)
    with noted.working([1, 2, 3]):
        pass
    with noted.working([9, 4, 5]), noted.working([20]):
        assert take_at_work(uri, SPAN) == (4, 5, 9, 20)
    assert take_at_work(uri, SPAN) == ()  # whoever takes it has it
    assert list((tmp_path / "parts").iterdir()) == []


def test_a_run_that_is_over_leaves_nothing(tmp_path: Path) -> None:
    noted = AtWork(tmp_path.as_uri(), SPAN)
    noted.close()
    noted.close()
    assert list(tmp_path.iterdir()) == []


def test_a_new_run_begins_with_nothing_and_spans_have_notes_of_their_own(tmp_path: Path) -> None:
    uri = tmp_path.as_uri()
    before = AtWork(uri, SPAN)
    with before.working([1]):
        AtWork(uri, SPAN)
        assert take_at_work(uri, SPAN) == ()
    other = Span(object=1, number=3, start=0, stop=100)
    with AtWork(uri, other).working([7]):
        forget_at_work(uri, SPAN)
        assert take_at_work(uri, other) == (7,)


def test_a_line_that_was_cut_off_says_nothing(tmp_path: Path) -> None:
    uri = tmp_path.as_uri()
    with AtWork(uri, SPAN).working([1]):
        [path] = tmp_path.iterdir()
        with path.open("ab") as file:
            file.write(b"[1,[[5,")
        assert take_at_work(uri, SPAN) == (1,)


def test_a_disk_that_can_not_be_written_keeps_no_span_from_being_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("where a folder would have to be")
    uri = (tmp_path / "file" / "parts").as_uri()
    noted = AtWork(uri, SPAN)
    with noted.working([1]):
        assert take_at_work(uri, SPAN) == ()
    noted.close()
