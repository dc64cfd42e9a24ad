"""The front doors: AWS's services, Triton's and OpenAI's protocols, the admin API. Each reads a
request, checks it, calls the layer below and writes the answer. Decisions are made elsewhere.
"""
