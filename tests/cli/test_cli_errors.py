"""Every error that a person can cause reads `error[code]: message` and `hint: ...`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli import main

#: Words of a command line -> exit status, standard output, standard error.
Penstock = Callable[..., tuple[int, str, str]]
NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def penstock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Penstock:
    """Runs a command line in this process."""
    for variable in ("PENSTOCK_URL", "PENSTOCK_KEY", "PENSTOCK_CONFIG"):
        monkeypatch.delenv(variable, raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["penstock", *words])
        with pytest.raises(SystemExit) as ended:
            main.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.mark.parametrize(
    ("words", "message", "command"),
    [
        (("bogus",), "No such command 'bogus'.", "penstock"),
        (("invoke", "shop"), "Missing argument 'body'.", "penstock invoke"),
        (("up", "--port", "http"), "Invalid value for '--port': ", "penstock up"),
        (("logs", "shop", "-n", "0"), "Invalid value for '--lines' / '-n': ", "penstock logs"),
        (("keys",), "Missing command.", "penstock keys"),
        (("keys", "create", "--for", "me"), "No such option: --for", "penstock keys create"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong_and_where_help_is(
    penstock: Penstock, words: tuple[str, ...], message: str, command: str
) -> None:
    status, out, err = penstock(*words)
    first, second = err.splitlines()
    assert (status, out) == (2, "")
    assert first.startswith(f"error[usage]: {message}")
    assert second == f"hint: See '{command} --help'."


def test_no_command_at_all_prints_the_help(penstock: Penstock) -> None:
    status, out, err = penstock()
    assert (status, err) == (0, "")
    assert "Commands" in out
    assert penstock("--version")[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        (("status", "--url", NOBODY), "server-unreachable", 75),
        (("status", "--url", "ftp://here"), "url-invalid", 1),
        (("status", "--url", "http://127.0.0.1:http"), "url-invalid", 1),
        (("status", "--url", "http://[::1"), "url-invalid", 1),
        (("status", "--url", NOBODY, "--key", "a\nb"), "header-invalid", 1),
        (("invoke", "shop", "@/no/such/file", "--url", NOBODY), "body-unreadable", 1),
        (("invoke", "shop", "@/", "--url", NOBODY), "body-unreadable", 1),
        (("deploy", "shop", "/no/such/folder", "--url", NOBODY), "artifact-not-found", 1),
        (("deploy", "sh_op", "s3://b/k", "--url", NOBODY), "endpoint-name-invalid", 1),
        (("deploy", "shop", "s3://b/k", "--env", "A", "--url", NOBODY), "env-invalid", 1),
        (("up", "--deploy", "shop"), "deploy-invalid", 1),
        (("up", "--config", "/no/such/file"), "config-unreadable", 1),
        (("up", "--tls-cert", "cert.pem"), "config-invalid", 1),
        (("up", "--tls-cert", "/no/cert", "--tls-key", "/no/key"), "tls-unusable", 1),
        (("serve", "/no/such/folder"), "artifact-not-found", 1),
        (("serve", "/", "--host", "0.0.0.0"), "credentials-required", 1),
    ],
)
def test_every_error_has_a_code_and_a_hint_and_no_stack_trace(
    penstock: Penstock, words: tuple[str, ...], code: str, status: int
) -> None:
    """75 is sysexits' EX_TEMPFAIL: the same command may pass later."""
    ended, out, err = penstock(*words)
    first, second = err.splitlines()
    assert (ended, out) == (status, "")
    assert first.startswith(f"error[{code}]: ")
    assert second.startswith("hint: ")


def test_an_unknown_key_can_not_be_deleted(penstock: Penstock, tmp_path: Path) -> None:
    words = ("keys", "delete", "nobody", "--state-dir", str(tmp_path / "state"))
    status, _, err = penstock(*words)
    assert (status, err) == (
        1,
        "error[unknown-key]: there is no key 'nobody'\nhint: See 'penstock keys list'.\n",
    )
