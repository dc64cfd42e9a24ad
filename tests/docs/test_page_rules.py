"""What a page's blocks are, and that a page which is wrong fails."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.kit import page_checks
from tests.kit.page_run import PageFailed, PageRun
from tests.kit.pages import NETWORK, ROOT, PageBlock, blocks, differs


def block(
    text: str, *, language: str = "sh", before: str = "", words: dict[str, str] | None = None
) -> PageBlock:
    return PageBlock("page.md", 1, language, text, before, words or {})


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (block("x", language="yaml", before="The settings, `a/model.yaml`:"), "file"),
        (block("x", language="python", before="`code/inference.py`:"), "file"),
        (block("x", language="json", before="`penstock up --config a.toml`:"), "read"),
        (block("x", language="json", before="You should now see:"), "output"),
        (block("x", before="In a terminal of its own:"), "terminal"),
        (block("x", before="Stop it with Ctrl-C, and in the same terminal:"), "restart"),
        (block("x"), "shell"),
        (block("x", language="python"), "python"),
        (block("x", words={"needs": "gpu"}), "check"),
        (block("x", language="text"), "read"),
    ],
)
def test_what_a_block_is_follows_from_its_language_and_the_line_before(
    made: PageBlock, kind: str
) -> None:
    assert made.kind == kind


@pytest.mark.parametrize(
    ("expected", "printed", "missing"),
    [
        ("[1, 2]\n", "a line\n[1, 2]\n", ""),
        ("a\nb\n", "b\na\n", "b"),
        ("a    b\n", "a b\n", ""),
        ('{"x": ...}\n', '{"x": 1.25}\n', ""),
        ("(x...\n", "(x\n", ""),
        ("[1]\n", "[1] and more\n", "[1]"),
        ("a\n...\nb\n", "a\nc\nd\nb\n", ""),
        ("a\na\n", "a\n", "a"),
    ],
)
def test_lines_of_an_output_are_found_in_their_order(
    expected: str, printed: str, missing: str
) -> None:
    assert differs(expected, printed) == missing


@pytest.mark.parametrize(
    "wrong",
    [
        "penstock deploy NAME DIR --instance m5",
        "penstock depoy NAME DIR",
        "X=1 penstock up --prt 8080  # a comment",
        "penstock deploy NAME \\\n  DIR --no-such",
    ],
)
def test_a_command_that_is_not_run_is_checked(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"no command|[Nn]o such option"):
        page_checks.options(block(wrong, words={"needs": "gpu"}))
    page_checks.options(block("docker build .\nX=1 penstock up --port 8080 | tee log  # ok"))


@pytest.mark.parametrize(
    ("language", "text"),
    [("json", "{'a': 1}"), ("toml", "a = "), ("yaml", "a: [1"), ("pbtxt", "{")],
)
def test_a_format_that_is_not_run_is_checked(language: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"is no {language}"):
        page_checks.read(block(text, language=language))


def test_an_unknown_word_after_the_language_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# x\n\n```sh nees=gpu\nx\n```\n")
    with pytest.raises(ValueError, match="unknown words"):
        blocks(page)


@pytest.fixture
def run(tmp_path: Path) -> PageRun:
    return PageRun(tmp_path)


def test_blocks_of_a_page_share_a_shell_and_a_python(run: PageRun, tmp_path: Path) -> None:
    try:
        run.run(block("export A=1\nmkdir -p x\ncd x\nB=2\n"))
        run.run(block('echo "$A ${B-none} $(basename "$PWD") $HOME"\n'))
        assert run.printed == f"1 none x {tmp_path}/home\n"
        run.run(block("export PATH=$OLDPWD/.venv/bin:$PATH; cd ..\n"))
        run.run(block("a = 1\n", language="python"))
        run.run(block("import os; print(a, os.environ['A'])\n", language="python"))
        run.run(block("1 1\n", language="text", before="You should now see:"))
    finally:
        run.close()
    assert run.counts == {"shell": 3, "python": 2, "output": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        block("false\ntrue\n"),
        block("exit 1\n", words={"status": "2"}),
        block("raise SystemExit(0)\n", language="python"),
        block("never printed\n", language="text", before="You should now see:"),
    ],
)
def test_a_block_that_does_something_else_fails_the_page(run: PageRun, wrong: PageBlock) -> None:
    try:
        run.run(block("export PATH=$PWD/.venv/bin:$PATH\n"))
        with pytest.raises(PageFailed):
            run.run(wrong)
    finally:
        run.close()


@pytest.mark.parametrize("needs", ["nothing", NETWORK])
def test_no_snippet_reaches_anything_but_the_loopback(tmp_path: Path, needs: str) -> None:
    """An AWS client without an endpoint is refused before it leaves the machine."""
    page = tmp_path / "page.md"
    page.write_text(
        f"# A page of blocks that {needs}\n"
        + textwrap.dedent("""\

            ```sh
            export PATH=$PWD/.venv/bin:$PATH
            ```

            ```python
            import boto3
            from botocore.config import Config

            config = Config(retries={"max_attempts": 0}, connect_timeout=20)
            keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
            client = boto3.client("sagemaker", region_name="us-east-1", config=config, **keys)
            try:
                client.list_models()
            except Exception as error:
                print(type(error).__name__)
            ```

            You should now see:

            ```text
            ...ConnectionError
            ```
            """)
    )
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.page_run", str(page)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
