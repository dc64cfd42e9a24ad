"""Foreign model servers: programs that answer GET /ping and POST /invocations.

This folder starts them behind a guard, connects to them and ends them. It must not know Python
models, nor the content of bodies: a program is its command, its port and its status.
"""
