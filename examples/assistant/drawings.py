"""Pictures of products as small SVG files: one drawing for each shape that `shop.json` names.

Serves `catalogue.image_svg`. A drawing is made on a square of 200 by 200 from a few marks, each
with its paint: `main` is the product's colour, `dark` and `light` its shades, `line` the ink. It
must not know products beyond the words it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape, quoteattr

COLOURS: Mapping[str, str] = {
    "black": "#33363b", "white": "#f4f2ec", "grey": "#959aa1", "blue": "#3d7fd1",
    "navy": "#27407a", "red": "#cf3f3c", "green": "#3f9a5b", "olive": "#7c8440",
    "yellow": "#eec33b", "orange": "#e8873a", "purple": "#7d55b5", "pink": "#e68cac",
    "brown": "#8a5a3b", "beige": "#d9c3a0", "turquoise": "#35b0ab",
}  # fmt: skip
GROUNDS: Mapping[str, str] = {
    "footwear": "#eef3e6", "clothing": "#f3eaf0", "bags": "#f6efe2", "outdoors": "#e3f0ea",
    "sport": "#e6eff8", "kitchen": "#fbefe4", "electronics": "#e8eaf3", "home": "#f4efe9",
    "garden": "#e8f3dd", "toys": "#fdf1d8",
}  # fmt: skip

#: shape -> marks of (paint, SVG path); an "o" path stands for a circle: "o x y radius".
SHAPES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "shoe": (
        ("dark", "M28 138h144q6 14-6 18H40q-14-4-12-18z"),
        ("main", "M30 138V86q14 12 34-4l40 34q34 2 62 12l4 10z"),
        ("light", "M84 96l-10 10 6 6 10-10zM98 108l-10 10 6 6 10-10z"),
    ),
    "boot": (
        ("dark", "M44 152h124v14H44z"),
        ("main", "M52 152V40h58v60q40 4 56 30l2 22z"),
        ("light", "M66 56h44v8H66zM66 74h44v8H66zM66 92h44v8H66z"),
    ),
    "sandal": (
        ("dark", "M24 136q70-18 152 0 6 18-10 20H38q-18-2-14-20z"),
        ("main", "M52 134q10-52 60-20l40 22q-50-10-100-2z"),
        ("light", "M92 108l14 22-12 2-14-22z"),
    ),
    "jacket": (
        ("main", "M70 44h60l44 30-14 46-20-8v56H60v-56l-20 8-14-46z"),
        ("dark", "M97 48h6v120h-6zM78 44q22 30 44 0l-6-10H84z"),
        ("light", "M68 124h20v20H68zM112 124h20v20h-20z"),
    ),
    "shirt": (
        ("main", "M72 46h56l48 34-20 30-18-10v68H62v-68l-18 10-20-30z"),
        ("light", "M72 46q28 34 56 0h-12q-16 18-32 0z"),
    ),
    "hat": (
        ("main", "M44 124q0-76 56-76t56 76z"),
        ("dark", "M36 118h128v32H36z"),
        ("light", "o 100 42 14"),
    ),
    "glove": (
        ("main", "M66 150V92q-22-8-14-24t26 6V50q8-12 16 0v-8q8-12 16 0v8q8-10 16 0v14q9-8 9 4v82"),
        ("dark", "M62 146h80v24H62z"),
    ),
    "backpack": (
        ("dark", "M74 52q0-28 26-28t26 28h-12q0-16-14-16T86 52z"),
        ("main", "M52 82q0-38 48-38t48 38v88H52z"),
        ("light", "M66 112h68v44H66z"),
        ("dark", "M66 126h68v5H66z"),
    ),
    "bag": (
        ("dark", "M62 92q0-46 38-46t38 46h-12q0-34-26-34T74 92z"),
        ("main", "M24 90h152q10 40-4 66H28q-14-26-4-66z"),
        ("light", "M54 90h12v66H54zM134 90h12v66h-12z"),
    ),
    "suitcase": (
        ("dark", "M78 58V30h44v28h-10V40H88v18z"),
        ("main", "M50 56h100v104H50z"),
        ("light", "M70 66h6v84h-6zM97 66h6v84h-6zM124 66h6v84h-6z"),
        ("dark", "o 64 168 9"),
        ("dark", "o 136 168 9"),
    ),
    "wallet": (
        ("light", "M40 60h104v20H40z"),
        ("main", "M32 70h136v80H32z"),
        ("dark", "M124 96h44v28h-44z"),
        ("light", "o 140 110 6"),
    ),
    "tent": (
        ("main", "M100 44L182 158H18z"),
        ("dark", "M100 44l34 114H66z"),
        ("light", "M100 44l4 114h-8z"),
    ),
    "bedroll": (
        ("main", "M40 76h120q18 34 0 68H40z"),
        ("dark", "o 44 110 34"),
        ("light", "o 44 110 20"),
        ("main", "o 44 110 8"),
        ("dark", "M96 76h8v68h-8zM136 76h8v68h-8z"),
    ),
    "stove": (
        ("line", "M52 84h96v6H52zM70 70h6v16h-6zM124 70h6v16h-6z"),
        ("light", "M100 52q18 20 0 32-18-12 0-32z"),
        ("main", "M44 90h112l-8 46H52z"),
        ("dark", "o 100 114 11"),
        ("dark", "M58 136h10v26H58zM132 136h10v26h-10z"),
    ),
    "lamp": (
        ("light", "M46 84l64-46 40 62-74 20z"),
        ("main", "M62 84l46-34 26 38-54 16z"),
        ("dark", "M118 60l32 30-26 72h-8l24-70-26-24z"),
        ("dark", "M84 158h80v12H84z"),
    ),
    "bottle": (
        ("dark", "M84 26h32v24H84z"),
        ("main", "M78 50h44q16 18 16 40v82H62V90q0-22 16-40z"),
        ("light", "M74 104h8v52h-8z"),
    ),
    "mat": (
        ("main", "M54 60h118q12 40-4 84H54z"),
        ("dark", "o 56 102 42"),
        ("light", "o 56 102 28"),
        ("dark", "o 56 102 15"),
    ),
    "dumbbell": (
        ("dark", "M60 94h80v14H60z"),
        ("main", "M40 62h24v78H40zM136 62h24v78h-24z"),
        ("light", "M24 78h16v46H24zM160 78h16v46h-16z"),
    ),
    "helmet": (
        ("main", "M28 126q0-76 72-76t72 70l-8 10z"),
        ("light", "M84 62q-24 20-26 52h12q4-30 28-52zM124 66q-18 20-20 48h12q4-26 22-42z"),
        ("line", "M60 126h6l18 36h-8zM136 126h-6l-44 36h8z"),
    ),
    "ball": (
        ("main", "o 100 104 62"),
        ("light", "M100 76l26 19-10 31H84L74 95z"),
        ("line", "M98 42h4v34h-4zM126 93l33-11 2 4-33 11zM74 93L41 82l-2 4 33 11z"),
        ("line", "M115 126l20 28-4 3-20-28zM85 126l-20 28 4 3 20-28z"),
    ),
    "racket": (
        ("main", "M100 22q48 0 48 50t-40 50v12H92v-12Q52 122 52 72t48-50z"),
        ("ground", "M100 34q36 0 36 38t-36 38-36-38 36-38z"),
        ("line", "M76 44h2v56h-2zM99 34h2v76h-2zM122 44h2v56h-2zM66 58h68v2H66zM64 82h72v2H64z"),
        ("dark", "M92 130h16v46H92z"),
    ),
    "knife": (
        ("light", "M84 24q44 40 34 92H84z"),
        ("line", "M82 114h38v8H82z"),
        ("main", "M84 122h26q8 30-2 54H90q-8-28-6-54z"),
        ("dark", "o 98 138 4"),
        ("dark", "o 98 158 4"),
    ),
    "pan": (
        ("dark", "M138 96h50v14h-50z"),
        ("main", "o 84 102 60"),
        ("dark", "o 84 102 46"),
        ("light", "M58 86q10-18 28-18v6q-16 2-22 16z"),
    ),
    "kettle": (
        ("dark", "M76 56q0-28 28-28t28 28h-10q0-18-18-18T86 56z"),
        ("main", "M62 60h84l12 104H50z"),
        ("main", "M64 84L26 70l4 18 30 20z"),
        ("light", "M74 76h10l-6 74H66z"),
        ("dark", "o 104 54 9"),
    ),
    "coffee": (
        ("main", "M50 34h100v28H92v74h58v30H50z"),
        ("dark", "M106 62h22v12h-22z"),
        ("light", "M100 96h36v36h-36z"),
        ("light", "M136 102q18 0 16 12t-16 12v-6q10-6 0-12z"),
    ),
    "blender": (
        ("light", "M64 34h72l-12 82H76z"),
        ("main", "M74 72h56l-6 44H76z"),
        ("dark", "M60 26h80v12H60z"),
        ("main", "M70 120h60l12 50H58z"),
        ("light", "o 100 146 9"),
    ),
    "mug": (
        ("main", "M48 58h88v104H48z"),
        ("dark", "M136 78q36-2 36 30t-36 32v-14q20-2 20-18t-20-16z"),
        ("light", "M60 74h10v70H60z"),
    ),
    "box": (
        ("main", "M34 78h132v84H34z"),
        ("dark", "M28 56h144v26H28z"),
        ("light", "M86 78h28v34H86zM48 128h30v8H48z"),
    ),
    "headphones": (
        ("dark", "M40 118q0-76 60-76t60 76h-14q0-60-46-60t-46 60z"),
        ("main", "M32 106h34v58H32zM134 106h34v58h-34z"),
        ("light", "M58 112h8v46h-8zM134 112h8v46h-8z"),
    ),
    "earbuds": (
        ("main", "o 70 84 28"),
        ("main", "o 130 84 28"),
        ("dark", "M62 100h16v58H62zM122 100h16v58h-16z"),
        ("light", "o 76 80 11"),
        ("light", "o 124 80 11"),
    ),
    "speaker": (
        ("main", "M54 28h92v144H54z"),
        ("dark", "o 100 66 20"),
        ("dark", "o 100 124 34"),
        ("light", "o 100 66 8"),
        ("light", "o 100 124 14"),
    ),
    "keyboard": (
        ("main", "M18 70h164v70H18z"),
        ("light", "M28 80h16v12H28zM50 80h16v12H50z"),
        ("light", "M72 80h16v12H72zM94 80h16v12H94zM116 80h16v12h-16z"),
        ("light", "M138 80h34v12h-34zM28 98h24v12H28z"),
        ("light", "M58 98h16v12H58zM80 98h16v12H80zM102 98h16v12h-16z"),
        ("dark", "M124 98h48v12h-48zM28 116h16v12H28zM50 116h90v12H50zM146 116h26v12h-26z"),
    ),
    "powerbank": (
        ("main", "M62 34h76v132H62z"),
        ("dark", "M80 26h14v8H80zM106 26h14v8h-14z"),
        ("light", "M104 66L82 106h16l-6 34 28-46h-18z"),
    ),
    "watch": (
        ("dark", "M76 20h48l4 40H72zM72 140h56l-4 40H76z"),
        ("main", "M58 56h84v88H58z"),
        ("light", "M68 66h64v68H68z"),
        ("line", "M98 76h4v26h18v4H98z"),
    ),
    "chair": (
        ("main", "M66 30h68v70H66z"),
        ("dark", "M96 100h8v12h-8zM96 126h8v26h-8z"),
        ("main", "M54 110h92v18H54z"),
        ("dark", "M56 150h88v8H56z"),
        ("line", "o 60 164 7"),
        ("line", "o 100 164 7"),
        ("line", "o 140 164 7"),
    ),
    "desk": (
        ("main", "M18 74h164v16H18z"),
        ("dark", "M38 90h12v72H38zM150 90h12v72h-12zM28 160h32v8H28zM140 160h32v8h-32z"),
        ("light", "M78 36h56v34H78z"),
        ("line", "M102 68h8v6h-8z"),
    ),
    "pillow": (
        ("main", "M32 68q68-22 136 0 14 34 0 70-68 20-136 0-14-36 0-70z"),
        ("light", "M48 80q34-10 60-10v6q-30 2-56 12z"),
        ("dark", "M40 132q60 14 120 0v4q-60 16-120 0z"),
    ),
    "blanket": (
        ("main", "M36 50h128v100H36z"),
        ("light", "M36 66h128v8H36zM36 126h128v8H36z"),
        ("dark", "M70 86l30 14-30 14zM130 86l-30 14 30 14z"),
        ("dark", "M36 150h6v14h-6zM60 150h6v14h-6z"),
        ("dark", "M84 150h6v14h-6zM110 150h6v14h-6zM134 150h6v14h-6z"),
        ("dark", "M158 150h6v14h-6z"),
    ),
    "tower": (
        ("main", "M66 28h68v140H66z"),
        ("dark", "M76 84h48v6H76zM76 98h48v6H76zM76 112h48v6H76zM76 126h48v6H76zM76 140h48v6H76z"),
        ("light", "o 100 54 13"),
    ),
    "pot": (
        ("leaf", "M100 84q-44-10-44-56 42 6 44 56zM100 84q2-44 44-46-2 42-44 46z"),
        ("dark", "M52 82h96v20H52z"),
        ("main", "M58 102h84l-12 66H70z"),
        ("light", "M72 110h8l6 50h-8z"),
    ),
    "hose": (
        ("main", "o 92 108 60"),
        ("ground", "o 92 108 46"),
        ("dark", "o 92 108 36"),
        ("ground", "o 92 108 22"),
        ("main", "M140 64l34-26 8 12-34 26z"),
    ),
    "shears": (
        ("light", "M96 100q-26-40-14-76 26 26 28 72zM104 100q22-38 10-70-16 18-24 58z"),
        ("main", "M92 100q-40 20-34 72 16 4 14-10 0-34 30-50z"),
        ("dark", "M108 100q40 20 34 72-16 4-14-10 0-34-30-50z"),
        ("line", "o 100 104 6"),
    ),
    "puzzle": (
        ("main", "M40 60h42q-8-22 12-22t12 22h42v36q22-8 22 12t-22 12v40H40z"),
        ("light", "M62 84h12v50H62z"),
        ("dark", "o 112 120 12"),
    ),
    "blocks": (
        ("main", "M28 104h66v60H28z"),
        ("dark", "M104 104h66v60h-66z"),
        ("light", "M66 40h66v60H66z"),
        ("line", "o 99 70 10"),
    ),
}  # fmt: skip


def picture(shape: str, *, colour: str, category: str, title: str, variant: int) -> str:
    """The SVG document; `variant` turns the thing a little, so that no row is uniform."""
    ground, main = GROUNDS[category], COLOURS[colour]
    paints = {
        "main": main, "dark": _mixed(main, "#000000", 0.3), "light": _mixed(main, "#ffffff", 0.55),
        "line": "#3a3d42", "leaf": "#5d9c59", "ground": ground,
    }  # fmt: skip
    turn, size = (-5, -2, 0, 2, 5)[variant % 5], (0.86, 0.92, 0.98)[variant % 3]
    marks = "".join(_mark(path, paints[paint]) for paint, path in SHAPES[shape])
    spot = _mixed(ground, main, 0.16)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 200" role="img"'
        f" aria-label={quoteattr(title)}><title>{escape(title)}</title>"
        f'<rect width="200" height="200" fill="{ground}"/>'
        f'<circle cx="{150 - variant % 7 * 15}" cy="{60 + variant % 4 * 20}" r="70" fill="{spot}"/>'
        '<ellipse cx="100" cy="174" rx="66" ry="7" fill="#000" opacity=".12"/>'
        f'<g transform="translate(100 100) rotate({turn}) scale({size}) translate(-100 -100)"'
        f' stroke="#3a3d42" stroke-width="1.5" stroke-linejoin="round">{marks}</g></svg>'
    )


def _mark(path: str, paint: str) -> str:
    if path.startswith("o "):
        x, y, radius = path[2:].split()
        return f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{paint}"/>'
    return f'<path d="{path}" fill="{paint}"/>'


def _mixed(colour: str, other: str, share: float) -> str:
    """`colour` with a share of `other`, both "#rrggbb"."""
    pairs = [(int(colour[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)
