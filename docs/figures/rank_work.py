#!/usr/bin/env python3
"""Writes rank_work.svg: how much work four ranks have at each hop of a ring under a causal mask, with contiguous
tokens and in zigzag."""
from svg import Figure

RANKS, TOKENS = 4, 64
CELL, GAP = 44, 4


def places(order, rank):
    """Returns the tokens of a rank, in the order of the sequence."""
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


figure = Figure(532, 258, "Visible pairs of four ranks at each hop of a ring under a causal mask. With contiguous tokens some cells are full and others "
                          "empty; in zigzag every cell is half full.")
panel(figure, 16, 0, "contiguous")
panel(figure, 276, 0, "zigzag")
figure.write(__file__)
