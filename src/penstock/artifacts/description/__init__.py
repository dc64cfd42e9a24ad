"""The description of a model: model.yaml read and checked to the last key, and the values it
becomes.
"""
