#!/usr/bin/env python3
"""Writes blackwell_clocks.svg, the clocks of a tile by published rates, and blackwell_tensor_memory.svg, what FlashAttention-4 keeps in tensor memory."""
from pathlib import Path

from svg import Figure

QUERIES = KEYS = HEAD_DIM = 128
FLOPS = 4 * QUERIES * KEYS * HEAD_DIM
EXPONENTIALS = QUERIES * KEYS / 16
ROWS = (("H200, BF16", FLOPS / 4096, 1280), ("B200, BF16", FLOPS / 8192, 768), ("B200, FP8", FLOPS / 16384, 384))  # operands: see blackwell.md


def clocks():
    figure = Figure(540, 330, "Clocks of a tile of 128 queries and 128 keys at d = 128. On an H200 the products take twice as long as the "
                              "exponentials, on a B200 just as long, and in FP8 half as long.")
    figure.text(20, 30, "a tile of 128 × 128, d = 128, in clocks of a multiprocessor", "small soft")
    y = 50
    for title, products, operands in ROWS:
        figure.text(20, y + 14, title, "bold")
        for i, (name, value, look) in enumerate((("products", products, "blue"), ("exponentials", EXPONENTIALS, "amber"), ("operands", operands, "green"))):
            at = y + 22 + i * 20
            figure.text(110, at + 13, name, "small", "end")
            figure.box(118, at, value * 350 / 2048, 16, look)
            figure.text(124 + value * 350 / 2048, at + 13, f"{value:.0f}", "small")
        y += 92
    figure.write(str(Path(__file__).with_name("blackwell_clocks.py")))


def tensor_memory():
    figure = Figure(540, 330, "The 512 columns of tensor memory: scores of two tiles of queries, overwritten by the probabilities, and their two outputs. "
                              "Softmax warps read scores and write probabilities, correction warps scale the outputs, one warp issues all products.")
    figure.text(20, 30, "tensor memory: 128 rows × 512 columns of 4 bytes", "small soft")
    for i, (name, inside, look) in enumerate((("scores 0", "P 0", "amber"), ("scores 1", "P 1", "amber"), ("output 0", "", "green"), ("output 1", "", "green"))):
        x = 20 + i * 125
        figure.box(x, 44, 123, 92, look)
        figure.text(x + 10, 66, name, "bold")
        figure.text(x + 10, 84, f"columns {128 * i} on", "small")
        if inside:
            figure.box(x + 61, 94, 58, 36, "", inside)
    figure.arrow(82, 142, 82, 186, "amber")
    figure.arrow(207, 142, 207, 186, "amber")
    figure.arrow(394, 142, 394, 186, "green")
    figure.box(20, 190, 123, 56, "amber")
    figure.text(30, 212, "4 warps", "bold")
    figure.text(30, 232, "softmax of tile 0", "small")
    figure.box(145, 190, 123, 56, "amber")
    figure.text(155, 212, "4 warps", "bold")
    figure.text(155, 232, "softmax of tile 1", "small")
    figure.box(270, 190, 248, 56, "green")
    figure.text(280, 212, "4 warps", "bold")
    figure.text(280, 232, "correction: both outputs, rarely", "small")
    figure.box(20, 254, 248, 56, "blue")
    figure.text(30, 276, "1 warp", "bold")
    figure.text(30, 296, "issues all products of both tiles", "small")
    figure.box(270, 254, 123, 56, "")
    figure.text(280, 276, "1 warp", "bold")
    figure.text(280, 296, "loads by TMA", "small")
    figure.box(395, 254, 123, 56, "")
    figure.text(405, 276, "1 warp", "bold")
    figure.text(405, 296, "stores by TMA", "small")
    figure.write(str(Path(__file__).with_name("blackwell_tensor_memory.py")))


clocks()
tensor_memory()
