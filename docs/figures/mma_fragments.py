#!/usr/bin/env python3
"""Writes mma_fragments.svg: which lane holds what of the matrices of mma.sync m16n8k16. The places are those of common/ptx/mma.h."""
import re
from pathlib import Path

from svg import Figure

HEADER = Path(__file__).resolve().parents[2] / "common" / "ptx" / "mma.h"
WIDTH, HEIGHT = 25, 18  # of an element
LANE = 6                # whose elements are marked
ROW_LANES = range(4)    # that share a row of c and a


def place_of(matrix):
    """The header's own formula: (lane, element) -> (row, column)."""
    found = re.search(rf"MatrixPlace {matrix}\(int lane, int element\) {{\s*return {{(.*?), (.*?)}};", HEADER.read_text(encoding="utf-8"))
    assert found, f"{HEADER} has another formula"
    row, column = (expression.replace("/", "//") for expression in found.groups())  # of whole numbers, as in C++
    return lambda lane, element: (eval(row), eval(column))  # the formula has the two names


def fragments(matrix, elements):
    """(lane, register, row, column) of the first of the two elements of each register; of c, of each two floats."""
    place = place_of(matrix)
    for lane in range(32):
        for element in range(0, elements, 2):
            yield lane, element // 2, *place(lane, element)


def draw(figure, x, y, matrix, elements, title, wide, high):
    figure.text(x, y - 10, title, "small soft")
    for lane, register, row, column in fragments(matrix, elements):
        look = "green" if lane == LANE else "blue" if lane in ROW_LANES else ""
        figure.box(x + column * WIDTH, y + row * HEIGHT, wide * WIDTH, high * HEIGHT, look)
        held = f"c{2 * register}{2 * register + 1}" if matrix == "c" else f"{matrix}{register}"
        words = f"{lane}·{held}" if lane == LANE and wide == 2 else str(lane)
        figure.text(x + (column + wide / 2) * WIDTH, y + (row + high / 2) * HEIGHT + 5, words, "small", "middle")


def main():
    figure = Figure(464, 764, "Each lane of a warp holds pairs of neighbours. A row of the result lies in four neighbouring lanes, and a lane's "
                              "results of two products are its registers of the left operand of the next.")
    draw(figure, 32, 44, "b", 4, "right operand b, 16 × 8", 1, 2)
    draw(figure, 246, 44, "c", 4, "results c, 16 × 8", 2, 1)
    draw(figure, 32, 400, "a", 8, "left operand a, 16 × 16", 2, 1)
    figure.text(32, 360, "Boxes are pairs of neighbours, numbers are lanes.", "small soft")
    figure.text(32, 708, "Lane 6 (green) needs as a0 and a1 what were its c01 and c23", "small soft")
    figure.text(32, 728, "of one product, as a2 and a3 those of the next product.", "small soft")
    figure.text(32, 748, "Blue: lanes 0 to 3, which share a row of c and of a.", "small soft")
    figure.write(__file__)


if __name__ == "__main__":
    main()
