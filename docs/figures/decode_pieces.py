#!/usr/bin/env python3
"""Writes decode_pieces.svg: the first 16 bytes of eight rows of keys in the banks, as one piece and as eight shifted pieces."""
from svg import Figure

GROUPS, ROWS = 8, 8  # of four banks, 16 bytes; rows that ldmatrix takes at once
CELL = 26


def panel(figure, x, title, name, group_of, said, look):
    figure.text(x, 28, title, "bold")
    for row in range(ROWS):
        y = 48 + row * CELL
        figure.text(x, y + 18, f"{name} {row}", "small soft")
        for group in range(GROUPS):
            figure.box(x + 54 + group * CELL, y, CELL, CELL - 4, look if group == group_of(row) else "")
    figure.text(x + 54, 48 + ROWS * CELL + 18, "eight groups of four banks", "small soft")
    figure.text(x, 48 + ROWS * CELL + 44, said, f"small {'red' if look == 'amber' else 'green'}")


def main():
    figure = Figure(560, 312, "Eight rows 256 bytes apart begin in the same banks; one row of each of eight pieces, each 16 bytes further, begin in eight "
                    "different groups of banks.")
    panel(figure, 16, "Rows one after another", "row", lambda _: 0, "eight wavefronts for eight rows", "amber")
    panel(figure, 284, "A row of each piece", "piece", lambda row: row, "one wavefront", "green")
    figure.write(__file__)


if __name__ == "__main__":
    main()
