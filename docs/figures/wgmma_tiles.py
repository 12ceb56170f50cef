#!/usr/bin/env python3
"""Writes wgmma_tiles.svg: how tiles of K and V lie in shared memory, and what each wgmma reads of them.

hopper_layouts.json has the places, as the simulator saw chapter 5's products read them (tests/docs/hopper_figures.py)."""
import json
from pathlib import Path

from svg import Figure

LAYOUTS = Path(__file__).with_name("hopper_layouts.json")
PIECE, ROW, ATOM, PANEL = 16, 128, 1024, 16384  # bytes; a panel of 128 keys
CELL, STRIPE, HIGH = 25, 22, 20
LOOKS = ("blue", "amber", "green", "")  # of the first four products


def atom(figure, x, y, products, pieces_of_line):
    """The first 8 rows of 128 bytes: each piece where it lies, coloured by the product that reads it."""
    for product, offsets in enumerate(products):
        for index, offset in enumerate(offsets):
            if offset < ATOM:
                left, top = x + offset % ROW // PIECE * CELL, y + offset // ROW * CELL
                piece = index % pieces_of_line + (product * pieces_of_line if pieces_of_line == 2 else 0)
                figure.box(left, top, CELL, CELL, LOOKS[product])
                figure.text(left + CELL / 2, top + CELL / 2 + 5, str(piece), "small", "middle")


def panels(figure, x, y, products, rows, wide):
    """Which product reads what of the first atoms of both panels; `wide` is the bytes of a row that one product reads, as drawn."""
    for panel in range(2):
        for group in range(rows):
            begin = panel * PANEL + group * ATOM
            readers = [number for number, offsets in enumerate(products) if any(begin <= offset < begin + ATOM for offset in offsets)]
            for place, number in enumerate(readers):
                figure.box(x + panel * 104 + place * wide, y + group * HIGH, wide, HIGH, LOOKS[number % 4])
                figure.text(x + panel * 104 + (place + 0.5) * wide, y + group * HIGH + 15, str(number), "small", "middle")


def main():
    layouts = json.loads(LAYOUTS.read_text(encoding="utf-8"))
    k, v = layouts["k"], layouts["v"]
    figure = Figure(478, 500, "A tile lies in panels of 64 columns, whose rows of 128 bytes have their 16-byte pieces exchanged. A product reads two "
                              "pieces of every row of K, and all pieces of 16 rows of V.")
    left, right = 20, 258
    for x, name, way in ((left, "K, and Q", "contraction-major"), (right, "V", "the sum runs down rows")):
        figure.text(x, 28, name, "bold")
        figure.text(x, 48, way, "small soft")
        figure.text(x, 72, "8 rows; numbers: pieces", "small soft")
    atom(figure, left, 82, k[:4], 2)
    atom(figure, right, 82, v[:1], 16)
    y = 336
    for x in (left, right):
        figure.text(x, y - 26, "numbers, colours: products", "small soft")
        for panel in range(2):
            figure.text(x + panel * 104, y - 7, f"columns {64 * panel}–{64 * panel + 63}", "small soft")
    panels(figure, left, y, k, 4, STRIPE)
    panels(figure, right, y, v, 4, 4 * STRIPE)
    y += 4 * HIGH + 24
    stride, panel = k[0][8 * 2] - k[0][0], k[4][0] - k[0][0]
    for i, words in enumerate((f"8 rows on: stride, {stride}", f"next product: + {k[1][0] - k[0][0]}", f"next panel: + {panel}")):
        figure.text(left, y + 20 * i, words, "small")
    for i, words in enumerate((f"8 keys on: stride, {v[0][8 * 16] - v[0][0]}", f"next product: + {v[1][0] - v[0][0]}",
                               f"64 columns on: leading, {v[0][8] - v[0][0]}")):
        figure.text(right, y + 20 * i, words, "small")
    figure.write(__file__)


if __name__ == "__main__":
    main()
