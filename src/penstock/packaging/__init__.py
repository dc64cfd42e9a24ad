"""Packages and their stores: descriptions of packages, archives, manifests, places to put them.

`build` makes packages from a package file, `wishes` turns an apply file and a manifest into the
desired endpoints, and the stores put archives where servers fetch them. `core/apply/plan.py`
decides which steps are needed, and `cli/endpoints/apply.py` carries them out. This folder knows no
server and no protocol except that of object stores, and is never imported while a request is
served.
"""
