#!/usr/bin/env python3
"""Writes mask_tiles.svg, the static version of the interactive figure: four masks and the class that the kernels assign
to each of their tiles."""
import json
from pathlib import Path

from svg import Figure

DATA = Path(__file__).with_name("interactive") / "mask_tiles_data.js"
SHOWN = ("causal", "sinks", "causal_documents", "answers")
CELL = 14
LOOKS = {".": "", "+": "amber", "#": "blue"}


text = DATA.read_text(encoding="utf-8")
data = json.loads(text[text.index("{\"length"):text.rindex("}") + 1])
masks = {mask["name"]: mask for mask in data["masks"]}
figure = Figure(500, 592, "The 128-by-128 tiles of four masks over 2048 queries and keys: most are skipped or full, and those at the edges are partial.")
for i, name in enumerate(SHOWN):
    x, y = 16 + i % 2 * 244, 30 + i // 2 * 270
    figure.text(x, y, masks[name]["words"], "small bold")
    for row, classes in enumerate(masks[name]["classes"]):
        for tile, kind in enumerate(classes):
            figure.box(x + tile * CELL, y + 10 + row * CELL, CELL - 1, CELL - 1, LOOKS[kind])
for x, look, words in ((16, "blue", "full: no mask needed"), (176, "amber", "partial: masked by pair"), (376, "", "skipped")):
    figure.box(x, 560, 14, 14, look)
    figure.text(x + 20, 572, words, "small soft")
figure.write(__file__)
