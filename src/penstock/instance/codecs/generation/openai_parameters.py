"""Every parameter of OpenAI's APIs of models, by OpenAI's and vLLM's names: what becomes of it.

A parameter is honoured, refused by name, or changes no answer and has no effect. One that stands in
no table is refused too, as OpenAI does: it may be misspelt. A value of null asks for nothing, and
so do the values in `HARMLESS`. The decoders refuse with the words of these tables, and
`docs/howto/refused.md` is generated from them. A test holds that every parameter of OpenAI's own
client and every name here is read, refused or without effect.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.errors import CallerError
from penstock.instance.codecs.generation.calls import unsupported

_BY_DEFAULT: Final = "by default that of the model's generation_config.json"
_SAMPLING: Final = {
    "model": "the endpoint, or one of its target models or components",
    "stream": "server-sent events",
    "temperature": f"0 to 2; 0 takes the likeliest token; {_BY_DEFAULT}, else 1",
    "top_p": f"0 to 1; {_BY_DEFAULT}",
    "top_k": f"0 or -1: all tokens; {_BY_DEFAULT}",
    "min_p": f"0 to 1; {_BY_DEFAULT}",
    "presence_penalty": "-2 to 2",
    "frequency_penalty": "-2 to 2",
    "repetition_penalty": f"above 0; {_BY_DEFAULT}",
    "seed": "the same seed gives the same answer",
    "stop": "up to 16 texts",
    "stop_token_ids": "up to 16 tokens; they are left out of the text unless "
    "`include_stop_str_in_output`",
    "include_stop_str_in_output": "the text ends with the stop string",
    "ignore_eos": "the model's own end is no end",
    "min_tokens": "at most the longest answer",
    "skip_special_tokens": "false: the text has special tokens too",
    "truncate_prompt_tokens": "the last tokens of the prompt; -1: as many as fit",
    "guided_json": "as `structured_outputs.json`",
    "guided_regex": "as `structured_outputs.regex`",
    "guided_choice": "as `structured_outputs.choice`",
    "guided_grammar": "as `structured_outputs.grammar`",
    "structured_outputs": "one of `json` (a schema), `json_object`, `regex`, `choice` (texts), "
    "`grammar` (EBNF as in GBNF)",
}
_LOGPROBS_MAX: Final = (
    "so many of the likeliest tokens, as the model has them before temperature and penalties; up "
    "to 20, of runtime `paced` none"
)
_FORMAT: Final = "`text`, `json_object` or `json_schema`"
_TOOLS_READ: Final = {
    "tools": "functions, up to 128",
    "tool_choice": "`none`, `auto`, `required` or a function",
    "parallel_tool_calls": "false: one call at most",
}

_CUT: Final = {
    "truncate_prompt_tokens": "-1: of a text that is too long, the beginning is read",
    "truncate": "true, as at TEI: the same",
}
_ONLY_MODEL: Final = f"{_SAMPLING['model']}; may be left out where one model alone answers this"

#: Operation -> parameter -> what it does.
HONOURED: Final[dict[str, dict[str, str]]] = {
    "chat": {
        **_SAMPLING,
        **_TOOLS_READ,
        "messages": "texts; roles are system, developer, user, assistant and tool",
        "max_tokens": "the longest answer",
        "max_completion_tokens": "the longest answer",
        "n": "answers to the one prompt",
        "logprobs": "of each token of the answer",
        "top_logprobs": _LOGPROBS_MAX,
        "response_format": _FORMAT,
        "stream_options": "`include_usage`",
        "add_generation_prompt": "for the chat template",
        "continue_final_message": "the answer goes on with the last message",
        "chat_template_kwargs": "for the chat template",
        "reasoning_effort": "for a chat template that reads it, else refused",
    },
    "completions": {
        **_SAMPLING,
        "prompt": "a text, token ids, or a list of these",
        "max_tokens": "the longest answer; 16 by default; 0 with `echo`: the prompt alone",
        "n": "answers to each prompt",
        "best_of": "so many are made, and the `n` likeliest per token given",
        "echo": "the text begins with the prompt; with `logprobs`, these have its tokens too",
        "logprobs": _LOGPROBS_MAX,
        "response_format": _FORMAT,
        "stream_options": "`include_usage`",
    },
    "responses": {
        **_SAMPLING,
        **_TOOLS_READ,
        "input": "a text, or messages and function calls",
        "instructions": "the first system message",
        "max_output_tokens": "the longest answer",
        "top_logprobs": _LOGPROBS_MAX,
        "include": "`message.output_text.logprobs`",
        "text": "`format`: `text`, `json_object` or `json_schema`",
        "reasoning": "`effort`, for a chat template that reads it, else refused",
        "metadata": "comes back with the response",
    },
    "embeddings": {
        "model": _SAMPLING["model"],
        "input": "a text or token ids, or up to 2048 of these; one that is too long is refused; "
        "ids are those of the model's own tokenizer",
        "encoding_format": "`float` or `base64` (float32, little endian)",
        "dimensions": "those of the model, else refused",
        **_CUT,
    },
    "rerank": {
        "model": _ONLY_MODEL,
        "query": "a text",
        "documents": "up to 4096 texts, or objects with `text` alone; the answer has the form of "
        "Jina, Cohere and vLLM",
        "texts": "the same, with TEI's answer",
        "top_n": "so many of the best; 0: all",
        "return_documents": "whether results have their text; true by default, at TEI's form false",
        "return_text": "TEI's name for it",
        "raw_scores": "true: the number before the sigmoid, of a model with one label",
        "use_activation": "false: the same",
        **_CUT,
    },
    "score": {
        "model": _ONLY_MODEL,
        "text_1": "a text, or texts: one, or as many as on the other side",
        "text_2": "a text, or up to 4096 texts",
        "queries": "as `text_1`",
        "documents": "as `text_2`",
        "items": "as `text_2`",
        "data_1": "as `text_1`",
        "data_2": "as `text_2`",
        "use_activation": "false: the number before the sigmoid, of a model with one label",
        "truncate_prompt_tokens": _CUT["truncate_prompt_tokens"],
    },
    "tokenize": {
        "model": _ONLY_MODEL,
        "prompt": "a text",
        "messages": "a chat, at a model with a chat template",
        "add_special_tokens": "true by default for a prompt, false for a chat",
        "return_token_strs": "each token as the vocabulary has it, too",
        "add_generation_prompt": "for the chat template",
        "continue_final_message": "for the chat template",
        "chat_template_kwargs": "for the chat template",
        "tools": "for the chat template",
    },
    "detokenize": {
        "model": _ONLY_MODEL,
        "tokens": "token ids; special ones are shown",
    },
}

_NO_STATE: Final = "no responses are kept here"
_TEXT: Final = "answers are text"
_NOT_THERE: Final = "the engine does not have it"
_OWN_TEMPLATE: Final = "the model's own chat template makes the prompt"
_PLAIN: Final = "answers have OpenAI's form"
_OURS: Final = "requests are ordered by the endpoint"
_TOOLS: Final = {
    "tools[] (not functions)": "tools are functions",
    "tool_choice (not functions)": "tools are functions",
}
_REFUSED_EVERYWHERE: Final = {
    "logit_bias": _NOT_THERE,
    "bad_words": _NOT_THERE,
    "allowed_token_ids": _NOT_THERE,
    "logprob_token_ids": _NOT_THERE,
    "use_beam_search": _NOT_THERE,
    "length_penalty": "it is of beam search, which the engine does not have",
    "logits_processors": _NOT_THERE,
    "repetition_detection": _NOT_THERE,
    "thinking_token_budget": _NOT_THERE,
    "watermarking": _NOT_THERE,
    "prompt_logprobs": "send a completion with `echo` and `logprobs`",
    "add_special_tokens": "the model's own tokenizer decides",
    "spaces_between_special_tokens": _NOT_THERE,
    "truncation_side": "the last tokens of a prompt are kept",
    "guided_whitespace_pattern": "JSON is made with one space at most behind `:` and `,`",
    "guided_decoding_backend": "the engine has one",
    "structural_tag": "send tools, or a grammar",
    "structured_outputs (other kinds)": "known are json, json_object, regex, choice and grammar",
    "priority": _OURS,
    "cache_salt": "prompts of all callers share the model's prefix cache",
    "kv_transfer_params": _NOT_THERE,
    "ec_transfer_params": _NOT_THERE,
    "vllm_xargs": _NOT_THERE,
    "return_tokens_as_token_ids": _PLAIN,
    "return_token_ids": _PLAIN,
    "stream_interval": "a piece leaves with each token",
}

_SCORES: Final = "the model's number is its score already"
_REFUSED_OF_TEXTS: Final = {
    "priority": _OURS,
    "truncation_side": "the beginning of a text is read",
    "truncation_direction": "the beginning of a text is read",
    "mm_processor_kwargs": "this model reads text",
    "chat_template": "the model reads texts as they are",
    "chat_template_kwargs": "the model reads texts as they are",
}

#: Operation -> parameter -> why it is refused. In brackets: which of its values are.
REFUSED: Final[dict[str, dict[str, str]]] = {
    "chat": {
        **_REFUSED_EVERYWHERE,
        **_TOOLS,
        "functions": "they are older than `tools`: send these",
        "function_call": "it is of `functions`: send `tools` and `tool_choice`",
        "audio": _TEXT,
        "modalities": _TEXT,
        "messages[].content[] (not texts)": "this model reads text",
        "verbosity": "the model has one way to speak",
        "web_search_options": "there is no search here",
        "echo": "send a completion",
        "best_of": "as many answers are made as are given",
        "chat_template": _OWN_TEMPLATE,
        "documents": "put them into a message",
        "mm_processor_kwargs": "this model reads text",
        "media_io_kwargs": "this model reads text",
        "include_reasoning": "what the model writes is the answer",
    },
    "completions": {
        **_REFUSED_EVERYWHERE,
        "suffix": "text is only continued",
        "best_of (while streaming)": "the likeliest are known at the end",
        "prompt_embeds": "a prompt is a text or token ids",
    },
    "responses": {
        **_REFUSED_EVERYWHERE,
        **_TOOLS,
        "store": f"{_NO_STATE}; leave it out",
        "background": _NO_STATE,
        "previous_response_id": f"{_NO_STATE}; send the conversation as input",
        "conversation": f"{_NO_STATE}; send the conversation as input",
        "prompt": "no prompts are kept here; send it as instructions and input",
        "truncation": "a prompt that is too long is refused",
        "text.verbosity": "the model has one way to speak",
        "context_management": "the conversation is what is sent",
        "image": _TEXT,
        "max_tool_calls": "tools are called by the client",
        "input[] (other items)": "items are messages and function calls",
        "input[].content[] (not texts)": "this model reads text",
    },
    "embeddings": {
        "messages": "send texts as input",
        "add_special_tokens": "the model's own tokenizer decides",
        "embed_dtype": "vectors are float32",
        "endianness": "base64 is little endian",
        "normalize": "the model's description says whether vectors have length 1",
        "use_activation": "the model's description says whether vectors have length 1",
        "prompt_name": "write it into the texts",
        **_REFUSED_OF_TEXTS,
    },
    "rerank": {
        "raw_scores (of a text-regression)": _SCORES,
        "use_activation (of a text-regression)": _SCORES,
        "rank_fields": "a document is one text",
        "max_chunks_per_doc": "a document is read at once",
        "max_tokens_per_doc": "of a text that is too long, as much is read as the model takes",
        "max_tokens_per_query": "of a text that is too long, as much is read as the model takes",
        "instruction": "write it into the query",
        **_REFUSED_OF_TEXTS,
    },
    "score": {
        "use_activation (of a text-regression)": _SCORES,
        "instruction": "write it into the first texts",
        **_REFUSED_OF_TEXTS,
    },
    "tokenize": {
        "chat_template": _OWN_TEMPLATE,
        "mm_processor_kwargs": "this model reads text",
        "media_io_kwargs": "this model reads text",
    },
    "detokenize": {},
}

_ACCOUNT: Final = "it is about OpenAI's accounts, billing and caches"
_BY_BEGINNING: Final = "prompts are cached by their beginning"
_HEADER: Final = "the header `x-request-id` names a request"
_ALL: Final = {
    "user": _ACCOUNT,
    "request_id": _HEADER,
    "session_id": _HEADER,
    "sagemaker_base_url": "LiteLLM sends the address that it sends to",
}
_ALL_OF_TEXTS: Final = {
    **_ALL,
    "padding": "rows are padded as batches need it, and padding has no influence",
    "cache_salt": "texts are not cached",
}
_EVERYWHERE: Final = {
    **_ALL,
    "service_tier": _ACCOUNT,
    "safety_identifier": _ACCOUNT,
    "moderation": _ACCOUNT,
    "prompt_cache_key": _BY_BEGINNING,
    "prompt_cache_options": _BY_BEGINNING,
    "prompt_cache_retention": _BY_BEGINNING,
}

#: Operation -> parameter -> why it is accepted and has no effect.
NO_EFFECT: Final[dict[str, dict[str, str]]] = {
    "chat": {
        **_EVERYWHERE,
        "metadata": "nothing is kept",
        "store": "nothing is kept",
        "prediction": "it makes an answer faster, and no other",
    },
    "completions": _ALL,
    "embeddings": _ALL_OF_TEXTS,
    "rerank": _ALL_OF_TEXTS,
    "score": _ALL_OF_TEXTS,
    "tokenize": _ALL,
    "detokenize": _ALL,
    "responses": {
        **_EVERYWHERE,
        "access_programs": _ACCOUNT,
        "background_options": "`background` is refused",
        "stream_options": "every stream ends with the usage; `include_obfuscation` is about bytes",
    },
}

#: Values that ask for nothing, of parameters that are refused otherwise.
HARMLESS: Final[dict[str, tuple[Any, ...]]] = {
    "logit_bias": ({},),
    "bad_words": ([],),
    "use_beam_search": (False,),
    "length_penalty": (1.0,),
    "watermarking": (False,),
    "thinking_token_budget": (-1,),
    "spaces_between_special_tokens": (True,),
    "truncation_direction": ("Right", "right"),
    "embed_dtype": ("float32",),
    "endianness": ("native", "little"),
    "guided_decoding_backend": ("auto", "xgrammar"),
    "priority": (0,),
    "vllm_xargs": ({},),
    "return_tokens_as_token_ids": (False,),
    "return_token_ids": (False,),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "verbosity": ("medium",),
    "echo": (False,),
    "best_of": (1,),
    "documents": ([],),
    "suffix": ("",),
    "store": (False,),
    "background": (False,),
    "truncation": ("disabled",),
    "include_reasoning": (True,),
    "max_chunks_per_doc": (1,),
}
#: The same, where it depends on the operation: the tokenizer adds its own to a plain prompt alone,
#: and the end of a prompt is kept, but the beginning of a text.
_HARMLESS_OF: Final[dict[str, dict[str, tuple[Any, ...]]]] = {
    "chat": {"add_special_tokens": (False,), "truncation_side": ("left",)},
    "completions": {"add_special_tokens": (True,), "truncation_side": ("left",)},
    "responses": {"add_special_tokens": (False,), "truncation_side": ("left",)},
    "embeddings": {"add_special_tokens": (True,), "truncation_side": ("right",)},
    "rerank": {"truncation_side": ("right",), "rank_fields": (["text"],)},
    "score": {"truncation_side": ("right",)},
}


def harmless(operation: str, name: str) -> tuple[Any, ...]:
    """Values of a refused parameter that ask for nothing."""
    return HARMLESS.get(name, ()) + _HARMLESS_OF.get(operation, {}).get(name, ())


def check_parameters(operation: str, parsed: dict[str, Any]) -> None:
    """Raises CallerError for a parameter that is refused or that nobody knows."""
    honoured, refused = HONOURED[operation], REFUSED[operation]
    for name, value in parsed.items():
        if value is None or name in honoured or name in NO_EFFECT[operation]:
            continue
        reason = refused.get(name)
        if reason is None:
            raise CallerError(
                "unknown-parameter",
                f"Unrecognized request argument supplied: {name[:100]}",
                hint="docs/howto/refused.md has all parameters.",
                param=name[:100],
            )
        if not any(_equal(value, each) for each in harmless(operation, name)):
            raise unsupported(name, reason)


def _equal(one: Any, other: Any) -> bool:
    """True == 1 in Python, and is another value in JSON."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
