"""`python -m bench.tables FILE... [--into PAGE]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.tables import lines_in, put_into, text_of

parser = argparse.ArgumentParser(prog="python -m bench.tables")
parser.add_argument("files", nargs="+", type=Path)
parser.add_argument("--into", type=Path, help="a page with marked places")
options = parser.parse_args(sys.argv[1:])
seen = [line for path in options.files for line in lines_in(path.read_text())]
page = options.into.read_text() if options.into else ""
for line in seen:
    if options.into:
        page = put_into(page, line)
    else:
        print(text_of(line), end="\n\n")
if options.into:
    options.into.write_text(page)
