"""Parameters of OpenAI's generating APIs that are refused, and those that change nothing here.

The decoders refuse with the words of these tables, and `docs/howto/refused.md` is generated from
them. A test holds that every parameter of OpenAI's own client is read, refused or listed here.
"""

from __future__ import annotations

from typing import Final

_NO_STATE: Final = "no responses are kept here"
_TEXT: Final = "answers are text"
_ALL: Final = {"logit_bias": "the engine does not have it"}
_TOOLS: Final = {
    "tools[] (not functions)": "tools are functions",
    "tool_choice (not functions)": "tools are functions",
}

#: Operation -> parameter -> why it is refused. In brackets: which of its values are.
REFUSED: Final[dict[str, dict[str, str]]] = {
    "chat": {
        **_ALL,
        **_TOOLS,
        "functions": _TEXT,
        "audio": _TEXT,
        "messages[].content[] (not texts)": "this model reads text",
    },
    "completions": {
        **_ALL,
        "suffix": "text is only continued",
        "best_of": "as many answers are made as are given",
        "prompt (several texts)": "send a request for each",
    },
    "responses": {
        **_ALL,
        **_TOOLS,
        "store": f"{_NO_STATE}; leave it out",
        "background": _NO_STATE,
        "previous_response_id": f"{_NO_STATE}; send the conversation as input",
        "conversation": f"{_NO_STATE}; send the conversation as input",
        "prompt": "no prompts are kept here; send it as instructions and input",
        "truncation": "a prompt that is too long is refused",
        "reasoning.effort": "the model is asked for its answer alone",
        "text.verbosity": "the model has one way to speak",
        "input[] (other items)": "items are messages and function calls",
        "input[].content[] (not texts)": "this model reads text",
    },
}

_BILLING: Final = "it is about OpenAI's accounts, billing and caches"
_ONE_WAY: Final = "the model has one way to answer"
_EVERYWHERE: Final = {
    "user": _BILLING,
    "metadata": "nothing is kept (a response shows it)",
    "service_tier": _BILLING,
    "safety_identifier": _BILLING,
    "moderation": _BILLING,
    "prompt_cache_key": "prompts are cached by their beginning",
    "prompt_cache_options": "prompts are cached by their beginning",
    "prompt_cache_retention": "prompts are cached by their beginning",
}

#: Operation -> parameter -> why it is accepted and has no effect.
NO_EFFECT: Final[dict[str, dict[str, str]]] = {
    "chat": {
        **_EVERYWHERE,
        "store": "nothing is kept",
        "function_call": "it is about `functions`, which are refused",
        "modalities": _TEXT,
        "prediction": "it makes an answer faster, and no other",
        "reasoning_effort": _ONE_WAY,
        "verbosity": _ONE_WAY,
        "web_search_options": "there is no search here",
    },
    "completions": {"user": _BILLING},
    "responses": {
        **_EVERYWHERE,
        "access_programs": _BILLING,
        "background_options": "`background` is refused",
        "context_management": "the conversation is what is sent",
        "image": _TEXT,
        "max_tool_calls": "tools are called by the client",
    },
}
