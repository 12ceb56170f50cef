#!/usr/bin/env python3
"""Writes quadratic.svg: the scores of one head next to its inputs and output, for three lengths, with areas to scale."""
from svg import Figure

HEAD_DIM, UNIT = 128, 216 / 16384  # height of one token


def amount(number):
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"


figure = Figure(540, 368, "The scores of one head are N by N, its inputs and output N by 4 d. At 1024 tokens the scores are six times as many bytes, at "
                          "16384 a hundred times.")
x, bottom = 20, 286
figure.text(20, 30, "one head, d = 128, areas to scale", "small soft")
for n, width in ((1024, 118), (4096, 134), (16384, 250)):
    side, thin = n * UNIT, 4 * HEAD_DIM * UNIT
    figure.box(x, bottom - side, side, side, "amber")
    figure.box(x + side + 5, bottom - side, thin, side, "green")
    if n > 4096:
        figure.text(x + side / 2, bottom - side / 2, "S and P", "bold", "middle")
    figure.text(x, bottom + 22, f"N = {n // 1024}k", "bold")
    figure.lines(x, bottom + 42, (f"S, P {amount(6 * n * n)}", f"Q, K, V, O {amount(8 * n * HEAD_DIM)}"), "small", step=18)
    x += width + 8
figure.write(__file__)
