"""OpenAI's API: models, chat, completions, embeddings."""
