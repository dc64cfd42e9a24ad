"""An unmodified openai client asks models by name: BASE_URL NAME..."""

import json
import sys

import openai

base, *names = sys.argv[1:]
client = openai.OpenAI(base_url=f"{base}/v1", api_key="any", max_retries=0, timeout=60.0)
seen = {"models": sorted(model.id for model in client.models.list())}
for name in names:
    try:
        answer = client.completions.create(model=name, prompt="Say", max_tokens=4, temperature=0)
        chunks = client.completions.create(
            model=name, prompt="Say", max_tokens=4, temperature=0, stream=True
        )
        streamed = [(chunk.model, chunk.choices[0].text) for chunk in chunks if chunk.choices]
        seen[name] = {
            "answered": sorted({answer.model, *(model for model, _ in streamed)}),
            "same": answer.choices[0].text == "".join(text for _, text in streamed),
            "card": client.models.retrieve(name).id,
        }
    except openai.APIStatusError as error:
        seen[name] = {"error": [error.status_code, error.code]}
print(json.dumps(seen))
