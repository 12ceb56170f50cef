#!/usr/bin/env python3
"""Writes packed_end.svg: three packed sequences, the last tile of the first one, and how the tensor map addresses its
rows."""
from svg import Figure

LENGTHS, ROWS = (70, 100, 60), 64  # sequence lengths; rows per tile
LEFT, ROW = 20, 2.2  # x of row 0; width of a row


total = sum(LENGTHS)
figure = Figure(546, 306, "Rows of three packed sequences. The second tile of the first one reaches into the second one. The map's row M is the first row after the sequence.")
figure.text(LEFT, 28, f"Three sequences, packed: {total} rows", "bold")

def at(row):
    return LEFT + ROW * row

first = 0
for length, look, name in zip(LENGTHS, ("blue", "amber", "green"), "ABC"):
    figure.box(at(first), 84, ROW * length, 34, look, f"{name}: {length} rows")
    first += length
for tile, name in ((0, "tile 0 of A, 64 rows"), (1, "tile 1 of A")):
    y = 64
    figure.line([(at(tile * ROWS) + 1, y + 8), (at(tile * ROWS) + 1, y), (at((tile + 1) * ROWS) - 1, y), (at((tile + 1) * ROWS) - 1, y + 8)], "blue")
    figure.text(at((tile + 0.5) * ROWS), y - 8, name, "small", "middle")
figure.text(LEFT, 150, "Tile 1 holds 6 rows of A and 58 of B.", "small")
figure.text(LEFT, 190, "A in the map", "bold")
figure.box(at(0), 204, ROW * LENGTHS[0], 34, "blue", f"M - {LENGTHS[0]} to M - 1")
figure.line([(at(70), 221), (at(128), 221)], "red", dashed=True)
figure.lines(at(70) + 4, 214, ("row M", "does not exist"), "small red", step=24)
figure.text(LEFT, 268, "TMA loads zeros there, and stores nothing.", "small")
figure.text(LEFT, 290, "Row r of A: the map's row M - 70 + r, plus the end 70, minus M, is r.", "small soft")
figure.write(__file__)
