"""Names of target models: what is accepted means exactly itself, everything else is refused."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote_to_bytes

import pytest
from artifact_files import error_of
from hypothesis import given
from hypothesis import strategies as st

from penstock.artifacts.models.index import checked, is_left_out
from penstock.errors import CallerError

GOOD = [
    "customer-17.tar.gz",
    "team/a/model.tar.gz",
    "a",
    "bert",
    "50%.tar.gz",
    "a%20b.tar.gz",
    "a b.onnx",
    "a..b/c...onnx",
    "ärger/日本.tar.gz",
    "a#b?c&d=e.tar.gz",
    "x" * 255,
    "/".join(["d" * 63] * 16),
]
BAD = [
    "",
    "..",
    ".",
    "../a.tar.gz",
    "a/../b.tar.gz",
    "a/..",
    "./a.tar.gz",
    "a/./b",
    "/a.tar.gz",
    "//a.tar.gz",
    "a//b.tar.gz",
    "a/",
    "a.tar.gz/",
    "a\\b",
    "..\\a",
    "C:\\a",
    "a\0.tar.gz",
    "a\nb",
    "a\tb",
    "a\x7f",
    "a\u2028b",
    "a\ud800b",
    "a\ufffdb",
    " a",
    "a ",
    "\u00a0a",
    "%2e%2e/a",
    "%2E%2E%2Fa",
    "a/%2e%2e/b",
    "a%2f%2e%2e%2fb",
    "%252e%252e%252fa",
    "%25252525252525252525252e",
    "%2fetc/passwd",
    "a%00",
    "a%0a",
    "a%5cb",
    "a%2f",
    "%c0%ae%c0%ae/a",
    "%ff",
    ".hidden.tar.gz",
    "team/.hidden/a.tar.gz",
    "%2ehidden",
    "a.tar.gz.part",
    "a.tar.gz.tmp",
    "a.tar.gz~",
    "__MACOSX/a.tar.gz",
    "y" * 256,
    "d/" * 32 + "a",
    "d" * 200 + "/" + "e" * 200 + "/" + "f" * 255 + "/" + "g" * 255 + "/" + "h" * 255,
    "x" * 1025,
]


@pytest.mark.parametrize("name", GOOD)
def test_a_path_below_the_prefix_is_a_name_as_it_stands(name: str) -> None:
    assert checked(name) == name


@pytest.mark.parametrize("name", BAD, ids=[ascii(name)[:40] for name in BAD])
def test_what_could_mean_something_else_further_on_is_refused(name: str) -> None:
    error = error_of(lambda: checked(name))
    assert isinstance(error, CallerError)
    assert (error.code, error.status, error.param) == ("target-model-invalid", 400, "TargetModel")
    assert len(error.message) < 400
    assert error.message.isprintable()


@given(st.text(alphabet=st.sampled_from("a./%2eE5cCfF0\\ ~"), max_size=24))
def test_no_accepted_name_leaves_its_prefix_however_often_it_is_decoded(name: str) -> None:
    """Against a decoder and a path of the standard library, not against the code's own rules."""
    try:
        checked(name)
    except CallerError:
        return
    seen = name.encode()
    for _ in range(12):
        path = posixpath.normpath(posixpath.join(b"/prefix", seen))
        assert path == b"/prefix/" + seen
        assert b"\0" not in path
        assert b"\\" not in path
        seen = unquote_to_bytes(seen)


def test_hidden_and_unfinished_files_are_no_models() -> None:
    for path in (".a", "a/.b/c", "a.part", "a.partial", "b/a.tmp", "a~", ".DS_Store", "._a"):
        assert is_left_out(path)
    for path in ("a", "a.b/c.part.tar.gz", "tmp/a", "part"):
        assert not is_left_out(path)
