#!/usr/bin/env python3
"""Writes mask_tiles.svg: four masks, and what the kernel makes of their tiles. Classes are the kernel's own: the test
TileClasses.AreWhatTheFigureShows holds mask_tiles.json against them."""
import json
from pathlib import Path

from svg import Figure

CELL, GAP, TOP = 18, 60, 84


def main():
    data = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    count = data["length"] // data["tile"]
    side = CELL * count
    figure = Figure(2 * side + GAP + 40, TOP + 2 * (side + 74) - 8,
                    f"{data['length']} queries and keys in tiles of {data['tile']} under four masks: tiles that are full, partial, or skipped.")
    for x, look, words in ((20, "blue", "full: no mask"), (160, "amber", "partial: asked pair by pair"), (372, None, "skipped")):
        if look:
            figure.box(x, 16, 16, 16, look)
        else:
            figure.line([(x + 4, 24), (x + 12, 24)])
        figure.text(x + 24, 29, words, "small")
    for place, (name, rows) in enumerate(data["masks"]):
        left, top = 20 + place % 2 * (side + GAP), TOP + place // 2 * (side + 74)
        figure.text(left, top - 12, name, "bold")
        for row, tiles in enumerate(rows):
            for column, what in enumerate(tiles):
                x, y = left + CELL * column, top + CELL * row
                if what == ".":
                    figure.line([(x + 7, y + 9), (x + 11, y + 9)])
                else:
                    figure.box(x + 1, y + 1, CELL - 2, CELL - 2, "blue" if what == "#" else "amber")
        full, partial = ("".join(rows).count(what) for what in "#o")
        figure.text(left, top + side + 20, f"{full} full and {partial} partial of {count * count}", "small soft")
    figure.text(20, figure.height - 14, "A row of each picture is a tile of queries, a column a tile of keys.", "small soft")
    figure.write(__file__)


if __name__ == "__main__":
    main()
