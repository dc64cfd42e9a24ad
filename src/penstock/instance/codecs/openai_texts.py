"""What operations on texts share at OpenAI's door: the texts of a request as rows, the limit on
their length, and the errors of their parameters.
"""

from __future__ import annotations

from typing import Any

from penstock.artifacts.description.description import Head
from penstock.errors import CallerError
from penstock.instance.codecs.base import Encode
from penstock.instance.codecs.generation.calls import flag
from penstock.instance.codecs.text import Text, TextDecoded, TextModel


class OpenAiDecoded(TextDecoded):
    """Texts, pairs or rows of token ids. The engine sets `tokens`, for the usage, and refuses rows
    that are too long unless `cuts`."""

    __slots__ = ("cuts", "ids", "parameter", "tokens")

    def __init__(
        self,
        texts: list[Text],
        head: Head,
        encode: Encode,
        *,
        cuts: bool,
        parameter: str,
        ids: list[list[int]] | None = None,
    ) -> None:
        """`parameter`: where the rows come from, for errors; `ids`: the rows, in place of texts."""
        super().__init__(texts, (head,), encode)
        self.rows = len(texts if ids is None else ids)
        self.ids = ids
        self.cuts = cuts
        self.parameter = parameter
        self.tokens = 0

    def too_long(self, at: int, tokens_max: int) -> CallerError:
        """For the row at this place of the parameter."""
        what = f"the text at place {at} of {self.parameter} has"
        if self.ids is None and isinstance(self.texts[at], tuple):
            what = f"the text at place {at} of {self.parameter} and the one beside it have"
        return CallerError(
            "prompt-too-long",
            f"{what} more than {tokens_max} tokens, special ones included: the model reads no"
            " longer ones",
            hint='Shorten it, or send "truncate_prompt_tokens": -1 to have its beginning read.',
            param=self.parameter,
        )

    def check_ids(self, vocabulary: int) -> None:
        """Raises CallerError for ids that are none of the model's tokens."""
        for at, row in enumerate(self.ids or ()):
            wrong = next((each for each in row if not 0 <= each < vocabulary), None)
            if wrong is not None:
                raise invalid(
                    self.parameter,
                    f"has the token {wrong} at place {at}: ids of this model are from 0 to "
                    f"{vocabulary - 1}",
                    hint="Token ids are those of this model's own tokenizer (/tokenize), not of"
                    " OpenAI's. Send texts; the client's length check (check_embedding_ctx_length"
                    " of LangChain, for one) is what turns them into ids.",
                )


def invalid(name: str, words: str, hint: str = "") -> CallerError:
    return CallerError("invalid-parameter", f"{name} {words}", hint=hint, param=name)


def cuts_of(parsed: dict[str, Any]) -> bool:
    """Whether texts that are too long are cut: by vLLM's parameter, or by TEI's. Raises
    CallerError."""
    last = parsed.get("truncate_prompt_tokens")
    if last is not None and (type(last) is not int or last != -1):
        raise invalid("truncate_prompt_tokens", "may be -1, as many tokens as the model reads")
    return last is not None or flag(parsed, "truncate")


def name_of(parsed: dict[str, Any], model: TextModel) -> str:
    """The model's name, as the request has it."""
    name = parsed.get("model")
    return name if isinstance(name, str) else model.name
