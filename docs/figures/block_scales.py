#!/usr/bin/env python3
"""Writes block_scales.svg: which rows of Q, K and V share a scale, and where the scales enter."""
from svg import Figure

figure = Figure(540, 258, "Q has a scale for each 64 rows, K and V one for each 128. A tile of scores has one scale of Q and one of K.")
figure.text(16, 26, "Block scales", "bold")
for x, name, rows, count, look in ((24, "Q", 64, 4, "blue"), (200, "K", 128, 2, "amber"), (376, "V", 128, 2, "green")):
    figure.text(x + 70, 50, name, "bold", "middle")
    for i in range(count):
        high = rows / 64 * 34
        figure.box(x, 60 + i * high, 140, high - 4, look, f"rows {i * rows} to {(i + 1) * rows - 1}")
figure.text(16, 220, "Each box is e4m3 with one scale in float32.", "small")
figure.text(16, 242, "A score's scales: its query's times its key's, constant in a tile.", "small")
figure.write(__file__)
