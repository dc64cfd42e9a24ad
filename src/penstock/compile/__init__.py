"""The compiler: a model as its library wrote it becomes an artifact for one kind of processor,
with the proof that both answer alike. A folder for each kind of model; `build` is the way in.
"""
