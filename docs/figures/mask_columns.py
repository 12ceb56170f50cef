#!/usr/bin/env python3
"""Writes mask_columns.svg: a question and two answers as FlashMask's intervals, and the classes of tiles that follow
from their minima and maxima."""
from svg import Figure

QUESTION, ANSWERS, TILE = 3, (5, 4), 4
CELL, LEFT, TOP = 24, 84, 66


count = QUESTION + sum(ANSWERS)
begins = [count] * count  # for each key the first query that must not see it
begins[QUESTION:QUESTION + ANSWERS[0]] = [QUESTION + ANSWERS[0]] * ANSWERS[0]
figure = Figure(546, TOP + CELL * count + 150, "A causal mask of a question and two answers. For each key one number says from which query on it is hidden; the least and the largest in a tile "
                                          "of keys determine the class.")
figure.text(20, 28, "A question of 3 tokens, answers of 5 and 4, tiles of 4 by 4", "bold")
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
figure.text(20, y + 108, "Queries 8 to 11 skip keys 4 to 7: the largest “from” is 8, and 8 ≤ 8.", "small soft")
side = LEFT + CELL * count + 16
for line, words in enumerate(("above the", "diagonal:", "hidden by", "arithmetic")):
    figure.text(side, TOP + 40 + 20 * line, words, "small soft")
figure.write(__file__)
