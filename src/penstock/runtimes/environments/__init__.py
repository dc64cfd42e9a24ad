"""The Python environments of models: what one needs, how it is built, where it is kept.

    settings      what the operator allows
    requirements  what a model asks for: requirements.txt and model.yaml, read strictly
    images        which libraries the name of an image stands for
    interpreters  which Pythons this machine has
    spec          all that decides an environment's content, and its key
    installer     pip or uv, as a process behind walls
    build         a new environment
    own_copies    packages that it gets from the server's own
    packed        an environment that the artifact brings as an archive
    store         environments of this machine: locks, last use, failures
    provide       from a model that is to be loaded to the Python that its processes run; also
                  for the compile of a model

It must not know what a model's processes do. The server's own environment is never written to, and
nothing of an artifact or of an environment runs outside of walls.
"""
