#!/usr/bin/env python3
"""Writes fp8_block.svg: how keys and values pass through a block of chapter 6, and who moves them."""
from svg import Figure


def box(figure, x, y, width, title, words, look):
    figure.box(x, y, width, 50, look)
    figure.text(x + width / 2, y + 20, title, f"bold {look}", "middle")
    figure.text(x + width / 2, y + 40, words, "small", "middle")


figure = Figure(540, 330, "TMA loads keys into one pipeline and raw values into another. Two warps transpose each tile of values into a third pipeline. "
                          "The consumers read keys and transposed values.")
figure.text(16, 26, "Three pipelines of a block", "bold")
box(figure, 16, 44, 116, "warp 0", "loader, TMA", "blue")
box(figure, 186, 44, 150, "keys", "K, as loaded", "amber")
box(figure, 16, 140, 116, "warp 0", "loader, TMA", "blue")
box(figure, 186, 140, 150, "raw", "V, as loaded", "amber")
box(figure, 16, 236, 116, "warps 2, 3", "transposers", "blue")
box(figure, 186, 236, 150, "transposed", "V, keys along rows", "amber")
figure.box(396, 44, 128, 242, "green")
figure.text(460, 70, "consumers", "bold green", "middle")
figure.lines(460, 92, ("S = Q K^T", "softmax", "P in e4m3"), "small", "middle")
figure.text(460, 262, "O = P V", "small", "middle")
figure.arrow(134, 69, 184, 69)
figure.arrow(134, 165, 184, 165)
figure.line([(261, 192), (261, 212), (74, 212)])
figure.arrow(74, 212, 74, 234)
figure.arrow(134, 261, 184, 261)
figure.arrow(338, 69, 394, 69)
figure.arrow(338, 261, 394, 261)
figure.text(16, 314, "Each stage has a full and an empty barrier. Warp 1: queries, outputs.", "small soft")
figure.write(__file__)
