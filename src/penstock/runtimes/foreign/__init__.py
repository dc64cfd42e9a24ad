"""Programs that are not ours and answer GET /ping and POST /invocations.

Here belong their start behind a guard, the connections to them and their end. It must not know
Python models: a foreign server is its address, its exit status and its lines.
"""
