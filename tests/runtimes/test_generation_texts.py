"""Tokens to text: what is shown is never taken back, and all pieces are the whole."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runtimes.generation.answers import TextStream


def by_bytes(ids: list[int]) -> str:
    """A tokenizer of single bytes."""
    return bytes(ids).decode("utf-8", "replace")


def by_words(ids: list[int]) -> str:
    """One whose words have a space before them unless they come first, as SentencePiece's."""
    words = {1: "Hello", 2: "dear", 3: "world", 4: "!"}
    return " ".join(words[each] for each in ids).replace(" !", "!")


def pieces(stream: TextStream, ids: list[int], at_once: int = 1) -> list[str]:
    cut = [ids[at : at + at_once] for at in range(0, len(ids), at_once)]
    shown = []
    for part in cut:
        shown.append(stream.add(part))
        if stream.stopped:
            return shown
    return [*shown, stream.finish()]


def test_a_character_is_shown_when_its_last_byte_is_there() -> None:
    ids = list("aé€😀".encode())
    assert pieces(TextStream(by_bytes), ids) == [
        "a", "", "é", "", "", "€", "", "", "", "😀", "",
    ]  # fmt: skip


def test_bytes_that_never_become_a_character_are_shown_at_the_end() -> None:
    assert pieces(TextStream(by_bytes), [0xE2, 0x82]) == ["", "", "�"]
    assert "".join(pieces(TextStream(by_bytes), [0xE2, *b"abc"])) == "�abc"


def test_spaces_between_words_are_where_the_whole_text_has_them() -> None:
    assert pieces(TextStream(by_words), [1, 2, 3, 4]) == ["Hello", " dear", " world", "!", ""]


def test_the_first_word_knows_what_stands_before_it() -> None:
    assert pieces(TextStream(by_words, before=[1]), [2, 3]) == [" dear", " world", ""]


def test_a_stop_string_is_found_across_tokens_and_never_shown() -> None:
    stream = TextStream(by_bytes, stop=("END",))
    assert pieces(stream, list(b"abENDcd")) == ["a", "b", "", "", ""]
    assert stream.stopped
    assert stream.add(list(b"more")) == ""
    assert stream.finish() == ""


def test_what_only_looked_like_a_stop_string_is_shown() -> None:
    stream = TextStream(by_bytes, stop=("END",))
    assert pieces(stream, list(b"ENaEN")) == ["", "", "ENa", "", "", "EN"]
    assert not stream.stopped


def test_a_stop_string_may_stay_in_the_text() -> None:
    stream = TextStream(by_bytes, stop=("END",), stop_included=True)
    assert "".join(pieces(stream, list(b"abENDcd"))) == "abEND"


def test_the_first_stop_string_to_end_counts() -> None:
    for at_once in (1, 2, 7):
        stream = TextStream(by_bytes, stop=("abcd", "bc"))
        assert "".join(pieces(stream, list(b"xabcdef"), at_once)) == "xa"


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(alphabet="ab€😀\n", max_size=30),
    stops=st.lists(st.text(alphabet="ab€", min_size=1, max_size=3), max_size=3),
    at_once=st.integers(1, 5),
)
def test_pieces_are_the_text_up_to_the_first_stop(
    text: str, stops: list[str], at_once: int
) -> None:
    stream = TextStream(by_bytes, stop=tuple(stops))
    shown = "".join(pieces(stream, list(text.encode()), at_once))
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    assert shown == (text[: min(ends)[1]] if ends else text)
    assert stream.stopped == bool(ends)
