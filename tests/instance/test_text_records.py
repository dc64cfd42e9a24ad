"""Records of large data sets, read and written: the same bytes as a request of each alone gives."""

from __future__ import annotations

import json

import numpy as np
import pytest

from penstock.artifacts.description.description import Head
from penstock.errors import ModelError
from penstock.instance.codecs.base import CodecModel
from penstock.instance.codecs.text import TextModel, decode_texts
from penstock.instance.codecs.text_heads import as_json, json_rows
from penstock.instance.codecs.text_records import answers, reader
from penstock.instance.codecs.values import dump_json
from penstock.wire.frames import RequestMeta

LABELS = Head(name="", task="classification", output="o", labels=("yes", 'no "really"'))
WORTH = Head(name="", task="regression", output="o", labels=("worth",))
VECTOR = Head(name="", task="embedding", output="o")
SEVERAL = (
    Head(name="same", task="classification", output="a", labels=("no", "yes", "ü")),
    Head(name="gap", task="regression", output="b", labels=("gap",)),
)
NUMBERS = np.array([[0.1, 0.9], [2 / 3, 1 / 3], [0.5, 0.5], [1e-20, 1.0]], dtype=np.float32)


def model(*heads: Head, task: str = "multi-head") -> TextModel:
    codec = CodecModel(name="m", version="1", inputs=(), outputs=(), batched=True)
    return TextModel(codec, task, heads)


@pytest.mark.parametrize("heads", [(LABELS,), (WORTH,), SEVERAL, SEVERAL[:1], SEVERAL[1:]])
def test_columns_give_the_bytes_of_dictionaries(heads: tuple[Head, ...]) -> None:
    three = np.array([[0.2, 0.3, 0.5], [1, 0, 0], [np.nan, 0, 1]], dtype=np.float32)
    one = np.array([[0.25], [-1.5e-7], [np.inf]], dtype=np.float32)
    outputs = {"score": NUMBERS[:3], "same.score": three, "gap.score": one}
    if heads[0] is WORTH:
        outputs["score"] = one
    written = json_rows(heads, outputs)
    assert written == [dump_json(row) for row in as_json(heads, outputs, 0)]


def test_no_rows_are_no_lines() -> None:
    assert json_rows((LABELS,), {"score": NUMBERS[:0]}) == []


@pytest.mark.parametrize(
    ("heads", "outputs"),
    [((VECTOR,), {"embedding": NUMBERS}), ((WORTH,), {"score": NUMBERS})],
)
def test_results_that_are_more_than_labels_and_numbers_are_no_columns(
    heads: tuple[Head, ...], outputs: dict[str, np.ndarray]
) -> None:
    assert json_rows(heads, outputs) is None


BODIES = [
    b'{"inputs": "good"}',
    b'{"inputs": ["good", "bad"]}',
    b'{"inputs": {"text": "good"}}',
    b'{"inputs": "good", "parameters": {"top_k": 2}}',
    b'["good", "bad"]',
    b'{"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["good"]}]}',
]


@pytest.mark.parametrize("body", BODIES)
def test_a_json_record_is_answered_as_a_request_of_that_body(body: bytes) -> None:
    text_model = model(LABELS, task="text-classification")
    meta = RequestMeta(content_type="application/json")
    record = reader(text_model, meta)(body)
    decoded = decode_texts(text_model, meta, body)
    assert list(record.texts) == decoded.texts
    rows = {"score": NUMBERS[: len(decoded.texts)]}
    assert answers([record.shown], [0, len(record.texts)], rows) == [decoded.encode(rows)[0]]


@pytest.mark.parametrize(
    ("content_type", "line", "texts", "answer"),
    [
        ("application/jsonlines", b'"good"', ["good"], '{"label":"no","score":1.0}'),
        ("application/jsonlines", b'{"text": "a"}', ["a"], '{"label":"no","score":1.0}'),
        ("application/jsonl", b'{"inputs": "a"}', ["a"], '[{"label":"no","score":1.0}]'),
        ("application/x-jsonlines", b'["a"]', ["a"], '[{"label":"no","score":1.0}]'),
        ("text/csv; charset=utf-8", b"a b", ["a b"], '{"label":"no","score":1.0}'),
        ("text/plain", b"a b", ["a b"], '[{"label":"no","score":1.0}]'),
    ],
)
def test_a_line_about_one_text_has_no_list_around_its_answer(
    content_type: str, line: bytes, texts: list[str], answer: str
) -> None:
    head = Head(name="", task="classification", output="o", labels=("yes", "no"))
    read = reader(model(head, task="text-classification"), RequestMeta(content_type=content_type))
    record = read(line)
    assert list(record.texts) == texts
    rows = {"score": NUMBERS[3:]}
    assert answers([record.shown], [0, 1], rows) == [answer.encode()]


def test_records_that_ask_for_other_things_share_a_window() -> None:
    text_model = model(*SEVERAL)
    read = reader(text_model, RequestMeta(content_type="application/jsonlines"))
    lines = [
        b'{"text": "a", "text_pair": "b"}',
        b'{"inputs": ["c", "d"], "parameters": {"heads": ["gap"]}}',
        b'{"text": "e"}',
    ]
    records = [read(line) for line in lines]
    assert [list(record.texts) for record in records] == [[("a", "b")], ["c", "d"], ["e"]]
    outputs = {
        "same.score": np.eye(3, dtype=np.float32)[[0, 1, 2, 0]],
        "gap.score": np.arange(4, dtype=np.float32)[:, None],
    }
    written = answers([*[each.shown for each in records[:2]], None, records[2].shown],
                      [0, 1, 3, 3, 4], outputs)  # fmt: skip
    assert written[2] == b""  # no record: it could not be read
    assert [json.loads(each) for each in written if isinstance(each, bytes) and each] == [
        {"same": {"label": "no", "score": 1.0}, "gap": {"score": 0.0}},
        [{"gap": {"score": 1.0}}, {"gap": {"score": 2.0}}],
        {"same": {"label": "no", "score": 1.0}, "gap": {"score": 3.0}},
    ]


def test_a_pair_is_refused_by_a_model_that_reads_one_text() -> None:
    read = reader(
        model(LABELS, task="text-classification"), RequestMeta(content_type="application/jsonlines")
    )
    with pytest.raises(ModelError, match="reads one text"):
        read(b'{"text": "a", "text_pair": "b"}')


def test_an_accept_that_no_record_can_meet_is_told_at_once() -> None:
    meta = RequestMeta(content_type="application/jsonlines", accept="application/x-npy")
    with pytest.raises(ModelError) as raised:
        reader(model(LABELS), meta)
    assert raised.value.original_status == 406
