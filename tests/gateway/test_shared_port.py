"""A port that gateways share is one server's: no second one joins it unseen."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from penstock.errors import CallerError
from penstock.gateway.http.shared_port import SharedPort

HOST = "127.0.0.1"


def listening(port: int, *, shared: bool) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((HOST, port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def test_several_listen_at_a_kept_port_and_each_connection_is_one_of_theirs() -> None:
    kept = SharedPort(HOST, 0)
    assert kept.port > 0
    with (
        closing(listening(kept.port, shared=True)) as a,
        closing(listening(kept.port, shared=True)) as b,
    ):
        accepted = {a: 0, b: 0}
        for _ in range(200):
            with socket.create_connection((HOST, kept.port), timeout=10):
                for one in (a, b):
                    one.setblocking(False)
                # It is in one of the two queues, and never in the kept socket's.
                took = [one for one in (a, b) if _accepts(one)]
                assert len(took) == 1
                accepted[took[0]] += 1
            if all(accepted.values()):
                break
        assert all(accepted.values())
    kept.close()
    kept.close()


def _accepts(one: socket.socket) -> bool:
    try:
        one.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def test_a_port_where_somebody_listens_is_in_use_even_if_they_would_share_it() -> None:
    """The kernel lets processes of one user join; a server must not take half of another's."""
    with closing(listening(0, shared=True)) as other:
        with pytest.raises(CallerError) as refused:
            SharedPort(HOST, other.getsockname()[1])
        assert refused.value.code == "port-in-use"


def test_while_one_gateway_listens_nobody_who_would_not_share_takes_the_port() -> None:
    kept = SharedPort(HOST, 0)
    with closing(listening(kept.port, shared=True)), pytest.raises(OSError, match="in use"):
        listening(kept.port, shared=False)
    kept.close()
    listening(kept.port, shared=False).close()


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(CallerError) as refused:
        SharedPort("192.0.2.1", 0)
    assert refused.value.code == "address-unknown"
