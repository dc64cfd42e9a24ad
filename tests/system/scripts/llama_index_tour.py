"""Run by the environment of `llama-index`: chats, streams, calls of functions, embeddings."""

from __future__ import annotations

import json
import sys
from typing import Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field

BASE, MODEL, EMBEDDER = sys.argv[1:4]


class IndexedOrder(BaseModel):
    size: Literal["small", "large"] = Field(description="How large it is.")
    count: int = Field(ge=1, le=20)


def place_order(size: str, count: int) -> str:
    """Places an order."""
    return f"{count} {size}"


def model(*, chats: bool) -> OpenAILike:
    return OpenAILike(
        model=MODEL, api_base=f"{BASE}/v1", api_key="any", is_chat_model=chats, temperature=0,
        is_function_calling_model=chats, max_tokens=200, context_window=8192, max_retries=0,
    )  # fmt: skip


def main() -> None:
    chats, completes = model(chats=True), model(chats=False)
    asked = [ChatMessage(role="user", content="Say something")]
    whole = chats.chat(asked).message.content
    seen: dict[str, object] = {
        "streamed": "".join(part.delta or "" for part in chats.stream_chat(asked)) == whole,
        "completed": bool(completes.complete("Once").text),
        "complete_streamed": [*completes.stream_complete("Once")][-1].text
        == completes.complete("Once").text,
    }
    called = chats.chat_with_tools(
        [FunctionTool.from_defaults(place_order, fn_schema=IndexedOrder)],
        user_msg="A large order",
        tool_required=True,
    )
    (call, *_) = chats.get_tool_calls_from_response(called)
    seen["tool"] = [call.tool_name, call.tool_kwargs["size"] in ("small", "large")]
    embeds = OpenAILikeEmbedding(
        model_name=EMBEDDER, api_base=f"{BASE}/v1", api_key="any", max_retries=0
    )
    many = embeds.get_text_embedding_batch(["one", "two"])
    seen["vectors"] = [len(many), embeds.get_text_embedding("two") == many[1]]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
