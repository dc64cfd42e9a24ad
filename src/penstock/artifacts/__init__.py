"""From the place that names a model to a folder that can be loaded, and what the model in it is.
This folder holds the whole way (`prepare`) and the prefix of a multi-model endpoint.
"""
