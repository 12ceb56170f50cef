#!/usr/bin/env python3
"""Writes bias_diagonals.svg: a warp's keys and queries, the floats of one thread, and the lanes that have one distance."""
from svg import Figure

KEYS, QUERIES, CELL = 16, 24, 19  # only the first 24 of a tile's 64 queries are drawn
LEFT, TOP = 48, 92
LANE, DISTANCE = 9, -8  # the lane whose floats are marked, and the marked distance between the warp's first key and the tile's first query


def lane_of(key, query):
    return 4 * (key % 8) + query % 8 // 2


def block_and_place(key, query):
    """Returns n and t of step6_bias.cuh: the distance is 8 + t - 8 n."""
    place = key % 8 - query % 8
    return query // 8 - key // 8 + 1 + (place < 0), place % 8


figure = Figure(546, 522, "A warp has 16 keys, and 24 of its queries are drawn. The pairs of one distance are on a diagonal. A thread's floats are on few of them, and four "
                          "lanes have the same distance modulo 8.")
figure.text(20, 28, "The pairs of a warp, and their diagonals", "bold")
figure.text(20, 50, "A row is a key, a column a query. Amber: one distance, key - query = -8.", "small")
figure.text(20, 70, f"Blue: floats of lane {LANE}. A number is the lane that has the pair.", "small")
lanes: set[int] = set()
for key in range(KEYS):
    for query in range(QUERIES):
        n, t = block_and_place(key, query)
        assert 8 + t - 8 * n == key - query
        look = "blue" if lane_of(key, query) == LANE else ""
        if key - query == DISTANCE:
            look, lanes = "amber", lanes | {lane_of(key, query)}
        figure.box(LEFT + query * CELL, TOP + key * CELL, CELL - 1, CELL - 1, look)
        if look == "amber":
            figure.text(LEFT + query * CELL + CELL / 2 - 0.5, TOP + key * CELL + 14, str(lane_of(key, query)), "small", "middle")
assert len(lanes) == 8
y = TOP + KEYS * CELL + 28
figure.text(20, y, "In the thread, floats 8 keys and 8 queries apart have one distance:", "small")
figure.text(20, y + 22, "they are added. Eight lanes then have a distance: four with an even", "small")
figure.text(20, y + 44, "query, and for each the next key's lane with an odd one. An exchange", "small")
figure.text(20, y + 66, "makes four sums of the eight; three more, for four distances at once,", "small")
figure.text(20, y + 88, "make one. Then 32 lanes add 32 distances to memory.", "small")
figure.write(__file__)
