"""Language models in a real instance with a real engine process, asked over its frames."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.instance.generation_client import Generated, StreamClient
from tests.kit.generation_models import BOS, EOS, greedy, write_model
from tests.kit.instances import InstanceProcess, instance
from tests.kit.polling import wait_until

from penstock.wire import frames

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")

CHAT = {"asked": {"operation": "chat"}, "door": "openai"}
COMPLETIONS = {"asked": {"operation": "completions"}, "door": "openai"}
STREAM = {"asked": {"stream": True}}
LONG = {"inputs": "x", "parameters": {"max_new_tokens": 400, "ignore_eos_token": True}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("generation") / "model")


class Home:
    """An instance that has the model as copies 1 and 2, whatever the tests before did to it."""

    def __init__(self, model: Path, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self._ended = ExitStack()
        self._running: InstanceProcess | None = None

    def client(self) -> StreamClient:
        """One of its own for each test: nothing that another left unread can reach it."""
        if self._running is None or self._running.process.poll() is not None:
            self.close()
            self._running = self._ended.enter_context(instance(self._folder))
        made = StreamClient(self._running.path)
        states = {each["copy"]: each["state"] for each in made.control(op="status")["copies"]}
        for copy in (1, 2):
            if states.get(copy) == "failed":
                made.control(op="unload", copy=copy, drain_s=0.0)
            if states.get(copy) in (None, "failed"):
                made.serve(copy, self._model)
        wait_until(lambda: all(at_rest(made, copy) for copy in (1, 2)), "both are ready", 60.0)
        return made

    def close(self) -> None:
        self._ended.close()


def at_rest(client: StreamClient, copy: int) -> bool:
    status = copy_status(client, copy)
    return status["state"] == "ready" and status["unanswered"] == 0


@pytest.fixture(scope="module")
def home(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    made = Home(folder, tmp_path_factory.mktemp("instance"))
    yield made
    made.close()


@pytest.fixture
def client(home: Home) -> Iterator[StreamClient]:
    connection = home.client()
    yield connection
    connection.close()


def prompt_ids(text: str) -> list[int]:
    """The tokenizer has a token for each byte, in the order of GPT-2's alphabet."""
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    encoder = pre_tokenizers.ByteLevel(add_prefix_space=False)
    ids = [BOS]
    for piece, _ in encoder.pre_tokenize_str(text):
        ids += [alphabet.index(char) for char in piece]
    return ids


def ids_of(generated: Generated) -> list[int]:
    return [token["id"] for token in generated.json[0]["details"]["tokens"]]


def copy_status(client: StreamClient, copy: int) -> dict[str, Any]:
    copies = client.control(op="status")["copies"]
    return next(each for each in copies if each["copy"] == copy)


def test_greedy_answers_are_what_the_graph_itself_says(folder: Path, client: StreamClient) -> None:
    for text in ("Hello", "a longer prompt, of more than one block of the cache " * 3, "ü€😀"):
        asked = {"inputs": text, "parameters": {"max_new_tokens": 24, "details": True}}
        assert ids_of(client.ask(1, asked)) == greedy(folder, prompt_ids(text), 24)


def test_several_answers_to_one_prompt_differ_by_their_seeds(client: StreamClient) -> None:
    """Each is the answer that its own seed gives alone, whole and streamed."""
    asked = {"prompt": "Hello", "max_tokens": 8, "temperature": 1.0, "ignore_eos": True}
    alone = [
        client.ask(1, asked | {"seed": seed}, **COMPLETIONS).json["choices"][0]["text"]
        for seed in (7, 8, 9)
    ]
    assert len(set(alone)) > 1
    whole = client.ask(1, asked | {"seed": 7, "n": 3}, **COMPLETIONS).json
    assert [each["text"] for each in whole["choices"]] == alone
    assert [each["index"] for each in whole["choices"]] == [0, 1, 2]
    assert whole["usage"]["completion_tokens"] == 24
    lines = client.ask(1, asked | {"seed": 7, "n": 3, "stream": True}, **COMPLETIONS).lines
    texts = ["", "", ""]
    for line in lines[:-1]:
        texts[line["choices"][0]["index"]] += line["choices"][0]["text"]
    assert texts == alone
    ends = [each["choices"][0]["finish_reason"] for each in lines[:-1]]
    assert ends.count("length") == 3


