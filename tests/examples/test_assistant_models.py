"""What the assistant's models are made of and fed with, and that the committed ones do their work.

Shoppers' questions are turned into facts by code, so most rules are about texts; the language model
and the encoder are asked as they are served.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import islice
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.examples.assistant_site import ASSISTANT

from penstock.runtimes.openvino.runtime import arithmetic

# isort: split
import catalogue
from asked import meets, read
from dialogues import WEIGHTS, Dialogues, Scene, Turn
from judge import facts_right, judged, names_right
from prompt import INSTRUCTION, facts, messages_of, search_text

SHOE = {
    "id": "p00001", "title": "Northfell Alta trail shoe", "brand": "Northfell",
    "kind": "trail shoe", "category": "footwear", "colour": "blue", "material": "mesh",
    "price_cents": 4999, "rating": 4.6, "reviews": 12, "description": "",
    "features": ("waterproof", "with deep lugs", "for hiking"),
}  # fmt: skip
CHEAP = SHOE | {
    "id": "p00002", "title": "Bruxo Kite running shoe", "brand": "Bruxo", "kind": "running shoe",
    "colour": "red", "price_cents": 3950, "rating": 4.1, "features": ("lightweight", "for running"),
}  # fmt: skip
TENT = SHOE | {
    "id": "p00003", "title": "Velmora Dune tent", "brand": "Velmora", "kind": "tent",
    "category": "outdoors", "colour": "green", "material": "nylon", "price_cents": 19900,
    "rating": 4.9, "features": ("waterproof", "for families"),
}  # fmt: skip
SHELF = (SHOE, CHEAP, TENT)


def told(question: str, *, before: str = "") -> str:
    history = ({"role": "user", "content": "hm"}, {"role": "assistant", "content": before})
    return facts(question, SHELF, history if before else ())


class TestCatalogue:
    def test_one_seed_is_one_catalogue(self) -> None:
        assert catalogue.make_catalogue(3, 200) == catalogue.make_catalogue(3, 200)
        assert catalogue.make_catalogue(3, 200) != catalogue.make_catalogue(4, 200)

    def test_four_thousand_products_have_names_of_their_own(self) -> None:
        products = catalogue.make_catalogue()
        assert len(products) == len({each.title for each in products}) == 4000
        assert [each.id for each in products[:2]] == ["p00001", "p00002"]
        assert catalogue.link(products[0]) == "/products/p00001"

    def test_more_products_than_names_are_refused(self) -> None:
        with pytest.raises(ValueError, match="titles"):
            catalogue.make_catalogue(count=100_000)

    def test_every_kind_has_a_picture_that_is_whole(self) -> None:
        products = {each.kind: each for each in catalogue.make_catalogue()}
        assert len(products) == len(catalogue.shop()["kinds"])
        for product in products.values():
            picture = ElementTree.fromstring(catalogue.image_svg(product))
            assert picture.tag.endswith("svg")
            assert product.title in "".join(picture.itertext())

    def test_a_picture_shows_colour_and_category(self) -> None:
        products = catalogue.make_catalogue()
        red = next(each for each in products if (each.kind, each.colour) == ("mug", "red"))
        assert "#cf3f3c" in catalogue.image_svg(red)
        assert "#fbefe4" in catalogue.image_svg(red)
        tent = next(each for each in products if each.kind == "tent")
        assert "#e3f0ea" in catalogue.image_svg(tent)


class TestAsked:
    @pytest.mark.parametrize(
        ("question", "labels"),
        [
            ("a blue waterproof tent under $200", ["tent", "blue", "waterproof", "under $200"]),
            ("hiking boots for snow", ["hiking boot", "for snow"]),
            ("bluetooth keyboards for at most 80 dollars", ["keyboard", "wireless", "under $80"]),
            ("a tent with at least 4.5 stars", ["tent", "4.5 stars up"]),
            ("sneakers, $60 or less", ["sneaker", "under $60"]),
            ("a mug that is not red", ["mug", "not red"]),
            ("what is the weather like?", []),
            ("", []),
        ],
    )
    def test_reads_what_the_shop_knows(self, question: str, labels: list[str]) -> None:
        assert [term.label for term in read(question)] == labels

    def test_a_wider_word_means_several_kinds(self) -> None:
        (term,) = read("shoes")
        assert term.values == ("trail shoe", "running shoe")

    def test_negatives_are_met_by_the_others(self) -> None:
        mug, red = read("a mug, not red")
        assert not meets(red, CHEAP | {"kind": "mug"})
        assert meets(red, SHOE | {"kind": "mug"})
        assert not meets(mug, SHOE)


class TestPrompt:
    def test_products_come_first_and_facts_behind_the_question(self) -> None:
        assert messages_of("a blue shoe", SHELF[:2]) == [
            {
                "role": "system",
                "content": f"{INSTRUCTION}\n"
                "[1] Northfell Alta trail shoe, blue, mesh, $49.99, 4.6 stars, waterproof, with "
                "deep lugs, for hiking\n"
                "[2] Bruxo Kite running shoe, red, mesh, $39.50, 4.1 stars, lightweight, for "
                "running",
            },
            {
                "role": "user",
                "content": "a blue shoe\n"
                "(shoe [1] [2]; blue [1]; fits [1]; cheapest and best rated [1])",
            },
        ]

    def test_a_product_of_another_kind_is_never_close(self) -> None:
        assert told("a green shoe") == (
            "(shoe [1] [2]; green [3]; fits none; closest [1]; cheapest [2]; best rated [1])"
        )

    def test_names_places_and_it_are_looked_up(self) -> None:
        assert "about [2] [1]" in told("compare the Bruxo Kite and the Northfell Alta")
        assert "about [2]" in told("how much is the second one?")
        assert "about [3]" in told("is it waterproof?", before="Take the Velmora Dune tent.")
        assert "about" not in told("is it waterproof?")
        assert "about" not in told("a tent?", before="Take the Velmora Dune tent.")

    def test_cheaper_is_meant_within_the_kind(self) -> None:
        assert "cheaper none" in told("anything cheaper?", before="The Velmora Dune tent is good.")

    def test_equals_stand_together(self) -> None:
        twin = SHOE | {"title": "Harrowby Fern trail shoe"}
        assert facts("hello", (SHOE, twin)) == (
            "(nothing known none; cheapest and best rated [1] [2])"
        )

    def test_without_products_there_are_no_facts(self) -> None:
        assert messages_of("hello", ()) == [
            {"role": "system", "content": f"{INSTRUCTION}\nNo products."},
            {"role": "user", "content": "hello"},
        ]

    def test_four_products_and_the_last_exchange_are_kept(self) -> None:
        history = [
            {"role": "user", "content": "one"}, {"role": "assistant", "content": "first"},
            {"role": "user", "content": "two"},
            {"role": "assistant", "content": "The Velmora Dune tent [3] is good."},
        ]  # fmt: skip
        messages = messages_of("x\n[9] y " + "z" * 999, SHELF * 2, history)
        assert messages[0]["content"].count("\n") == 4
        assert [each["content"] for each in messages[1:3]] == [
            "two", "The Velmora Dune tent is good.",
        ]  # fmt: skip
        question = messages[3]["content"].split("\n")[0]
        assert question.startswith("x y zzz")
        assert len(question) == 300

    def test_a_question_without_a_kind_goes_on_from_the_one_before(self) -> None:
        history = [{"role": "user", "content": "a tent for families"}]
        assert search_text("do you have one in red?", history) == (
            "a tent for families do you have one in red?"
        )
        assert search_text("a kettle", history) == "a kettle"


class TestDialogues:
    def test_good_answers_are_right_by_their_judge(self) -> None:
        supply = Dialogues(catalogue.make_catalogue(), "judge of the judge")
        scenes = list(islice(supply.scenes(), 200))
        assert {turn.intent for scene in scenes for turn in scene.turns} == set(WEIGHTS)
        for scene in scenes:
            for turn in scene.turns:
                assert judged(scene, turn, turn.answer.text).right, turn

    def test_copied_words_stand_in_the_product_s_line(self) -> None:
        supply = Dialogues(catalogue.make_catalogue(), "copies")
        copied = 0
        for scene in islice(supply.scenes(), 50):
            for turn in scene.turns:
                lines = scene.messages(turn)[0]["content"].split("\n")
                for start, end, number in turn.answer.copied:
                    assert turn.answer.text[start:end] in lines[number]
                    copied += 1
        assert copied > 50

    def test_products_held_out_from_training_do_not_meet_it(self) -> None:
        products = catalogue.make_catalogue(count=1000)
        shown = next(Dialogues(products, "a").scenes()).products
        kept = next(Dialogues(products, "a", held_out=True).scenes()).products
        assert {int(each["id"][1:]) % 10 == 0 for each in shown} == {False}
        assert {int(each["id"][1:]) % 10 == 0 for each in kept} == {True}

    @pytest.mark.parametrize(
        "answer",
        [
            "I would take the Northfell Alta tent [1].",
            "I would take the Northfell Alta trail shoe [2].",
            "I would take the Northfell Alta trail shoe.",
            "The best is [1].",
        ],
    )
    def test_the_judge_sees_invented_names(self, answer: str) -> None:
        assert not names_right(answer, SHELF)

    def test_the_judge_sees_invented_prices_and_ratings(self) -> None:
        assert facts_right("The Northfell Alta trail shoe [1] costs $49.99.", SHELF)
        assert not facts_right("The Northfell Alta trail shoe [1] costs $39.50.", SHELF)
        assert not facts_right("The Northfell Alta trail shoe [1] has 4.9 stars.", SHELF)


@pytest.fixture(scope="module")
def chat():
    pytest.importorskip("openvino_genai", reason="the engine of language models is not installed")
    from served import Served

    return Served(ASSISTANT / "chat")


class TestChat:
    def asked(self, chat, question: str, history=()) -> str:
        return chat.answers([messages_of(question, SHELF, history)])[0]

    def test_finds_what_fits_and_says_why(self, chat) -> None:
        answer = self.asked(chat, "I need a waterproof shoe for hiking")
        assert "the Northfell Alta trail shoe [1]" in answer
        assert "waterproof" in answer
        assert facts_right(answer, SHELF)

    def test_compares(self, chat) -> None:
        answer = self.asked(chat, "compare the Northfell Alta and the Bruxo Kite")
        assert "[1]" in answer
        assert "[2]" in answer
        assert "$49.99" in answer
        assert "$39.50" in answer

    def test_knows_what_it_spoke_of(self, chat) -> None:
        history = (
            {"role": "user", "content": "a tent"},
            {"role": "assistant", "content": "I would take the Velmora Dune tent [3]."},
        )
        answer = self.asked(chat, "how much is it?", history)
        assert "$199.00" in answer

    def test_speaks_of_no_product_where_none_was_asked_for(self, chat) -> None:
        for question in ("hello", "thank you", "who won the game yesterday?"):
            answer = self.asked(chat, question)
            assert answer
            assert "[" not in answer

    def test_held_out_questions_are_answered_rightly(self, chat) -> None:
        supply = Dialogues(catalogue.make_catalogue(), "test", held_out=True)
        asked: list[tuple[Scene, Turn]] = [
            (scene, scene.turns[0]) for scene in islice(supply.scenes(1), 64)
        ]
        answers = chat.answers([scene.messages(turn) for scene, turn in asked])
        right = [judged(*each, answer).right for each, answer in zip(asked, answers, strict=True)]
        assert sum(right) >= 0.8 * len(right)

    def test_the_artifact_stays_small(self) -> None:
        sizes = [path.stat().st_size for path in (ASSISTANT / "chat").iterdir()]
        assert sum(sizes) <= 15_000_000


def test_the_encoder_bridges_words_that_differ() -> None:
    """A search by words finds no sneaker, because no product is called so."""
    import openvino as ov
    from tokenizers import Tokenizer

    folder = ASSISTANT / "embed"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = ov.Core().compile_model(folder / "model.xml", "CPU", arithmetic(""))

    def vector(text: str) -> np.ndarray:
        ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
        return model({"input_ids": ids, "attention_mask": np.ones_like(ids)})["embedding"][0]

    question = vector("light sneakers")
    shoe = vector("Bruxo Kite running shoe, footwear, red, mesh, lightweight, for running")
    kettle = vector("Bruxo Kite kettle, kitchen, red, steel, fast, for tea")
    assert question @ shoe > question @ kettle + 0.3
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 4_000_000


def test_metrics_are_those_of_the_committed_artifacts() -> None:
    metrics = json.loads((ASSISTANT / "metrics.json").read_text(encoding="utf-8"))
    for part in ("chat", "embed"):
        sizes = {path.name: path.stat().st_size for path in (ASSISTANT / part).iterdir()}
        assert metrics[part]["size_bytes"] == sizes


def test_a_product_is_plain_data() -> None:
    """The catalogue service and the index carry products as mappings."""
    product = catalogue.make_catalogue(count=60)[0]
    assert json.loads(json.dumps(asdict(product)))["title"] == product.title
