"""The compiler: it turns a model as its library saved it into an artifact for one kind of
processor, and proves that both answer alike. Each kind of model has a folder; `build` is the entry
point.
"""
