#!/usr/bin/env python3
"""Writes mma_fragments.svg: which lane holds which elements of the matrices of mma.sync m16n8k16. The layout is read
from common/ptx/mma.h."""
import re
from pathlib import Path

from svg import Figure

HEADER = Path(__file__).resolve().parents[2] / "common" / "ptx" / "mma.h"
WIDTH, HEIGHT = 29, 18  # size of an element
LANE = 6                # its elements are marked
ROW_LANES = range(4)    # lanes that share a row of c and a


def place_of(matrix):
    """Returns the header's own formula: (lane, element) -> (row, column)."""
    found = re.search(rf"MatrixPlace {matrix}\(int lane, int element\) {{\s*return {{(.*?), (.*?)}};", HEADER.read_text(encoding="utf-8"))
    assert found, f"{HEADER} has a different formula"
    row, column = (expression.replace("/", "//") for expression in found.groups())  # integer division, as in C++
    return lambda lane, element: (eval(row), eval(column))  # the formula uses these two names


def fragments(matrix, elements):
    """Yields (lane, register, row, column) of the first of the two elements in each register; for c, of each pair of
    floats."""
    place = place_of(matrix)
    for lane in range(32):
        for element in range(0, elements, 2):
            yield lane, element // 2, *place(lane, element)


def look_of(lane):
    return "green" if lane == LANE else "blue" if lane in ROW_LANES else ""


def main():
    operand = {(row, column): register for lane, register, row, column in fragments("a", 8) if lane == LANE}
    # The figure's claim: the results of two products, side by side, form the left operand.
    side_by_side = {(lane, row, column + 8 * product) for product in (0, 1) for lane, _, row, column in fragments("c", 4)}
    assert side_by_side == {(lane, row, column) for lane, _, row, column in fragments("a", 8)}

    figure = Figure(512, 734, "Two results of 16 × 8 side by side have the layout of a left operand of 16 × 16: every lane already holds its elements of the next "
                              "product's operand. Four neighbouring lanes hold a row.")
    x, y = 18, 66
    figure.text(x, 26, "Two products' results are the next one's left operand", "bold")
    for product in range(2):
        figure.text(x + (8 * product + 4) * WIDTH, y - 18, f"c of product {product}: 16 × 8", "small soft", "middle")
        figure.line([(x + (8 * product + 0.15) * WIDTH, y - 8), (x + (8 * product + 7.85) * WIDTH, y - 8)], "ink")
    for lane, _, row, column in fragments("a", 8):
        figure.box(x + column * WIDTH, y + row * HEIGHT, 2 * WIDTH, HEIGHT, look_of(lane))
        words = str(lane) if lane != LANE else f"{lane} · a{operand[row, column]}"
        figure.text(x + (column + 1) * WIDTH, y + row * HEIGHT + 14, words, "small", "middle")
    y += 16 * HEIGHT
    figure.line([(x + 0.15 * WIDTH, y + 9), (x + 15.85 * WIDTH, y + 9)], "ink")
    figure.text(x + 8 * WIDTH, y + 26, "a of the next product: 16 × 16", "small soft", "middle")
    y += 66
    figure.text(x, y - 12, "b of a product: 16 × 8", "small soft")
    for lane, register, row, column in fragments("b", 4):
        figure.box(x + column * 25, y + row * HEIGHT, 25, 2 * HEIGHT, look_of(lane), f"b{register}" if lane == LANE else str(lane))
    lines = ("A box is a pair of neighbours,", "its number the lane that holds it.", "",
             "Green: lane 6. Its results c0 c1 and", "c2 c3 of product 0, rounded to 16 bits,",
             "are its registers a0 and a1; those of", "product 1 are a2 and a3. So nothing", "moves between lanes.", "",
             "Blue: lanes 0 to 3. They share a row", "of c, so its maximum takes two", "shuffles. In b they share a column.")
    for i, line in enumerate(lines):
        figure.text(x + 224, y + 12 + 21 * i, line, "small soft" if i < 2 else "small")
    figure.write(__file__)


if __name__ == "__main__":
    main()