def test_more_answers_than_the_engine_runs_at_once_are_refused(client: StreamClient) -> None:
    refused = client.ask(1, {"prompt": "Hello", "n": 128}, **COMPLETIONS)
    assert refused.error["code"] == "invalid-parameter"
    assert refused.error["param"] == "n"
    assert "128 answers are asked for" in refused.error["message"]


def test_a_streamed_answer_is_the_whole_one_token_by_token(client: StreamClient) -> None:
    asked = {"inputs": "Hello", "parameters": {"max_new_tokens": 9, "details": True}}
    whole = client.ask(1, asked).json[0]
    streamed = client.ask(1, asked, **STREAM)
    assert streamed.content_type == "text/event-stream"
    lines = streamed.lines
    assert [line["token"]["id"] for line in lines] == [
        token["id"] for token in whole["details"]["tokens"]
    ]
    assert "".join(line["token"]["text"] for line in lines) == whole["generated_text"]
    assert [line["index"] for line in lines] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert all(line["generated_text"] is None for line in lines[:-1])
    assert lines[-1]["generated_text"] == whole["generated_text"]
    assert lines[-1]["details"]["finish_reason"] == "length"
    assert len(streamed.chunks) == 9  # a piece leaves with each token


def test_every_dialect_gives_the_same_text(client: StreamClient) -> None:
    """One prompt, greedy: TGI, OpenAI's two forms of it, Triton's; streamed and whole."""
    tgi = client.ask(1, {"inputs": "Say", "parameters": {"max_new_tokens": 12}}).json
    text = tgi[0]["generated_text"]
    asked = {"prompt": "Say", "max_tokens": 12, "temperature": 0}
    assert client.ask(1, asked, **COMPLETIONS).json["choices"][0]["text"] == text
    lines = client.ask(1, asked | {"stream": True}, **COMPLETIONS).lines
    assert lines.pop() == "[DONE]"
    assert "".join(line["choices"][0]["text"] for line in lines) == text
    generate = {"text_input": "Say", "parameters": {"max_tokens": 12}}
    oip = {"door": "oip"}
    whole = client.ask(1, generate, asked={"operation": "generate"}, **oip).json
    assert whole == {"model_name": "e", "model_version": "1", "text_output": text}
    lines = client.ask(1, generate, asked={"operation": "generate_stream"}, **oip).lines
    assert "".join(line["text_output"] for line in lines) == text


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"door": "oip"}, "application/octet-stream"),
        (
            {"content_type": "application/json"},
            "application/vnd.sagemaker-triton.binary+json;json-header-size={}",
        ),
    ],
    ids=["triton", "sagemaker"],
)
def test_binary_tensors_come_with_the_length_of_the_json_before_them(
    client: StreamClient, asked: dict[str, str], kind: str
) -> None:
    """Triton's clients ask for them unless they are told not to, and can't read them without."""
    tensors = [
        {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["Say"]},
        {"name": "max_tokens", "datatype": "INT32", "shape": [1], "data": [12]},
    ]
    given = {"inputs": tensors, "parameters": {"binary_data_output": True}}
    made = client.ask(1, given, **asked)
    size = made.meta.json_header_bytes
    assert size is not None
    assert made.meta.content_type == kind.format(size)
    (output,) = json.loads(made.body[:size])["outputs"]
    text = made.body[size:]
    assert output["parameters"] == {"binary_data_size": len(text)}
    assert int.from_bytes(text[:4], "little") == len(text) - 4 > 0


