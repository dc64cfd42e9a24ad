"""The command line as somebody meets it first: init, deploy, call, look, delete."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import EXAMPLES, Server, penstock
from tools.free_port import free_port

pytestmark = [pytest.mark.system, pytest.mark.integration]

#: Loads once the file exists that its variable names.
PATIENT = """
import os, time

def model_fn(model_dir):
    print("waiting for the word")
    while not os.path.exists(os.environ["MAY_LOAD"]):
        time.sleep(0.05)

def predict_fn(data, model):
    return data
"""


@pytest.fixture
def patient(tmp_path: Path) -> Path:
    return python_model(tmp_path / "patient", PATIENT)


def curl_line(printed: str) -> str:
    (line,) = [line.strip() for line in printed.splitlines() if line.startswith("  curl ")]
    return line


def shell(line: str) -> str:
    return subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_what_init_writes_is_deployed_and_answers_what_deploy_prints(
    empty_server: Server, tmp_path: Path
) -> None:
    (tmp_path / "my.bin").write_bytes(b"12345")
    written = penstock("init", "python", "my.bin", cwd=tmp_path)
    assert written.stdout.splitlines()[0] == "penstock deploy my my"
    told = penstock("deploy", "my", str(tmp_path / "my"), server=empty_server)
    assert told.stderr.splitlines()[-1] == f"endpoint my is InService at {empty_server.url}"
    answer = json.loads(shell(curl_line(told.stdout)))
    assert answer == {"received": {"inputs": [[1, 2, 3]]}, "model_bytes": 5}
    shown = penstock("describe", "my", server=empty_server).stdout
    assert "model.yaml names the runtime python" in shown
    assert curl_line(shown) == curl_line(told.stdout)
    gone = penstock("delete", "my", server=empty_server).stderr
    assert "configuration my-" in gone.splitlines()[0]
    assert "artifacts stay" in gone.splitlines()[0]


def test_a_pipeline_of_init_answers(empty_server: Server, tmp_path: Path) -> None:
    penstock("init", "pipeline", "--out", "steps", cwd=tmp_path)
    penstock("deploy", "steps", str(tmp_path / "steps"), server=empty_server)
    body = '{"question": "where"}'
    told = json.loads(penstock("invoke", "steps", body, server=empty_server).stdout)
    assert told["text"] == "You asked: where"
    penstock("delete", "steps", server=empty_server)


def test_a_text_models_request_is_a_text(empty_server: Server) -> None:
    folder = str(EXAMPLES / "query_intent" / "artifact")
    told = penstock("deploy", "intent", folder, server=empty_server)
    assert "label" in json.loads(shell(curl_line(told.stdout)))[0]
    script = told.stdout.partition("<<'PY'\n")[2].partition("\n  PY")[0]
    lines = "\n".join(line.removeprefix("  ") for line in script.splitlines())
    ran = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(ran.stdout) == json.loads(shell(curl_line(told.stdout)))
    penstock("delete", "intent", server=empty_server)


def test_without_a_terminal_each_phase_has_a_line(
    empty_server: Server, patient: Path, tmp_path: Path
) -> None:
    """A line a phase, the same for everybody; nothing at all with --json or --quiet."""
    word = tmp_path / "word"
    command = ["deploy", "patient", str(patient), "--env", f"MAY_LOAD={word}"]
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", *command],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        env=os.environ | {"PENSTOCK_URL": empty_server.url},
    ) as deploying:  # fmt: skip
        assert deploying.stderr is not None
        lines = []
        for line in deploying.stderr:
            lines.append(line.strip())
            if line.strip() == "patient: loading the model":
                copies = empty_server.get("/admin/endpoints/patient/deploying")["copies"]
                assert [one["phase"] for one in copies] == ["loading"]
                word.touch()
    assert deploying.returncode == 0
    assert lines[-2:] == [
        "patient: loading the model",
        f"endpoint patient is InService at {empty_server.url}",
    ]
    for flag in ("--json", "--quiet"):
        quiet = penstock(*command[:3], "--env", f"MAY_LOAD={word}", "--env", f"FLAG={flag}", flag,
                         server=empty_server)  # fmt: skip
        assert "loading" not in quiet.stderr
    penstock("delete", "patient", server=empty_server)


def test_a_terminal_has_one_line_that_is_updated(
    empty_server: Server, patient: Path, tmp_path: Path
) -> None:
    word = tmp_path / "word"
    ours, theirs = pty.openpty()
    seen: list[bytes] = []
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", "deploy", "patient", str(patient),
         "--env", f"MAY_LOAD={word}"],
        stderr=theirs, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        env=os.environ | {"PENSTOCK_URL": empty_server.url, "TERM": "xterm", "COLUMNS": "200"},
    ):  # fmt: skip
        os.close(theirs)

        def read() -> None:
            try:
                while piece := os.read(ours, 4096):
                    seen.append(piece)
            except OSError:
                return  # the other end is closed

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        wait_until(lambda: b"patient: loading the model" in b"".join(seen), "the line", 60)
        wait_until(lambda: b"waiting for the word" in b"".join(seen), "the log's last line", 60)
        word.touch()
    reader.join(10)
    shown = b"".join(seen)
    last = shown.rfind(b"loading the model")
    assert b"\r\x1b[2K" in shown  # the line is cleared, not followed by another
    assert b"\n" not in shown[shown.find(b"loading the model") : last]
    assert b"endpoint patient is InService" in shown[last:]
    penstock("delete", "patient", server=empty_server)


def test_logs_are_followed_and_failed_endpoints_are_swept(
    empty_server: Server, tmp_path: Path
) -> None:
    broken = python_model(tmp_path / "broken", "raise RuntimeError('no such luck')\n")
    penstock("deploy", "broken", str(broken), server=empty_server, status=1)
    shown = penstock("status", server=empty_server).stdout
    grouped = shown.partition("failed endpoints")[2]
    assert "broken" in grouped
    assert "broken" not in shown.partition("failed endpoints")[0]
    assert max(map(len, shown.splitlines())) < 300
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", "logs", "broken", "-f"],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"PENSTOCK_URL": empty_server.url},
    ) as following:  # fmt: skip
        patience = threading.Timer(60, following.kill)
        patience.start()
        assert following.stdout is not None
        assert any("no such luck" in line for line in following.stdout)
        path = empty_server.get("/admin/endpoints/broken/models-served")["logs"][-1]
        with Path(path).open("a") as log:
            log.write("one more line\n")
        assert any("one more line" in line for line in following.stdout)
        patience.cancel()
        following.kill()
    penstock("delete", "--failed", server=empty_server)
    assert "broken" not in penstock("status", server=empty_server).stdout


def test_the_shell_completes_commands() -> None:
    told = penstock(
        env={"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "penstock de", "COMP_CWORD": "1"}
    )
    assert told.stdout.split() == ["deploy", "describe", "delete"]


def test_a_shell_completes_names_of_endpoints(empty_server: Server, tmp_path: Path) -> None:
    """As the scripts of --install-completion ask; without a server it completes nothing."""
    (tmp_path / "my.bin").write_bytes(b"12345")
    penstock("init", "python", "my.bin", "--out", "named", cwd=tmp_path)
    penstock("deploy", "named-so", str(tmp_path / "named"), server=empty_server)

    def completed(words: str, url: str) -> list[str]:
        asked = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": words, "PENSTOCK_URL": url}
        ran = subprocess.run(
            [Path(sys.executable).parent / "penstock"], capture_output=True, text=True,
            env=os.environ | asked | {"COMP_CWORD": str(words.count(" "))},
            check=False, timeout=60,
        )  # fmt: skip
        return ran.stdout.split()

    for command in ("invoke", "describe", "delete", "logs", "status"):
        assert completed(f"penstock {command} nam", empty_server.url) == ["named-so"]
    assert completed("penstock invoke other", empty_server.url) == []
    assert completed("penstock invoke nam", f"http://127.0.0.1:{free_port()}") == []
    penstock("delete", "named-so", server=empty_server)
