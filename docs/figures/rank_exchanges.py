#!/usr/bin/env python3
"""Writes rank_exchanges.svg: which tokens and heads two ranks hold, send and compute in an all-gather, in a ring and in
Ulysses."""
from svg import Figure

CELL, HEADS, TOKENS = 17, 2, 4


def tensor(figure, x, y, name, held, own):
    """Draws keys and values, one column per token and one row per head: amber if present, blue if received, empty if on
    another rank."""
    figure.text(x, y + 22, name, "small soft")
    for head in range(HEADS):
        for token in range(TOKENS):
            look = "" if (head, token) not in held else "amber" if (head, token) in own else "blue"
            figure.box(x + 52 + token * CELL, y + head * CELL, CELL - 2, CELL - 2, look)


def panel(figure, x, title, states, words):
    figure.text(x, 30, title, "bold")
    y = 44
    for when, held_by in states:
        figure.text(x, y + 14, when, "small")
        for rank in range(2):
            own = {(head, token) for head in range(HEADS) for token in range(TOKENS) if token // 2 == rank}
            tensor(figure, x, y + 24 + rank * 44, f"rank {rank}", held_by(rank, own), own)
        y += 122
    for i, line in enumerate(words):
        figure.text(x, y + 14 + 18 * i, line, "small soft")


figure = Figure(480, 344, "Keys that two ranks work on, before and after the exchange: all of all heads, those of the other rank, or all tokens "
                          "of half of the heads.")
everything = {(head, token) for head in range(HEADS) for token in range(TOKENS)}

def before(_rank, own):
    return own

panel(figure, 16, "all-gather", (("before", before), ("after", lambda _rank, _own: everything)), ("own queries", "on all keys"))
panel(figure, 176, "ring", (("hop 0", before), ("hop 1", lambda _rank, own: everything - own)), ("own queries on these", "keys; own keys stay"))
panel(figure, 336, "Ulysses", (("before", before), ("after", lambda rank, _own: {(rank, token) for token in range(TOKENS)})),
      ("all queries of this", "head on its keys"))
for x in (166, 326):
    figure.line([(x, 16), (x, 330)])
figure.write(__file__)
