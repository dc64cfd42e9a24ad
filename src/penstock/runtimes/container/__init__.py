"""Container images that answer GET /ping and POST /invocations, run by Podman or Docker.

This folder finds the engine, starts containers and removes them. How one speaks to the server
inside is `foreign`'s; it must not know what an artifact is, nor pull an image.
"""
