"""Every error that a person can cause reads `error[code]: message` and `hint: ...`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from penstock.cli import main

#: Words of a command line -> exit status, standard output, standard error.
Penstock = Callable[..., tuple[int, str, str]]
NOBODY = "http://127.0.0.1:1"


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
        (("deploy", "sh_op", "/no/such/folder", "--url", NOBODY), "artifact-not-found", 1),
        (("deploy", "shop", "--url", NOBODY), "usage", 1),
        (("deploy", "_", "s3://b/k", "--url", NOBODY), "endpoint-name-invalid", 1),
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
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "the caller's own"
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


#: Every option that names a file or a folder to write: words before it, and its place.
OUTPUTS = {
    "cost --html": ("cost", "--usage", "{here}/usage.json", "--html"),
    "tune --png": ("tune", "{here}", "--p99-ms", "5", "--png"),
    "compile --output": ("compile", "{here}/model.onnx", "--output"),
    "package --out": ("package", "{here}/package.yaml", "--out"),
}
#: How the help of such an option begins.
WRITES = ("write a", "draw ", "folder to make", "folder for")


@pytest.mark.parametrize("words", OUTPUTS.values(), ids=OUTPUTS)
@pytest.mark.parametrize("place", ["{here}/a-file/x", "/proc/x"])
def test_a_place_that_can_not_be_written_to_is_an_error_in_words(
    penstock: Penstock, tmp_path: Path, words: tuple[str, ...], place: str
) -> None:
    (tmp_path / "a-file").write_text("")
    (tmp_path / "usage.json").write_text('{"instances": []}')
    (tmp_path / "package.yaml").write_text("schema: 1\npackage: a\nversion: '1'\n")
    (tmp_path / "model.onnx").write_bytes(b"")
    status, out, err = penstock(*(word.format(here=tmp_path) for word in (*words, place)))
    assert (status, out) in {(1, ""), (75, "")}
    assert err.startswith("error[")
    assert "Traceback" not in err


def test_a_folder_is_no_page_and_is_left_alone(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "usage.json").write_text('{"instances": []}')
    usage = str(tmp_path / "usage.json")
    status, _, err = penstock("cost", "--usage", usage, "--html", str(tmp_path))
    assert status == 1
    assert err.splitlines() == [
        f"error[output-impossible]: {tmp_path} can't be written: it is a folder",
        "hint: Make the folder first, or give another file.",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["usage.json"]


def test_no_command_has_an_option_for_an_output_that_is_not_tried() -> None:
    """One that is added is added to `OUTPUTS`."""
    found = set()
    commands = [((), typer.main.get_command(main.app))]
    while commands:
        words, command = commands.pop()
        for name, inner in getattr(command, "commands", {}).items():
            commands.append(((*words, name), inner))
        for option in command.params:
            if str(getattr(option, "help", "")).lower().startswith(WRITES):
                found.add(f"{' '.join(words)} {max(option.opts, key=len)}")
    assert found == set(OUTPUTS)
