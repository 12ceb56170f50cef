#!/usr/bin/env python3
"""Writes decode_splits.svg: step 4's read rate over the number of parts, for one long and one short sequence, from manual measurements."""

from svg import Figure

from bench import results

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, MOST = 420, 330, 40, 16, 52, 258, 5
PARTS = (1, 2, 4, 8, 12, 16, 17, 20, 24, 32, 48, 64)
SHAPES = ((131072, "blue", "one sequence of 128k keys"), (8192, "amber", "one sequence of 8k keys"))


measured = {(int(row["keys"]), int(row["parts"])): float(row["tb_s"]) for row in results.by_hand("splits") if row["batch"] == "1"}
said = "; ".join(f"{words}: " + ", ".join(f"{parts} parts {measured[keys, parts]:.2f}" for parts in PARTS) for keys, _, words in SHAPES)
figure = Figure(WIDTH, HEIGHT, f"TB/s over the number of parts of a key head's keys. {said}")
step = (WIDTH - LEFT - RIGHT) / (len(PARTS) - 1)
x = lambda parts: LEFT + PARTS.index(parts) * step
y = lambda rate: BOTTOM - rate / MOST * (BOTTOM - TOP)
figure.text(16, 26, "TB/s", "bold")
for rate in range(0, MOST + 1):
    figure.line([(LEFT, y(rate)), (WIDTH - RIGHT, y(rate))], "", rate > 0)
    figure.text(LEFT - 10, y(rate) + 5, str(rate), "small soft", "end")
for parts in PARTS:
    figure.text(x(parts), BOTTOM + 20, str(parts), "small soft", "middle")
figure.text(WIDTH - RIGHT, BOTTOM + 40, "parts per key head, for 8 key heads", "small soft", "end")
for keys, look, words in SHAPES:
    figure.line([(x(parts), y(measured[keys, parts])) for parts in PARTS], look)
    for parts in PARTS:
        figure.dot(x(parts), y(measured[keys, parts]), look)
    long = keys > 8192
    figure.text(x(2 if long else 4) + 8, y(measured[keys, 16]) + (-12 if long else 46), words, f"small {look}")
figure.text(x(16), TOP - 12, "16 parts: 128 blocks, one wave of 132", "small", "middle")
figure.text(16, HEIGHT - 12, "H200, 32 query heads, d 128, bf16.", "small soft")
figure.write(__file__)
