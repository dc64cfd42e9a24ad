"""Packages and where they go: files that say what a model is made of, archives, manifests, stores.

`build` makes packages from a package file, `wishes` turns an apply file and a manifest into what
endpoints should be made of, and the stores put archives where servers fetch them. What has to be
done is decided in `core/apply/plan.py`, and done by `cli/endpoints/apply.py`. Knows no server and
no protocol but that of object stores; nothing here is imported while a request is served.
"""
