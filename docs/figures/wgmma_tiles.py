#!/usr/bin/env python3
"""Writes wgmma_tiles.svg: the layout of tiles of K and V in shared memory, and the parts that each wgmma reads.

hopper_layouts.json has the addresses that chapter 5's products read in the simulator
(docs/figures/recorded/hopper_figures.py)."""
import json
from pathlib import Path

from svg import Figure

LAYOUTS = Path(__file__).with_name("hopper_layouts.json")
PIECE, ROW, ATOM, PANEL = 16, 128, 1024, 16384  # bytes; a panel has 128 keys
CELL, STRIPE, HIGH, APART = 25, 23, 26, 118
LOOKS = ("blue", "amber", "", "")  # for the first four products
SHOWN = (3, 2)                     # row and piece of the worked example


def atom(figure, x, y, products, pieces_of_line):
    """Draws the first 8 rows of 128 bytes: each piece in its place, coloured by the product that reads it."""
    for row in range(8):
        figure.text(x - 8, y + row * CELL + 17, str(row), "small soft", "end")
    for product, offsets in enumerate(products):
        for index, offset in enumerate(offsets):
            if offset < ATOM:
                left, top = x + offset % ROW // PIECE * CELL, y + offset // ROW * CELL
                piece = index % pieces_of_line + (product * pieces_of_line if pieces_of_line == 2 else 0)
                figure.box(left, top, CELL, CELL, LOOKS[product], str(piece))
                if (offset // ROW, piece) == SHOWN:
                    assert offset % ROW // PIECE == SHOWN[0] ^ SHOWN[1]
                    ring = [(left + 2, top + 2), (left + CELL - 2, top + 2), (left + CELL - 2, top + CELL - 2), (left + 2, top + CELL - 2)]
                    figure.line([*ring, ring[0]], "red")


def panels(figure, x, y, products, rows, wide):
    """Draws which product reads which part of the first atoms of both panels; `wide` is the width of what one product
    reads of a row."""
    for panel in range(2):
        figure.text(x + panel * APART, y - 28, f"columns {64 * panel}–{64 * panel + 63}", "small soft")
        for group in range(rows):
            begin = panel * PANEL + group * ATOM
            readers = [number for number, offsets in enumerate(products) if any(begin <= offset < begin + ATOM for offset in offsets)]
            for place, number in enumerate(readers):
                figure.box(x + panel * APART + place * wide, y + group * HIGH, wide, HIGH, LOOKS[number] if number < 2 else "", str(number))


layouts = json.loads(LAYOUTS.read_text(encoding="utf-8"))
k, v = layouts["k"], layouts["v"]
figure = Figure(548, 608, "A tile is stored in panels of 64 columns, whose rows of 128 bytes have their 16-byte pieces permuted. A wgmma reads two "
                          "pieces of every row of K, and all pieces of 16 rows of V. Arrows are the distances of the descriptor.")
left, right = 34, 308
for x, name, way in ((left, "K, and Q", "a wgmma sums along a row:"), (right, "V", "a wgmma sums down the rows:")):
    figure.text(x, 28, name, "bold")
    figure.text(x, 50, way, "small")
figure.text(left, 68, "it takes 16 columns, 2 pieces", "small")
figure.text(right, 68, "it takes 16 keys, all their pieces", "small")
for x in (left, right):
    figure.text(x - 14, 96, "the first 8 rows; numbers: pieces", "small soft")
atom(figure, left, 106, k[:4], 2)
atom(figure, right, 106, v[:1], 16)
row, piece = SHOWN
figure.lines(left - 14, 328, (f"Red: piece {piece} of row {row} is", f"at place {piece} ⊕ {row} = {row ^ piece}"), "small red", step=18)

y = 426
for x, words in ((left, "8 rows per line; numbers: wgmmas"), (right, "8 keys per line; numbers: wgmmas")):
    figure.text(x - 14, y - 50, words, "small soft")
panels(figure, left, y, k, 4, STRIPE)
panels(figure, right, y, v, 4, 4 * STRIPE)
middle = HIGH / 2
stride, next_product, next_panel = k[0][8 * 2] - k[0][0], k[1][0] - k[0][0], k[4][0] - k[0][0]
figure.arrow(left - 8, y + middle, left - 8, y + HIGH + middle, "green")
figure.arrow(left + STRIPE / 2, y - 7, left + 1.5 * STRIPE, y - 7, "amber")
figure.arrow(left + STRIPE / 2, y - 16, left + APART + STRIPE / 2, y - 16, "red")
assert stride == v[0][8 * 16] - v[0][0] and next_panel == v[0][8] - v[0][0]
figure.arrow(right - 8, y + middle, right - 8, y + HIGH + middle, "green")
figure.arrow(right + 12, y + middle, right + 12, y + 2 * HIGH + middle, "amber")
figure.arrow(right + 2 * STRIPE, y - 14, right + APART + 2 * STRIPE, y - 14, "red")
y += 4 * HIGH + 24
for i, (look, words) in enumerate((("green", f"stride {stride}: to the next 8 rows"), ("amber", f"+ {next_product}: to the next wgmma"),
                                   ("red", f"+ {next_panel}: to wgmma 4"))):
    figure.text(left - 14, y + 20 * i, words, f"small {look}")
for i, (look, words) in enumerate((("green", f"stride {stride}: to the next 8 keys"), ("amber", f"+ {v[1][0] - v[0][0]}: to the next wgmma"),
                                   ("red", f"leading {next_panel}: 64 columns on"))):
    figure.text(right - 14, y + 20 * i, words, f"small {look}")
figure.write(__file__)
