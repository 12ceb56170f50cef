#!/usr/bin/env python3
"""Writes kv_cache.svg: the keys that five tokens compute, without a cache and with it."""

from svg import Figure

TOKENS, CELL = 5, 26


def triangle(figure, x, title, look_of, total):
    figure.text(x, 34, title, "bold")
    for token in range(TOKENS):
        figure.text(x + 12, 72 + token * CELL, str(token + 1), "small soft", "middle")
        for key in range(token + 1):
            figure.box(x + 26 + key * CELL, 54 + token * CELL, CELL - 2, CELL - 2, look_of(token, key))
    figure.text(x, 54 + TOKENS * CELL + 24, total)


figure = Figure(420, 256, "Five tokens without a cache compute 15 keys, each of them again for every token; with a cache they compute 5 and read the others.")
triangle(figure, 20, "without a cache", lambda token, key: "amber", f"{TOKENS * (TOKENS + 1) // 2} keys computed")
triangle(figure, 230, "with the cache", lambda token, key: "blue" if key == token else "", f"{TOKENS} keys computed")
figure.text(20, 238, "Each row is a written token, each box a key that it needs.", "small soft")
figure.write(__file__)
