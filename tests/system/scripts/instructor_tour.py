"""Run by the environment of `instructor`: one object in each of its modes."""

from __future__ import annotations

import json
import sys
from typing import Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel

BASE, MODEL = sys.argv[1:3]


class InstructedOrder(BaseModel):
    size: Literal["small", "large"]
    count: int


def main() -> None:
    api = OpenAI(base_url=f"{BASE}/v1", api_key="any", max_retries=0, timeout=60.0)
    seen: dict[str, object] = {}
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        made = instructor.from_openai(api, mode=mode).chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "A large order"}],
            response_model=InstructedOrder,
            temperature=0,
            max_tokens=400,
            max_retries=0,
        )
        seen[mode.name] = [type(made).__name__, made.size in ("small", "large")]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
