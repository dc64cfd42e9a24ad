"""The grammar of shopping queries as read from `templates.txt` and `vocabulary.txt`.

Serves `data.py`; the order of LABELS is the order of the logits. Knows nothing of the split or of
noise. The two files say themselves how they are written.
"""

from __future__ import annotations

from pathlib import Path


def _sections(file: str) -> dict[str, list[str]]:
    """The file's lines under each `[heading]`, without comments and empty lines."""
    sections: dict[str, list[str]] = {}
    current = ""
    for line in (Path(__file__).parent / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and line.endswith("]"):
            current = line[1:-1]
            sections[current] = []
        elif line and not line.startswith("#"):
            sections[current].append(line)
    return sections


#: Templates by label, in the order written; a line written twice weighs twice.
TEMPLATES = _sections("templates.txt")
LABELS = tuple(TEMPLATES)

#: Words and phrases by heading, each once.
WORDS: dict[str, tuple[str, ...]] = {
    name: tuple(dict.fromkeys(part for line in lines for part in line.rstrip(",").split(", ")))
    for name, lines in _sections("vocabulary.txt").items()
}

DEPARTMENTS = tuple(
    name.removeprefix("department ") for name in WORDS if name.startswith("department ")
)

#: The product words of all departments, each once.
NOUNS = tuple(dict.fromkeys(noun for name in DEPARTMENTS for noun in WORDS[f"department {name}"]))
