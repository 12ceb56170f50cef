#!/usr/bin/env python3
"""Writes tile_classes.svg: under a causal mask, which tiles of step 5 in chapter 4 are skipped, masked or plain, and in which order blocks start."""
from svg import Figure

QUERIES, KEYS, LENGTH = 128, 64, 512  # queries per block, keys per tile, sequence length: d = 64 and 128
CELL, HIGH = 44, 52


def kind(first_query, first_key):
    """Applies step5_tuned.cuh's rule: a tile that the last row does not see is skipped; one that the first row sees
    completely is not masked."""
    if first_key >= first_query + QUERIES:
        return "skipped"
    return "masked" if first_key + KEYS > first_query + 1 else "plain"


blocks, tiles = LENGTH // QUERIES, LENGTH // KEYS
left, top = 96, 70
figure = Figure(492, top + HIGH * blocks + 94, "512 queries in blocks of 128, 512 keys in tiles of 64. Tiles above the diagonal are skipped, those that it cuts "
                                              "are masked first, the others follow. The block with the most keys starts first.")
figure.text(16, 28, "Causal, 512 queries and keys", "bold")
figure.text(left, 56, "tiles of 64 keys →", "small soft")
for block in range(blocks):
    y = top + HIGH * block
    figure.text(16, y + 22, f"block {blocks - 1 - block}", "small")
    figure.text(16, y + 40, f"{block * QUERIES}–{(block + 1) * QUERIES - 1}", "small soft")
    seen = [tile for tile in range(tiles) if kind(block * QUERIES, tile * KEYS) != "skipped"]
    for tile in range(tiles):
        what = kind(block * QUERIES, tile * KEYS)
        x = left + CELL * tile
        if what == "skipped":
            figure.line([(x + 14, y + 26), (x + CELL - 14, y + 26)])
            continue
        figure.box(x + 2, y + 4, CELL - 4, HIGH - 8, "amber" if what == "masked" else "blue", str(len(seen) - seen.index(tile)))
y = top + HIGH * blocks + 22
for x, look, words in ((16, "blue", "no mask needed"), (176, "amber", "masked"), (290, None, "never loaded")):
    if look:
        figure.box(x, y, 16, 14, look)
    else:
        figure.line([(x, y + 7), (x + 16, y + 7)])
    figure.text(x + 22, y + 12, words, "small")
figure.lines(16, y + 38, ("Numbers: in which order a block takes its tiles.", "Block 0 starts first and has the most tiles."), "small soft")
figure.write(__file__)
