#!/usr/bin/env python3
"""Writes mask_tiles.svg: four masks, and the class of each of their tiles, by the masks' definitions. tests/chapters/09_classes_test.cu
compares the kernels' classes with them."""
from svg import Figure

LENGTH, TILE, CELL = 2048, 128, 14
DOCUMENTS = (0, 300, 1000, 1128, 1650)  # where each begins
MASKS = {  # the visible keys of a query, as intervals
    "causal": lambda query: [(0, query + 1)],
    "causal, window of 256, 4 sinks": lambda query: [(0, min(4, max(query - 255, 0))), (max(query - 255, 0), query + 1)],
    "causal, five documents": lambda query: [(max(begin for begin in DOCUMENTS if begin <= query), query + 1)],
    "a question, two answers": lambda query: [(0, query + 1)] if query < 1400 else [(0, 700), (1400, query + 1)],
}


def look_of(visible, row, tile):
    """Returns the look of a tile: full, partial or skipped."""
    pairs = sum(max(min(end, (tile + 1) * TILE) - max(begin, tile * TILE), 0) for query in range(row * TILE, (row + 1) * TILE) for begin, end in visible(query))
    return "blue" if pairs == TILE * TILE else "amber" if pairs else ""


figure = Figure(500, 592, "The 128-by-128 tiles of four masks over 2048 queries and keys: most are skipped or full, and those at the edges are partial.")
for i, (words, visible) in enumerate(MASKS.items()):
    x, y = 16 + i % 2 * 244, 30 + i // 2 * 270
    figure.text(x, y, words, "small bold")
    for row in range(LENGTH // TILE):
        for tile in range(LENGTH // TILE):
            figure.box(x + tile * CELL, y + 10 + row * CELL, CELL - 1, CELL - 1, look_of(visible, row, tile))
for x, look, words in ((16, "blue", "full: no mask needed"), (176, "amber", "partial: masked by pair"), (376, "", "skipped")):
    figure.box(x, 560, 14, 14, look)
    figure.text(x + 20, 572, words, "small soft")
figure.write(__file__)
