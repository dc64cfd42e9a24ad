"""HPACK: the examples of RFC 7541, appendix C, and what a block must not be."""

from __future__ import annotations

import pytest

from penstock.wire.http2.hpack import (
    STATIC_TABLE,
    Field,
    FieldsFarTooLarge,
    FieldsTooLarge,
    HpackDecoder,
    HpackEncoder,
    HpackError,
)
from penstock.wire.http2.huffman import huffman_decoded

GET: list[Field] = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")]
SITE: Field = (b":authority", b"www.example.com")
CUSTOM: Field = (b"custom-key", b"custom-value")
HTTPS: list[Field] = [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/index.html")]
DATES = [b"Mon, 21 Oct 2013 20:13:21 GMT", b"Mon, 21 Oct 2013 20:13:22 GMT"]
LOCATION: Field = (b"location", b"https://www.example.com")
PRIVATE: Field = (b"cache-control", b"private")
COOKIE: Field = (b"set-cookie", b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1")
REQUESTS = [
    [*GET, SITE],
    [*GET, SITE, (b"cache-control", b"no-cache")],
    [*HTTPS, SITE, CUSTOM],
]
ANSWERS = [
    [(b":status", b"302"), PRIVATE, (b"date", DATES[0]), LOCATION],
    [(b":status", b"307"), PRIVATE, (b"date", DATES[0]), LOCATION],
    [
        (b":status", b"200"),
        PRIVATE,
        (b"date", DATES[1]),
        LOCATION,
        (b"content-encoding", b"gzip"),
        COOKIE,
    ],
]

#: Appendix C: section -> blocks of one connection, what they mean. Those of C.5 and C.6 are of a
#: table of 256 bytes, which their first block is made to say here.
EXAMPLES: dict[str, tuple[list[str], list[list[Field]]]] = {
    "C.2.1": (
        ["400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572"],
        [[(b"custom-key", b"custom-header")]],
    ),
    "C.2.2": (["040c 2f73 616d 706c 652f 7061 7468"], [[(b":path", b"/sample/path")]]),
    "C.2.3": (["1008 7061 7373 776f 7264 0673 6563 7265 74"], [[(b"password", b"secret")]]),
    "C.2.4": (["82"], [[(b":method", b"GET")]]),
    "C.3": (
        [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
        REQUESTS,
    ),
    "C.4": (
        [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
        REQUESTS,
    ),
    "C.5": (
        [
            "3fe101 4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420"
            "3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65"
            "7861 6d70 6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d"
            "54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049"
            "5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e"
            "3d31",
        ],
        ANSWERS,
    ),
    "C.6": (
        [
            "3fe101 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81"
            "66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab"
            "77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f"
            "9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ],
        ANSWERS,
    ),
}


@pytest.mark.parametrize("section", EXAMPLES)
def test_the_examples_of_appendix_c(section: str) -> None:
    blocks, lists = EXAMPLES[section]
    decoder = HpackDecoder(4096)
    assert [decoder.decode(bytes.fromhex(block)) for block in blocks] == lists


def test_the_static_table_has_the_entries_of_appendix_a() -> None:
    assert len(STATIC_TABLE) == 62
    assert STATIC_TABLE[16] == (b"accept-encoding", b"gzip, deflate")
    assert STATIC_TABLE[61] == (b"www-authenticate", b"")


#: (rule, block after one that has put `a: b` into the table)
BROKEN = [
    ("6.1: index 0 is no entry", "80"),
    ("2.3.3: an entry behind the table's last one", "bf"),
    ("2.3.3: a name behind the table's last one", "7f00 0161"),
    ("5.1: an integer cut off", "ff"),
    ("5.1: an integer that goes on for ever", "ff 80 80 80 80 00"),
    ("5.2: a name cut off", "40 05 61"),
    ("5.2: a value that is missing", "40 01 61"),
    ("5.2: a length cut off", "00 7f"),
    ("5.2: padding of eight bits", "00 01 61 82 1fff"),
    ("5.2: padding that is not all ones", "00 01 61 81 18"),
    ("5.2: EOS within a string", "00 01 61 84 ffffffff"),
    ("4.2: a size update behind a field", "82 20"),
    ("6.3: a size update beyond the setting", "3fe2 1f"),
    ("4.3: an entry that a smaller size has evicted", "20 be"),
]


@pytest.mark.parametrize(("rule", "block"), BROKEN, ids=[rule for rule, _ in BROKEN])
def test_a_broken_block_is_an_error(rule: str, block: str) -> None:
    decoder = HpackDecoder(4096)
    decoder.decode(bytes.fromhex("40 01 61 01 62"))
    with pytest.raises(HpackError):
        decoder.decode(bytes.fromhex(block))


@pytest.mark.parametrize("count", range(1, 9))
def test_padding_fills_the_last_byte_with_ones(count: int) -> None:
    """An `a` has the five bits 00011, so eight counts need each padding from none to seven bits."""
    bits = "00011" * count + "1" * (-5 * count % 8)
    text = int(bits, 2).to_bytes(len(bits) // 8)
    assert huffman_decoded(text) == b"a" * count
    if len(bits) != 5 * count:
        assert huffman_decoded(text[:-1] + bytes([text[-1] & 0xFE])) is None


@pytest.mark.parametrize("tail", ["11", "00011" * 2, "00011" * 2 + "1" * 32, "0001100011" * 5])
def test_nothing_behind_an_end_of_string_makes_it_right(tail: str) -> None:
    bits = "1" * 30 + tail
    assert huffman_decoded(int(bits, 2).to_bytes(len(bits) // 8)) is None


def test_a_list_beyond_its_bound_leaves_the_tables_equal() -> None:
    decoder = HpackDecoder(100)
    fits = bytes.fromhex("00 01 61 43") + b"v" * 67  # 1 + 67 + 32
    assert decoder.decode(fits) == [(b"a", b"v" * 67)]
    with pytest.raises(FieldsTooLarge):
        decoder.decode(bytes.fromhex("00 01 61 44") + b"v" * 68 + bytes.fromhex("40 01 61 01 62"))
    assert decoder.decode(b"\xbe") == [(b"a", b"b")]


def test_a_block_of_references_is_not_decoded_beyond_four_times_the_bound() -> None:
    """A kilobyte of references to an entry of 4 kB would be a list of 4 MB."""
    decoder = HpackDecoder(4096)
    decoder.decode(bytes.fromhex("40 01 61 7f a11e") + b"v" * 4000)
    with pytest.raises(FieldsFarTooLarge):
        decoder.decode(b"\xbe" * 5)
    with pytest.raises(FieldsTooLarge):
        decoder.decode(b"\xbe" * 4)


def test_changes_counts_what_may_give_a_block_another_meaning() -> None:
    decoder = HpackDecoder(4096)
    seen = []
    for block in ("82", "00 01 61 01 62", "10 01 61 01 62", "40 01 61 01 62", "be", "20", "3fe11f"):
        decoder.decode(bytes.fromhex(block))
        seen.append(decoder.changes)
    assert seen == [0, 0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize(("index", "block"), [(126, "fe"), (127, "ff 00"), (200, "ff 49")])
def test_an_index_may_take_several_bytes(index: int, block: str) -> None:
    """Entries of the table count from 62 on, the newest first."""
    decoder = HpackDecoder(16_384)
    for number in range(110):
        decoder.decode(b"\x40\x01a\x03%03d" % number)
    if index < 62 + 110:
        assert decoder.decode(bytes.fromhex(block)) == [(b"a", b"%03d" % (109 - (index - 62)))]
    else:
        with pytest.raises(HpackError, match="no entry 200"):
            decoder.decode(bytes.fromhex(block))


def test_entries_may_fill_the_table_to_its_last_byte() -> None:
    decoder = HpackDecoder(16_384)
    decoder.decode(bytes.fromhex("40 01 61 01 62"))  # 34 bytes
    large = (b"a", b"v" * (4_096 - 34 - 33))
    decoder.decode(bytes.fromhex("40 01 61 7f be1e") + large[1])
    assert decoder.decode(b"\xbe\xbf") == [large, (b"a", b"b")]


def test_an_entry_larger_than_the_table_empties_it() -> None:
    decoder = HpackDecoder(16_384)
    decoder.decode(bytes.fromhex("40 01 61 01 62"))
    decoder.decode(bytes.fromhex("40 01 61 7f e11e") + b"v" * 4064)  # 1 + 4,064 + 32
    with pytest.raises(HpackError):
        decoder.decode(b"\xbe")


class TestHpackEncoder:
    STATUS: Field = (b":status", b"200")
    GRPC: Field = (b"content-type", b"application/grpc")

    def test_a_field_joins_the_table_when_it_is_sent_again(self) -> None:
        encoder = HpackEncoder()
        text = "10" + b"application/grpc".hex()
        assert [encoder.encode((self.STATUS, self.GRPC)).hex() for _ in range(3)] == [
            "880f10" + text,
            "885f" + text,
            "88be",
        ]

    def test_a_list_is_known_until_the_table_changes(self) -> None:
        encoder = HpackEncoder()
        fields = (self.STATUS, self.GRPC)
        for _ in range(3):
            encoder.encode(fields)
        assert encoder.known(fields) == bytes.fromhex("88be")
        for _ in range(2):
            encoder.encode(((b"x", b"y"),))
        assert encoder.known(fields) is None
        assert encoder.encode(fields) == bytes.fromhex("88bf")

    def test_secrets_are_never_indexed_and_what_varies_is_not(self) -> None:
        encoder = HpackEncoder()
        fields = ((b"set-cookie", b"a"), (b"date", b"b"), (b"grpc-message", b"c"))
        blocks = {encoder.encode(fields) for _ in range(3)}
        assert blocks == {bytes.fromhex("1f28 0161  0f12 0162 ") + b"\0\x0cgrpc-message\x01c"}

    def test_a_smaller_table_is_told_and_the_smallest_first(self) -> None:
        encoder = HpackEncoder()
        field = ((b"x", b"y"),)
        encoder.encode(field)
        encoder.encode(field)
        encoder.resize(0)
        encoder.resize(100)
        assert encoder.encode((self.STATUS,)) == bytes.fromhex("20 3f45 88")
        assert encoder.encode(field) == bytes.fromhex("00 0178 0179")
        encoder.resize(9_999)
        assert encoder.encode((self.STATUS,)) == bytes.fromhex("3fe11f 88")
        encoder.resize(4096)
        assert encoder.encode((self.STATUS,)) == bytes.fromhex("88")
