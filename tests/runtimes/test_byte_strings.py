"""Bytes as text that loses nothing: UTF-8 stays as it is, all else has a way back."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.runtimes.tensor_bytes import bytes_of, text_of

ANY = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from([b"\xf4", b"\x8f", b"\xbf", b"\xbe", b"\x80", b"a"])).map(b"".join),
)


@given(ANY)
@example(bytes(range(256)))
@example(b"\xf4\x8f\xbe\x80")
@example(b"\xf4\x8f\xbf\xbf\xff")
def test_the_way_back_is_exact_and_the_text_can_be_written(data: bytes) -> None:
    text = text_of(data)
    text.encode()  # no lone surrogates
    assert bytes_of(text) == data


@given(
    st.text(max_size=20, alphabet=st.characters(max_codepoint=0x10FF7F, exclude_categories=["Cs"]))
)
def test_text_stays_the_text_that_it_is(text: str) -> None:
    assert text_of(text.encode()) == text
    assert bytes_of(text) == text.encode()


def test_a_byte_that_is_no_text_has_a_private_stand_in() -> None:
    assert text_of(b"a\xff\0") == "a\U0010ffff\0"
    assert text_of(b"\x80") == "\U0010ff80"
    # The stand-in itself, come as text, is told from it.
    assert text_of("\U0010ffff".encode()) == "\U0010fff4\U0010ff8f\U0010ffbf\U0010ffbf"
