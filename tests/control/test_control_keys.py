"""`control/keys.py`: secrets are shown once, kept safe, and checked from memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.control.keys import AccessKeys, KeyRing
from penstock.control.store import Store
from penstock.errors import CallerError


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
    for record in keys.list():
        assert (record.secret, record.salt) == (b"", b"")
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
    for call in (keys.ring, lambda: keys.create_access_key("b", now=2.0)):
        with pytest.raises(CallerError) as raised:
            call()
        assert raised.value.code == "key-file-missing"
    path.write_bytes(b"nonsense")
    with pytest.raises(CallerError) as raised:
        keys.ring()
    assert raised.value.code == "key-file-wrong"
    path.write_bytes(b"A" * 43 + b"=")
    with pytest.raises(CallerError) as raised:
        keys.ring()
    assert raised.value.code == "key-file-wrong"
    path.write_bytes(good)
    assert len(keys.ring()) == 1


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
