"""Programs that are not ours and answer GET /ping and POST /invocations.

Here belong their start behind a guard, the connections to them and their end. It must not know
Python models or what a body holds: a program is its command, its port and its status.
"""
