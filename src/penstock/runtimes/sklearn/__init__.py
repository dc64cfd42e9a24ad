"""Models of scikit-learn that come as files alone: how they are recognised, how a worker asks them.

`record` reads files and imports no library; `predictor` runs in the worker, in the environment that
was made for the model. Neither knows who asks, or another runtime than `python`, whose workers they
use.
"""
