"""A tokenizer file is checked while the model loads, not by the first request."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit import model_files
from tokenizers import Tokenizer as Library
from tokenizers import processors

from penstock.artifacts.description.description import Tokenizer
from penstock.errors import ModelError
from penstock.instance.engines.text_tokens import open_tokenizer


def with_special_tokens(folder: Path) -> None:
    model_files.tokenizer(folder)
    made = Library.from_file(str(folder / "tokenizer.json"))
    made.post_processor = processors.TemplateProcessing(
        single="[UNK] $A [UNK]", pair="[UNK] $A [UNK] $B:1 [UNK]:1", special_tokens=[("[UNK]", 1)]
    )
    made.save(str(folder / "tokenizer.json"))


def refused(folder: Path, spec: Tokenizer | None, *, width: int = 0, pairs: bool = False) -> str:
    with pytest.raises(ModelError) as caught:
        open_tokenizer(folder, spec, width, pairs=pairs)
    assert caught.value.hint
    return caught.value.code


def test_the_longer_of_two_texts_is_cut_first(tmp_path: Path) -> None:
    with_special_tokens(tmp_path)
    tokenizer = open_tokenizer(tmp_path, Tokenizer(tokens_max=8), 0, pairs=True)
    [encoding] = tokenizer.encode_batch([("good good good good good good", "bad film")])
    assert encoding.ids == [1, 2, 2, 2, 1, 3, 6, 1]
    assert encoding.type_ids == [0, 0, 0, 0, 0, 1, 1, 1]


def test_a_graph_of_one_length_bounds_the_tokens(tmp_path: Path) -> None:
    model_files.tokenizer(tmp_path)
    tokenizer = open_tokenizer(tmp_path, Tokenizer(tokens_max=16), 3)
    assert tokenizer.encode_batch(["good bad film book"])[0].ids == [2, 3, 6]


def test_there_must_be_room_for_a_token_of_each_text(tmp_path: Path) -> None:
    with_special_tokens(tmp_path)
    assert refused(tmp_path, Tokenizer(tokens_max=2)) == "tokens-max-too-small"
    assert refused(tmp_path, Tokenizer(tokens_max=4), pairs=True) == "tokens-max-too-small"
    assert refused(tmp_path, Tokenizer(tokens_max=9), width=2) == "tokens-max-too-small"
    tokenizer = open_tokenizer(tmp_path, Tokenizer(tokens_max=3), 0)
    assert tokenizer.encode_batch(["good bad"])[0].ids == [1, 2, 1]


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path, None) == "tokenizer-missing"
    assert refused(tmp_path, Tokenizer()) == "tokenizer-missing"
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
    assert refused(tmp_path, Tokenizer()) == "tokenizer-unreadable"


def test_long_texts_are_tokenized_in_portions_and_alike(tmp_path: Path) -> None:
    """Three texts of 30,000 characters are more than one portion; none is worth more than four."""
    model_files.tokenizer(tmp_path)
    tokenizer = open_tokenizer(tmp_path, Tokenizer(tokens_max=4), 0)
    long = "good bad " * 4000
    encodings = tokenizer.encode_batch([long, "film", long, (long, "film"), long])
    assert [each.ids for each in encodings] == [
        [2, 3, 2, 3],
        [6],
        [2, 3, 2, 3],
        [2, 3, 2, 6],
        [2, 3, 2, 3],
    ]


@pytest.mark.parametrize("words", [0, 1, 100, 4000])
def test_a_text_or_pair_alone_has_the_tokens_that_it_has_among_others(
    tmp_path: Path, words: int
) -> None:
    with_special_tokens(tmp_path)
    tokenizer = open_tokenizer(tmp_path, Tokenizer(tokens_max=16), 0, pairs=True)
    text = "good " * words
    for one in (text, (text, "film")):
        [alone], [among, _] = tokenizer.encode_batch([one]), tokenizer.encode_batch([one, "film"])
        assert (alone.ids, alone.type_ids) == (among.ids, among.type_ids)


def test_models_with_the_same_tokenizer_have_one_of_it(tmp_path: Path) -> None:
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    model_files.tokenizer(first)
    model_files.tokenizer(second)
    with_special_tokens(other)
    spec = Tokenizer(tokens_max=16)
    tokenizer = open_tokenizer(first, spec, 0)
    assert open_tokenizer(second, spec, 0) is tokenizer
    assert open_tokenizer(second, Tokenizer(tokens_max=8), 0) is not tokenizer
    assert open_tokenizer(second, spec, 0, pairs=True) is not tokenizer
    assert open_tokenizer(other, spec, 0) is not tokenizer
    model_files.tokenizer(other)
    assert open_tokenizer(other, spec, 0) is tokenizer  # by content, not by name