def test_chat_goes_through_the_models_template(folder: Path, client: StreamClient) -> None:
    messages = [{"role": "system", "content": "Be"}, {"role": "user", "content": "Hi"}]
    asked = {"messages": messages, "max_tokens": 6, "temperature": 0, "logprobs": True}
    answer = client.ask(1, asked, **CHAT).json
    assert answer["object"] == "chat.completion"
    assert answer["usage"]["prompt_tokens"] == 8  # <s>, three roles, "Be" and "Hi"
    assert answer["usage"]["completion_tokens"] == len(answer["choices"][0]["logprobs"]["content"])
    streamed = client.ask(
        1, asked | {"stream": True, "stream_options": {"include_usage": True}}, **CHAT
    ).lines
    assert streamed.pop() == "[DONE]"
    assert streamed.pop()["usage"] == answer["usage"]
    assert streamed[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert streamed[-1]["choices"][0]["finish_reason"] == answer["choices"][0]["finish_reason"]
    text = "".join(line["choices"][0]["delta"].get("content", "") for line in streamed)
    assert text == answer["choices"][0]["message"]["content"]
    result = {"role": "tool", "content": "x", "tool_call_id": "a"}
    refused = client.ask(1, {"messages": [result]}, **CHAT).error
    assert refused["code"] == "chat-template-refused"
    assert "roles are user, assistant and system" in refused["message"]


def test_the_same_seed_gives_the_same_answer_whoever_else_is_there(client: StreamClient) -> None:
    def asked(seed: int) -> dict[str, Any]:
        settings = {"max_new_tokens": 20, "temperature": 1.5, "seed": seed, "details": True}
        return {"inputs": "Say", "parameters": settings | {"ignore_eos_token": True}}

    alone = ids_of(client.ask(1, asked(11)))
    idents = [client.begin(1, asked(seed)) for seed in (5, 11, 3, 11, 8)]
    together = [ids_of(client.whole(ident)) for ident in idents]
    assert together[1] == alone
    assert together[3] == alone
    assert together[0] != alone
    assert client.whole(idents[1]).json[0]["details"]["seed"] == 11


def test_a_stop_string_ends_the_answer_where_it_begins(client: StreamClient) -> None:
    base = {"prompt": "Hello", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    text = client.ask(1, base, **COMPLETIONS).json["choices"][0]["text"]
    stop = next(text[at : at + 2] for at in range(3, 30) if text[at : at + 2].isascii())
    answer = client.ask(1, base | {"stop": [stop, "never there"]}, **COMPLETIONS).json
    assert answer["choices"][0]["text"] == text[: text.index(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"
    settings = {"max_new_tokens": 40, "stop": [stop], "ignore_eos_token": True}
    tgi = client.ask(1, {"inputs": "Hello", "parameters": settings}).json[0]
    assert tgi["generated_text"] == text[: text.index(stop)] + stop  # TGI keeps it


def test_a_cancelled_answer_frees_its_slot_and_its_blocks(client: StreamClient) -> None:
    """The cache has 42 blocks; each answer grows to 13. Ten at once fit only one after the other,
    so that the last is answered only if the cancelled ones are gone."""
    idents = [client.begin(1, LONG, **STREAM) for _ in range(9)]
    client.begun(idents[0])
    for ident in idents:
        client.cancel(ident)
    last = client.ask(1, LONG)
    assert last.told["tokens_out"] == 400
    status = copy_status(client, 1)
    assert status["unanswered"] == 0
    assert status["running"] == 0
    assert status["generation"]["sequences_running"] == 0
    assert status["generation"]["sequences_waiting"] == 0
    # Nothing came after the cancellation but what was on its way.
    kinds = {part.kind for ident in idents for part in client.parts.get(ident, [])}
    assert kinds == {frames.CHUNK}


def stopped_in_the_middle(client: StreamClient, pid: int) -> int:
    """A streamed answer of copy 1 that has begun; its engine `pid` stands still before the end.

    On a busy machine an answer may be over before this process has its turn: then the next one.
    """

    def begun() -> int | None:
        streamed = client.begin(1, LONG, **STREAM)
        client.begun(streamed)
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: process_state(pid) == "T", "the engine stands still")
        copy_status(client, 1)  # by the second one the instance has read all that the engine wrote
        if copy_status(client, 1)["running"]:
            return streamed
        os.kill(pid, signal.SIGCONT)
        return None

    return wait_until(begun, "an engine stands still in the middle of an answer", 60.0)


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_killed_engine_comes_back_and_other_models_never_notice(client: StreamClient) -> None:
    other = client.begin(2, LONG, **STREAM)
    client.begun(other)
    (worker,) = copy_status(client, 1)["workers"]
    streamed = stopped_in_the_middle(client, worker["pid"])
    unseen = client.begin(1, LONG)
    assert copy_status(client, 1)["running"] == 2
    os.kill(worker["pid"], signal.SIGKILL)
    broken = client.whole(streamed)
    assert broken.kind == frames.ERROR
    assert broken.error["code"] == "stream-broken"
    assert broken.error["family"] == "model"
    returned = client.whole(unseen)
    assert returned.kind == frames.RETURNED
    assert returned.reason == "worker-died-in-company"  # beside the one that streamed
    assert client.event("copy-lost")["copy"] == 1
    assert client.ask(2, LONG).told["tokens_out"] == 400
    assert client.event("copy-ready")["copy"] == 1
    assert client.ask(1, {"inputs": "Hello"}).kind == frames.REPLY
    assert client.whole(other).kind == frames.END
    assert client.whole(other).told["tokens_out"] == 400


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"inputs": "x" * 600}, "prompt-too-long", "601 tokens"),
        ({"inputs": "x" * 10_000_000}, "prompt-too-long", "10000000 characters"),
        ({"prompt": []}, "prompt-empty", "no tokens"),
        ({"prompt": [1, 260]}, "invalid-parameter", "from 0 to 259"),
        (b'{"inputs": "\xff"}', "bad-json", "UTF-8"),
        (b'{"inputs": "\\ud800"}', "bad-json", "JSON"),
        (b"", "bad-json", "JSON"),
        (b"[1]", "bad-json", "list"),
        ({"text": "x"}, "invalid-parameter", '"inputs"'),
        ({"inputs": 5}, "invalid-parameter", "inputs"),
        ({"inputs": "x", "parameters": {"max_new_tokens": 0}}, "invalid-parameter",
         "max_new_tokens is 0"),
        ({"inputs": "x", "parameters": {"temperature": -1}}, "invalid-parameter", "temperature"),
        ({"inputs": "x", "parameters": {"top_p": 1.5}}, "invalid-parameter", "above 0 to 1"),
        ({"inputs": "x", "parameters": {"seed": "a"}}, "invalid-parameter", "seed"),
        ({"inputs": "x", "parameters": {"stop": [""]}}, "invalid-parameter", "1 to 256"),
        ({"inputs": "x", "parameters": {"best_of": 3}}, "parameter-unsupported", "best_of"),
        ({"messages": [], "temperature": 1}, "invalid-parameter", "messages"),
        ({"prompt": "x", "n": 65}, "invalid-parameter", "at most 64 at once"),
        ({"prompt": "x", "temperature": 2.1}, "decimal-above-max-value", "'temperature'"),
        ({"prompt": "x", "min_tokens": 9, "max_tokens": 3}, "invalid-value", "min_tokens"),
        ({"prompt": "x", "logprobs": 21}, "integer-above-max-value", "'logprobs'"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_in_the_models_name(
    client: StreamClient, body: Any, code: str, words: str
) -> None:
    error = client.ask(1, body).error
    assert (error["family"], error["code"]) == ("model", code)
    assert error["original_status"] == 400
    assert words in error["original_message"]


def test_other_doors_get_the_error_as_the_callers(client: StreamClient) -> None:
    error = client.ask(1, {"messages": "hi"}, **CHAT).error
    assert (error["family"], error["status"]) == ("caller", 400)


def test_the_end_tells_counts_and_times(client: StreamClient) -> None:
    asked = {"inputs": "Hello", "parameters": {"max_new_tokens": 5, "ignore_eos_token": True}}
    told = client.ask(1, asked, **STREAM).told
    assert (told["tokens_in"], told["tokens_out"], told["finish"]) == (6, 5, "length")
    assert 0 <= told["queue_s"] <= told["first_token_s"] <= told["total_s"]


def test_an_unloaded_model_ends_its_process(folder: Path, client: StreamClient) -> None:
    assert client.load(3, folder).get("ok")
    (worker,) = copy_status(client, 3)["workers"]
    streamed = client.begin(3, LONG, **STREAM)
    client.begun(streamed)
    assert client.control(op="unload", copy=3, drain_s=0.01)["found"]
    assert client.whole(streamed).error["code"] == "stream-broken"
    wait_until(lambda: not Path(f"/proc/{worker['pid']}").exists(), "the engine process is gone")


def test_eos_ends_an_answer_and_is_no_text(folder: Path, client: StreamClient) -> None:
    asked = {"inputs": "Hello", "parameters": {"max_new_tokens": 60, "details": True}}
    answer = client.ask(1, asked).json[0]
    assert ids_of(client.ask(1, asked))[-1] == EOS
    assert answer["details"]["finish_reason"] == "eos_token"
    assert "</s>" not in answer["generated_text"]
    assert json.dumps(answer)


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def test_a_schema_holds_the_answer_to_it(client: StreamClient) -> None:
    """A model with random weights writes no JSON by itself; at a high temperature it leaves the
    white space that a schema allows anywhere."""
    hot = {"max_new_tokens": 400, "temperature": 50.0, "details": True}
    free = client.ask(1, {"inputs": "x", "parameters": hot | {"seed": 1}}).json[0]
    assert "{" not in free["generated_text"][:1]
    for seed in range(3):
        settings = hot | {"seed": seed, "grammar": {"type": "json", "value": SCHEMA}}
        answer = client.ask(1, {"inputs": "x", "parameters": settings}).json[0]
        assert answer["details"]["finish_reason"] == "eos_token"
        value = json.loads(answer["generated_text"])
        assert list(value) == ["a", "b"]
        assert value["a"] in (True, False)
        assert value["b"] in ("x", "yy")


def test_a_schema_that_is_none_harms_nobody_else(client: StreamClient) -> None:
    other = client.begin(1, LONG, **STREAM)
    client.begun(other)
    wanted = {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}
    error = client.ask(1, {"prompt": "x", "response_format": wanted}, **COMPLETIONS).error
    assert (error["code"], error["status"]) == ("json-schema-refused", 400)
    assert "nonsense" in error["message"]
    assert client.whole(other).told["tokens_out"] == 400


def test_clients_that_go_away_take_their_answers_along(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """200 requests over 20 connections that break at different moments: nothing is left behind, and
    the memory of a second round is that of the first."""
    with instance(tmp_path_factory.mktemp("leavers")) as running:
        watcher = StreamClient(running.path)
        assert watcher.load(1, folder).get("ok")
        memory = []
        for _ in range(2):
            leavers = [StreamClient(running.path) for _ in range(20)]
            for at, leaver in enumerate(leavers):
                idents = [leaver.begin(1, LONG, **STREAM) for _ in range(10)]
                if at % 3 == 0:
                    leaver.begun(idents[0])
                if at % 2:
                    leaver.cancel(idents[5])
                leaver.close()
            wait_until(lambda: not copy_status(watcher, 1)["unanswered"], "all are gone")
            assert watcher.ask(1, LONG).told["tokens_out"] == 400
            status = copy_status(watcher, 1)
            assert (status["running"], status["queue_rows"]) == (0, 0)
            assert status["generation"]["sequences_running"] == 0
            assert status["generation"]["sequences_waiting"] == 0
            memory.append(status["workers"][0]["rss_bytes"])
        assert memory[1] < memory[0] * 1.2
        watcher.close()
