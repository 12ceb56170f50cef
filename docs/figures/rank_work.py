#!/usr/bin/env python3
"""Writes rank_work.svg: how much work four ranks have at each hop of a ring under a causal mask, with contiguous
tokens, in zigzag and in stripes, and how many tiles a part costs."""
from svg import Figure

RANKS, TOKENS = 4, 64
CELL, GAP = 44, 4


def places(order, rank):
    """Returns the tokens of a rank, in the order of the sequence."""
    if order == "striped":
        return list(range(rank, TOKENS, RANKS))
    chunks = RANKS if order == "contiguous" else 2 * RANKS
    size = TOKENS // chunks
    mine = [rank] if order == "contiguous" else [rank, chunks - 1 - rank]
    return [size * chunk + i for chunk in mine for i in range(size)]


def share(order, rank, hop):
    """Returns the visible fraction of all pairs of a rank's queries and the keys that it holds at a hop."""
    queries, keys = places(order, rank), places(order, (rank - hop) % RANKS)
    return sum(key <= query for query in queries for key in keys) / (len(queries) * len(keys))


def panel(figure, x, top, order):
    figure.text(x, top + 30, order, "bold")
    for hop in range(RANKS):
        figure.text(x + 54 + hop * (CELL + GAP) + CELL / 2, top + 56, f"hop {hop}", "small soft", "middle")
    for rank in range(RANKS):
        y = top + 66 + rank * 34
        figure.text(x, y + 19, f"rank {rank}", "small soft")
        for hop in range(RANKS):
            left = x + 54 + hop * (CELL + GAP)
            figure.box(left, y, CELL, 28)
            if part := share(order, rank, hop):
                figure.box(left, y, CELL * part, 28, "blue" if hop else "amber")
    longest = sum(max(share(order, rank, hop) for rank in range(RANKS)) for hop in range(RANKS))
    work = sum(share(order, rank, hop) for rank in range(RANKS) for hop in range(RANKS)) / RANKS
    figure.lines(x, top + 224, (f"average work per rank: {work:.1f} cells", f"time, all hops: {longest:.1f} cells"), "small soft", step=19)


def tiles(figure, x, y, order):
    """Draws the queries of rank 3 on the keys of rank 1, in tiles of 4 by 4 tokens: which tiles contain a visible
    pair."""
    queries, keys, side = places(order, 3), places(order, 1), 4
    computed = 0
    figure.text(x, y - 8, order, "small soft")
    for row in range(0, len(queries), side):
        for column in range(0, len(keys), side):
            seen = sum(key <= query for query in queries[row:row + side] for key in keys[column:column + side])
            computed += seen > 0
            figure.box(x + column * 6, y + row * 6, 22, 22, "" if not seen else "blue" if seen == side * side else "amber")
    figure.text(x, y + 116, f"{computed} tiles", "small soft")


figure = Figure(532, 516, "Visible pairs of four ranks at each hop of a ring under a causal mask. With contiguous tokens some cells are full and others "
                          "empty; in zigzag and in stripes every cell is about half full. In tiles a part in zigzag is 8 full ones, in stripes 6 full "
                          "ones and 4 that the mask cuts.")
panel(figure, 16, 0, "contiguous")
panel(figure, 276, 0, "zigzag")
panel(figure, 16, 258, "striped")
figure.text(276, 288, "one part, in tiles", "bold")
tiles(figure, 276, 330, "zigzag")
tiles(figure, 404, 330, "striped")
figure.text(276, 482, "blue: full, amber: cut by the mask", "small soft")
figure.write(__file__)
