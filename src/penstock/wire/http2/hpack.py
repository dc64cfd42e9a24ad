"""HPACK, the compression of HTTP/2's header blocks (RFC 7541).

`HpackDecoder` reads the peer's blocks and `HpackEncoder` writes ours, each with a dynamic table of
its own. Both must see every block of the connection in order: a block that is skipped leaves the
tables of the two sides different.

A table entry, and a field of a list, counts as name + value + 32 bytes (4.1; RFC 9113, 6.5.2), so
the bound of a decoded list holds for a block of one-byte references as well.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Final

from penstock.wire.http2.huffman import huffman_decoded

Field = tuple[bytes, bytes]

FIELD_BYTES: Final = 32  #: what an entry costs beside its name and value (4.1)
TABLE_BYTES_DEFAULT: Final = 4096  #: SETTINGS_HEADER_TABLE_SIZE until told otherwise

#: A list may exceed its bound this many times before the whole connection ends for it. Up to there
#: it is decoded, since that keeps the tables equal, and only its request is refused.
REFUSED_LISTS_MAX: Final = 4

#: Appendix A: names, with the values of their entries.
_STATIC_NAMES: Final = (
    ":authority|:method GET POST|:path / /index.html|:scheme http https"
    "|:status 200 204 206 304 400 404 500|accept-charset|accept-encoding gzip,~deflate"
    "|accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization"
    "|cache-control|content-disposition|content-encoding|content-language|content-length"
    "|content-location|content-range|content-type|cookie|date|etag|expect|expires|from|host"
    "|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|link"
    "|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh"
    "|retry-after|server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary"
    "|via|www-authenticate"
)


def _static_table() -> tuple[Field, ...]:
    table = [(b"", b"")]  # indices begin with 1
    for entry in _STATIC_NAMES.split("|"):
        name, *values = entry.split(" ")
        table += [(name.encode(), v.replace("~", " ").encode()) for v in values or [""]]
    return tuple(table)


STATIC_TABLE: Final = _static_table()
_STATIC_LAST: Final = len(STATIC_TABLE) - 1
_STATIC_FIELDS: Final = {field: index for index, field in enumerate(STATIC_TABLE) if index}
#: Of several entries with one name, the first.
_STATIC_NAME_INDEX: Final = {
    name: index for index, (name, _) in reversed(list(enumerate(STATIC_TABLE))) if index
}

#: An integer has at most this many bytes after its prefix: 2^28, beyond every bound here (5.1).
_INTEGER_BYTES_MAX: Final = 4


class HpackError(Exception):
    """The block can't be decoded: the connection ends with COMPRESSION_ERROR (RFC 9113, 4.3)."""


class FieldsTooLarge(Exception):
    """The list is larger than the bound. The tables are still equal: the request can be refused."""


class FieldsFarTooLarge(Exception):
    """The list exceeds the bound so far that it was not decoded to its end."""


