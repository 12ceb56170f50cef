#!/usr/bin/env python3
"""Writes visible_keys.svg: the keys that each query sees under the causal mask, with as many, more or fewer keys than queries."""
from svg import Figure

CELL = 20


def visible_keys(query, seqlen_q, seqlen_k):
    """Applies problem.cuh's rule: aligned to the bottom right."""
    return min(max(query + 1 + seqlen_k - seqlen_q, 0), seqlen_k)


def mask(figure, x, y, seqlen_q, seqlen_k):
    figure.text(x, y - 28, f"{seqlen_q} queries, {seqlen_k} keys", "bold")
    figure.text(x, y - 8, "keys →", "small soft")
    for query in range(seqlen_q):
        seen = visible_keys(query, seqlen_q, seqlen_k)
        for key in range(seqlen_k):
            figure.box(x + key * CELL, y + query * CELL, CELL, CELL, "blue" if key < seen else "")
        figure.text(x + seqlen_k * CELL + 8, y + query * CELL + 15, str(seen), "small" if seen else "small red")


figure = Figure(476, 222, "The causal mask is aligned to the bottom right: the last query sees every key, each earlier one sees one less, and with more "
                          "queries than keys the first ones see none.")
mask(figure, 16, 62, 5, 5)
mask(figure, 160, 62, 3, 6)
mask(figure, 330, 62, 6, 4)
figure.text(16, 206, "Blue: the query sees the key. Next to rows: visible_keys(query).", "small soft")
figure.write(__file__)
