#!/usr/bin/env python3
"""Writes decode_lanes.svg: which 16-byte pieces of two keys a group of eight lanes loads at a time, one piece per lane,
and how a lane uses its eight columns."""
from svg import Figure

CELL = 31  # one cell is 16 bytes, a group of four banks
LEFT = 74


def keys(figure, y, first_load):
    """Draws two rows of eight bank groups. `first_load` selects the half with which each key begins."""
    for key, half in enumerate(first_load):
        row = y + key * 34
        figure.text(16, row + 19, f"key {key}", "small soft")
        for group in range(8):
            mine = group // 4 == half
            figure.box(LEFT + group * CELL, row, CELL - 3, 28, ("blue" if key == 0 else "green") if mine else "")
            if mine:
                figure.text(LEFT + group * CELL + 14, row + 19, str(4 * key + group % 4), "small", "middle")


figure = Figure(560, 336, "A lane loads 16 bytes of a key, eight columns: four are its part of one product, four of the next. Neighbouring keys begin with "
                "different halves of 128 bytes, so no two of eight lanes access the same bank.")
figure.text(16, 28, "Eight lanes at a time, 16 bytes each", "bold")
keys(figure, 44, (0, 1))
figure.text(LEFT, 130, "eight groups of four banks: each is accessed once", "small green")
figure.text(344, 66, "lanes 0 to 3", "small blue")
figure.text(344, 100, "lanes 4 to 7: the other half first", "small green")
figure.text(16, 172, "A lane's eight columns", "bold")
for column in range(8):
    figure.box(LEFT + column * CELL, 186, CELL - 3, 28, "blue" if column < 4 else "amber", str(column))
figure.text(LEFT, 238, "one product", "small blue")
figure.text(LEFT + 4 * CELL, 238, "the next", "small amber")
figure.lines(16, 272, ("mma.sync expects columns 2t, 2t + 1, 2t + 8, 2t + 9 of lane t.",
                       "Any four columns of K will do if Q's are distributed alike:", "a sum has no order."), "small")
figure.write(__file__)