class HpackDecoder:
    """The peer's blocks into lists of fields."""

    __slots__ = ("_list_bytes_max", "_table", "_table_bytes", "_table_bytes_max", "changes")

    def __init__(self, list_bytes_max: int) -> None:
        """`list_bytes_max`: what SETTINGS_MAX_HEADER_LIST_SIZE tells the peer."""
        self._list_bytes_max = list_bytes_max
        self._table: list[Field] = []  #: the newest last, so that no insertion moves the others
        self._table_bytes = 0
        self._table_bytes_max = TABLE_BYTES_DEFAULT
        #: Grows with each change of the table. The same bytes mean the same fields as long as it
        #: stays, so a caller may keep lists by their blocks.
        self.changes = 0

    def decode(self, block: bytes) -> list[Field]:
        """The fields of a whole block (all its fragments).

        Raises HpackError, FieldsTooLarge (later blocks can be decoded), FieldsFarTooLarge.
        """
        fields: list[Field] = []
        table = self._table
        list_bytes = 0
        stop_bytes = REFUSED_LISTS_MAX * self._list_bytes_max
        if len(block) > stop_bytes:
            raise FieldsFarTooLarge
        at, end = 0, len(block)
        while at < end:
            byte = block[at]
            if byte >= 0x80:  # indexed field (6.1)
                index = byte & 0x7F
                at += 1
                if index == 0x7F:
                    index, at = _integer(block, at, 0x7F)
                if index > _STATIC_LAST:
                    if index - _STATIC_LAST > len(table):
                        raise HpackError(f"no entry {index}")
                    field = table[_STATIC_LAST - index]  # the newest comes first (2.3.3)
                elif index:
                    field = STATIC_TABLE[index]
                else:
                    raise HpackError("no entry 0")
            elif byte >= 0x40:  # literal that joins the table (6.2.1)
                field, at = self._literal(block, at, 0x3F)
                self._insert(field)
            elif byte >= 0x20:  # dynamic table size update (6.3)
                if fields:
                    raise HpackError("a size update after the first field")  # 4.2
                size, at = _integer_at(block, at, 0x1F)
                if size > TABLE_BYTES_DEFAULT:
                    raise HpackError("a size update beyond the setting")  # 6.3
                self._table_bytes_max = size
                self._evict(0)
                self.changes += 1
                continue
            else:  # literal that does not join it, or never may (6.2.2, 6.2.3)
                field, at = self._literal(block, at, 0x0F)
            list_bytes += len(field[0]) + len(field[1]) + FIELD_BYTES
            if list_bytes > stop_bytes:
                raise FieldsFarTooLarge
            fields.append(field)
        if list_bytes > self._list_bytes_max:
            raise FieldsTooLarge
        return fields

    def _literal(self, block: bytes, at: int, prefix: int) -> tuple[Field, int]:
        """The field at `at`, whose name is indexed or literal (6.2), and where it ends."""
        index = block[at] & prefix
        at += 1
        if index == 0:
            name, at = _string(block, at)
        else:
            if index == prefix:
                index, at = _integer(block, at, prefix)
            if index <= _STATIC_LAST:
                name = STATIC_TABLE[index][0]
            elif index - _STATIC_LAST <= len(self._table):
                name = self._table[_STATIC_LAST - index][0]
            else:
                raise HpackError(f"no entry {index}")
        value, at = _string(block, at)
        return (name, value), at

    def _insert(self, field: Field) -> None:
        """One more entry; one larger than the table leaves it empty, which is no error (4.4)."""
        self.changes += 1
        size = len(field[0]) + len(field[1]) + FIELD_BYTES
        if self._table_bytes + size > self._table_bytes_max:
            self._evict(size)
            if size > self._table_bytes_max:
                return
        self._table.append(field)
        self._table_bytes += size

    def _evict(self, room: int) -> None:
        """Drops the oldest entries until `room` bytes are free, or none is left (4.3)."""
        count = 0
        while count < len(self._table) and self._table_bytes + room > self._table_bytes_max:
            name, value = self._table[count]
            self._table_bytes -= len(name) + len(value) + FIELD_BYTES
            count += 1
        del self._table[:count]


