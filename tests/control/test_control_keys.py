"""`control/access/keys.py`: secrets are shown once, kept safe, and checked from memory."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import update

from penstock.control.access.keys import AccessKeys, KeyRing, NewKey
from penstock.control.database import schema
from penstock.control.store.store import Store
from penstock.core.request.grants import Grant
from penstock.errors import CallerError


def fault_of(ring: KeyRing) -> str:
    """The code of what could not be read; empty if all could."""
    return ring.fault.code if ring.fault is not None else ""


@pytest.fixture
def keys(store: Store, tmp_path: Path) -> AccessKeys:
    (tmp_path / "state").mkdir(exist_ok=True)
    return AccessKeys(store, tmp_path / "state")


def test_a_sigv4_secret_comes_back_for_checking(keys: AccessKeys) -> None:
    made = keys.create_access_key("ci", now=1.0)
    assert len(made.key_id) == 20
    assert len(made.secret) == 40
    assert keys.ring().secret(made.key_id) == made.secret
    assert keys.ring().secret("PENSAAAAAAAAAAAAAAAA") is None


def test_a_bearer_key_is_recognised_whole(keys: AccessKeys) -> None:
    made = keys.create_bearer_key("ci", now=1.0)
    other = keys.create_bearer_key("laptop", now=2.0)
    ring = keys.ring()
    assert ring.bearer(made.secret) == made.key_id
    assert ring.bearer(made.secret) == made.key_id  # also from the ring's memory
    assert ring.bearer(made.secret[:-1] + ("A" if made.secret[-1] != "A" else "B")) is None
    assert ring.bearer(made.secret.replace(made.key_id, other.key_id)) is None
    for wrong in ("", "psk_", made.key_id, made.secret + "x", "psk_ü", "x" * 10_000):
        assert ring.bearer(wrong) is None


def test_no_secret_is_stored_in_clear(keys: AccessKeys, tmp_path: Path) -> None:
    sigv4, bearer = keys.create_access_key("a", now=1.0), keys.create_bearer_key("b", now=2.0)
    for file in (tmp_path / "state").iterdir():
        content = file.read_bytes()
        assert sigv4.secret.encode() not in content
        assert bearer.secret.encode() not in content
    listed = [(record.secret, record.salt) for record in keys.list()]
    assert listed == [(b"", b"")] * 2
    assert (tmp_path / "state" / "keys.key").stat().st_mode & 0o777 == 0o600


def test_keys_are_listed_oldest_first_and_a_deleted_one_opens_nothing(keys: AccessKeys) -> None:
    old = keys.create_bearer_key("old", now=1.0)
    new = keys.create_access_key("new", now=2.0)
    assert [(one.key_id, one.kind, one.label) for one in keys.list()] == [
        (old.key_id, "bearer", "old"),
        (new.key_id, "sigv4", "new"),
    ]
    ring = keys.ring()
    assert ring.bearer(old.secret) == old.key_id
    keys.delete(old.key_id)
    ring.take(keys.ring())
    assert ring.bearer(old.secret) is None
    assert len(ring) == 1
    with pytest.raises(CallerError) as raised:
        keys.delete(old.key_id)
    assert raised.value.code == "unknown-key"


def test_a_lost_or_foreign_key_file_is_told_and_not_replaced(
    keys: AccessKeys, tmp_path: Path
) -> None:
    """A new file would make the old secrets unreadable for ever."""
    keys.create_access_key("a", now=1.0)
    path = tmp_path / "state" / "keys.key"
    good = path.read_bytes()
    path.unlink()
    assert fault_of(keys.ring()) == "key-file-missing"
    with pytest.raises(CallerError) as raised:
        keys.create_access_key("b", now=2.0)
    assert raised.value.code == "key-file-missing"
    path.write_bytes(b"nonsense")
    assert fault_of(keys.ring()) == "key-file-wrong"
    path.write_bytes(b"A" * 43 + b"=")
    assert fault_of(keys.ring()) == "key-file-wrong"
    path.write_bytes(good)
    assert fault_of(keys.ring()) == ""
    assert len(keys.ring()) == 1


@pytest.mark.parametrize("key_file", [None, b"nonsense"])
def test_a_deleted_key_opens_nothing_while_the_key_file_is_away(
    keys: AccessKeys, tmp_path: Path, key_file: bytes | None
) -> None:
    """What is revoked stays revoked whatever else is broken, and what is not goes on working."""
    bearer, other = keys.create_bearer_key("a", now=1.0), keys.create_bearer_key("b", now=2.0)
    sigv4, kept = keys.create_access_key("c", now=3.0), keys.create_access_key("d", now=4.0)
    ring = keys.ring()
    assert ring.secret(sigv4.key_id) == sigv4.secret
    path = tmp_path / "state" / "keys.key"
    path.unlink()
    if key_file is not None:
        path.write_bytes(key_file)
    keys.delete(bearer.key_id)
    keys.delete(sigv4.key_id)
    ring.take(keys.ring())
    assert ring.bearer(bearer.secret) is None
    assert ring.secret(sigv4.key_id) is None
    assert ring.grant(sigv4.key_id) is None
    assert ring.bearer(other.secret) == other.key_id
    assert ring.secret(kept.key_id) == kept.secret
    assert fault_of(ring)


@pytest.mark.parametrize(
    ("column", "value"),
    [("scope", "everything"), ("secret", b""), ("secret", b"\xff"), ("salt", b"")],
)
def test_a_key_that_can_not_be_read_opens_nothing_and_keeps_no_other_from_being_revoked(
    keys: AccessKeys, store: Store, column: str, value: object
) -> None:
    bad = [keys.create_access_key("a", now=1.0), keys.create_bearer_key("b", now=2.0)]
    revoked, kept = keys.create_bearer_key("c", now=3.0), keys.create_access_key("d", now=4.0)
    ring = keys.ring()
    with store.begin() as db:
        table = schema.keys
        spoilt = update(table).where(table.c.key_id.in_([one.key_id for one in bad]))
        db.execute(spoilt.values({column: value}))
    keys.delete(revoked.key_id)
    ring.take(keys.ring())
    assert ring.bearer(revoked.secret) is None
    assert ring.secret(kept.key_id) == kept.secret
    assert ring.bearer(bad[1].secret) is None
    if column != "salt":  # a SigV4 key has none
        assert ring.secret(bad[0].key_id) is None


def test_a_secret_that_is_no_text_is_that_keys_alone(keys: AccessKeys, store: Store) -> None:
    bad, kept = keys.create_access_key("a", now=1.0), keys.create_access_key("b", now=2.0)
    sealed = keys._file.open(create=False).encrypt(b"\xff")
    with store.begin() as db:
        table = schema.keys
        db.execute(update(table).where(table.c.key_id == bad.key_id).values(secret=sealed))
    ring = keys.ring()
    assert ring.secret(kept.key_id) == kept.secret
    assert (ring.secret(bad.key_id), fault_of(ring)) == (None, "key-file-wrong")


def test_keys_that_are_made_at_once_can_all_be_read(tmp_path: Path) -> None:
    """The first ones make the file that secrets are encrypted with: there must be only one."""
    state_dir = tmp_path / "state"
    opened = Store(state_dir)
    at_once = 8
    together = threading.Barrier(at_once)

    def make(number: int) -> NewKey:
        store = Store(state_dir)
        together.wait()
        try:
            return AccessKeys(store, state_dir).create_access_key(f"key {number}", now=1.0)
        finally:
            store.close()

    with ThreadPoolExecutor(at_once) as threads:
        made = list(threads.map(make, range(at_once)))
    ring = AccessKeys(opened, state_dir).ring()
    opened.close()
    assert fault_of(ring) == ""
    assert [ring.secret(key.key_id) for key in made] == [key.secret for key in made]
    assert not (state_dir / ".keys.key.new").exists()


def test_a_key_keeps_its_scope_and_its_endpoints(keys: AccessKeys) -> None:
    grant = Grant("invoke", frozenset({"shop", "search"}))
    made = [make("a", now=1.0, grant=grant) for make in
            (keys.create_bearer_key, keys.create_access_key)]  # fmt: skip
    plain = keys.create_access_key("b", now=2.0)
    ring = keys.ring()
    assert [ring.grant(one.key_id) for one in made] == [grant, grant]
    assert ring.grant(plain.key_id) == Grant("admin")
    assert {one.grant for one in keys.list()} == {grant, Grant("admin")}
    assert ring.grant("PENSAAAAAAAAAAAAAAAA") is None


def test_bearer_keys_need_no_key_file(keys: AccessKeys, tmp_path: Path) -> None:
    keys.create_bearer_key("a", now=1.0)
    assert len(keys.ring()) == 1
    assert not (tmp_path / "state" / "keys.key").exists()


def test_an_empty_ring_opens_nothing() -> None:
    assert KeyRing().secret("") is None
    assert KeyRing().bearer("") is None
    assert len(KeyRing()) == 0


def test_a_label_is_short_and_printable(keys: AccessKeys) -> None:
    for label in ("x" * 129, "a\nb"):
        with pytest.raises(CallerError):
            keys.create_bearer_key(label, now=1.0)


def test_a_ring_of_another_process_opens_the_same_and_is_replaced_whole(keys: AccessKeys) -> None:
    """A gateway process is told all keys, and with a change all of them again."""
    some = Grant("invoke", frozenset({"one", "two"}))
    signing = keys.create_access_key("a", now=1.0, grant=Grant("operate"))
    bearer = keys.create_bearer_key("b", now=2.0, grant=some)
    told = json.loads(json.dumps(keys.ring().to_json()))
    there = KeyRing()
    there.take_json(told)
    assert len(there) == 2
    assert there.secret(signing.key_id) == signing.secret
    assert there.bearer(bearer.secret) == bearer.key_id
    assert there.bearer(bearer.secret[:-1] + "!") is None
    assert there.grant(signing.key_id) == Grant("operate")
    assert there.grant(bearer.key_id) == some
    keys.delete(bearer.key_id)
    there.take_json(keys.ring().to_json())
    assert there.bearer(bearer.secret) is None  # though it was accepted before
    assert there.grant(bearer.key_id) is None
    assert there.secret(signing.key_id) == signing.secret
