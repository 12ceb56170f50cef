#!/usr/bin/env python3
"""Writes mask_columns.svg: two causal documents as FlashMask's intervals, and the classes of tiles that follow from
their minima and maxima."""
from svg import Figure

DOCUMENTS, TILE = (5, 7), 4
CELL, LEFT, TOP = 24, 84, 66


count = sum(DOCUMENTS)
begins = [end for length, end in zip(DOCUMENTS, (5, 12)) for _ in range(length)]  # for each key the first query that must not see it
figure = Figure(546, TOP + CELL * count + 150, "A causal mask of two documents. For each key one number says from which query on it is hidden; its least and its largest in a tile "
                                          "of keys say which tiles of queries skip it.")
figure.text(20, 28, "Two causal documents of 5 and 7 tokens, tiles of 4 by 4", "bold")
figure.text(LEFT, TOP - 12, "keys →", "small soft")
figure.text(20, TOP + 16, "queries", "small soft")
for query in range(count):
    for key in range(query + 1):
        x, y = LEFT + CELL * key, TOP + CELL * query
        if query < begins[key]:
            figure.box(x + 2, y + 2, CELL - 4, CELL - 4, "blue")
        else:
            figure.line([(x + CELL / 2, y + 3), (x + CELL / 2, y + CELL - 3)], "red")
for edge in range(0, count + 1, TILE):
    figure.line([(LEFT + CELL * edge, TOP), (LEFT + CELL * edge, TOP + CELL * count)])
    figure.line([(LEFT, TOP + CELL * edge), (LEFT + CELL * count, TOP + CELL * edge)])
y = TOP + CELL * count + 20
figure.lines(20, y, ("from", "least"), "small", step=26)
figure.text(20, y + 48, "largest", "small")
for key in range(count):
    figure.text(LEFT + CELL * (key + 0.5), y, str(begins[key]), "small", "middle")
for tile in range(0, count, TILE):
    middle = LEFT + CELL * (tile + TILE / 2)
    figure.text(middle, y + 26, str(min(begins[tile:tile + TILE])), "small bold", "middle")
    figure.text(middle, y + 48, str(max(begins[tile:tile + TILE])), "small bold", "middle")
figure.text(20, y + 84, "red: hidden from query “from” on", "small red")
figure.text(20, y + 108, "Queries 8 to 11 skip keys 0 to 3: the largest “from” is 5, and 5 ≤ 8.", "small soft")
side = LEFT + CELL * count + 16
for line, words in enumerate(("above the", "diagonal:", "hidden by", "arithmetic")):
    figure.text(side, TOP + 40 + 20 * line, words, "small soft")
figure.write(__file__)