def _integer_at(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    value = block[at] & prefix
    return (value, at + 1) if value < prefix else _integer(block, at + 1, prefix)


def _integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """The rest of an integer whose prefix is full (5.1), and where it ends."""
    value, shift = prefix, 0
    for byte in block[at : at + _INTEGER_BYTES_MAX]:
        value += (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise HpackError("an integer that is cut off or too large")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """A string literal (5.2), and where it ends."""
    if at >= len(block):
        raise HpackError("a block that ends within a field")
    coded = block[at] >= 0x80
    length, at = _integer_at(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise HpackError("a string that ends behind its block")
    text: bytes | None = block[at:end]
    if coded:
        text = huffman_decoded(block[at:end])
        if text is None:
            raise HpackError("a string with a broken Huffman code")
    assert text is not None
    return text, end


#: Secrets, which are never put where a guess could be compared with them (7.1.3).
_SECRET: Final = frozenset((b"authorization", b"proxy-authorization", b"cookie", b"set-cookie"))
#: Values that hardly repeat: as entries they would push out those that do.
_VARYING: Final = frozenset(
    (b"content-length", b"content-range", b"date", b"etag", b"grpc-message", b"last-modified",
     b"location", b"age", b"expires")
)  # fmt: skip
_ENTRY_BYTES_MAX: Final = 512  #: a longer field would push out too many
_SEEN_MAX: Final = 64
_BLOCKS_MAX: Final = 64
_BLOCK_BYTES_MAX: Final = 1024  #: of a block that is kept


class HpackEncoder:
    """Our lists of fields into blocks. Strings are sent as they are: most fields become one byte.

    A field joins the table when it is sent for the second time, so values that are seen once do
    not push out those that repeat. A whole list that was sent before costs one look-up.
    """

    __slots__ = (
        "_blocks", "_entries", "_inserted", "_places", "_seen", "_table_bytes", "_table_bytes_max",
        "_update_least",
    )  # fmt: skip

    def __init__(self) -> None:
        self._entries: deque[Field] = deque()  #: the oldest first
        self._places: dict[Field, int] = {}  #: the count of insertions before its own
        self._inserted = 0
        self._table_bytes = 0
        self._table_bytes_max = TABLE_BYTES_DEFAULT
        self._update_least: int | None = (
            None  #: the smallest size since the last block, not yet sent
        )
        self._seen: set[Field] = set()
        self._blocks: dict[tuple[Field, ...], bytes] = {}  #: valid until the table changes

    def resize(self, table_bytes_max: int) -> None:
        """The peer's SETTINGS_HEADER_TABLE_SIZE; the next block says what we use of it (4.2)."""
        size = min(table_bytes_max, TABLE_BYTES_DEFAULT)
        if size == self._table_bytes_max and self._update_least is None:
            return
        least = size if self._update_least is None else min(size, self._update_least)
        self._update_least = least
        self._table_bytes_max = size
        self._evict(0)
        self._blocks.clear()

    def known(self, fields: tuple[Field, ...]) -> bytes | None:
        """The block of a list that was sent before, where it is still the same."""
        return self._blocks.get(fields)

    def encode(self, fields: tuple[Field, ...]) -> bytes:
        """The block of a list; pseudo fields first. Names are in lower case."""
        block = bytearray()
        if self._update_least is not None:
            if self._update_least < self._table_bytes_max:
                _put_integer(block, 0x20, 0x1F, self._update_least)
            _put_integer(block, 0x20, 0x1F, self._table_bytes_max)
            self._update_least = None
        inserted = self._inserted
        plain = not block
        for field in fields:
            self._put(block, field)
        encoded = bytes(block)
        if inserted != self._inserted:
            self._blocks.clear()
        elif plain and len(encoded) <= _BLOCK_BYTES_MAX:
            if len(self._blocks) >= _BLOCKS_MAX:
                self._blocks.clear()
            self._blocks[fields] = encoded
        return encoded

    def _put(self, block: bytearray, field: Field) -> None:
        index = _STATIC_FIELDS.get(field)
        if index is None and (place := self._places.get(field)) is not None:
            index = _STATIC_LAST + self._inserted - place
        if index is not None:
            _put_integer(block, 0x80, 0x7F, index)
            return
        name, value = field
        size = len(name) + len(value) + FIELD_BYTES
        if name in _SECRET:
            _put_integer(block, 0x10, 0x0F, _STATIC_NAME_INDEX.get(name, 0))
        elif name in _VARYING or size > min(_ENTRY_BYTES_MAX, self._table_bytes_max):
            _put_integer(block, 0x00, 0x0F, _STATIC_NAME_INDEX.get(name, 0))
        elif field not in self._seen:
            if len(self._seen) >= _SEEN_MAX:
                self._seen.clear()
            self._seen.add(field)
            _put_integer(block, 0x00, 0x0F, _STATIC_NAME_INDEX.get(name, 0))
        else:
            _put_integer(block, 0x40, 0x3F, _STATIC_NAME_INDEX.get(name, 0))
            self._seen.discard(field)
            self._evict(size)
            self._entries.append(field)
            self._places[field] = self._inserted
            self._inserted += 1
            self._table_bytes += size
        if name not in _STATIC_NAME_INDEX:
            _put_integer(block, 0x00, 0x7F, len(name))
            block += name
        _put_integer(block, 0x00, 0x7F, len(value))
        block += value

    def _evict(self, room: int) -> None:
        while self._entries and self._table_bytes + room > self._table_bytes_max:
            field = self._entries.popleft()
            del self._places[field]
            self._table_bytes -= len(field[0]) + len(field[1]) + FIELD_BYTES


def unindexed(name: bytes, value: bytes) -> bytes:
    """The end of a block: a field that differs each time, and is kept in no table (6.2.2)."""
    size = len(value)
    if size < 0x7F:
        return _name_unindexed(name) + size.to_bytes() + value
    block = bytearray()
    _put_integer(block, 0x00, 0x7F, size)
    return b"".join((_name_unindexed(name), block, value))


@lru_cache(maxsize=64)
def _name_unindexed(name: bytes) -> bytes:
    block = bytearray()
    index = _STATIC_NAME_INDEX.get(name, 0)
    _put_integer(block, 0x00, 0x0F, index)
    if not index:
        _put_integer(block, 0x00, 0x7F, len(name))
        block += name
    return bytes(block)


def _put_integer(block: bytearray, pattern: int, prefix: int, value: int) -> None:
    """An integer behind the bits of `pattern` (5.1)."""
    if value < prefix:
        block.append(pattern | value)
        return
    block.append(pattern | prefix)
    value -= prefix
    while value >= 0x80:
        block.append(value & 0x7F | 0x80)
        value >>= 7
    block.append(value)
