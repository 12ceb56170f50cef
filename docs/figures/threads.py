#!/usr/bin/env python3
"""Writes threads.svg: thread, warp, block and grid, and the hardware that each runs on."""
from svg import Figure

LANES, SIDE = 32, 9.5


def warp(figure, x, y, look="blue"):
    for lane in range(LANES):
        figure.box(x + lane * SIDE, y, SIDE - 1.5, 13, look)


figure = Figure(500, 536, "32 threads form a warp, several warps form a block, many blocks form a grid. A thread runs on a lane, a warp on a scheduler, a block on "
                          "one multiprocessor, a grid on all of them. In a block of 16 by 16 threads x counts first: rows y = 0 and 1 are warp 0.")
left, right = 16, 346
figure.text(left, 28, "what you write", "small soft")
figure.text(right, 28, "what runs it", "small soft")

figure.text(left, 56, "thread", "bold")
figure.box(left, 64, SIDE - 1.5, 13, "green")
figure.lines(right, 62, ("a lane: registers", "of its own"), "small", step=18)

figure.text(left, 112, "warp: 32 threads", "bold")
warp(figure, left, 120)
figure.box(left, 120, SIDE - 1.5, 13, "green")
figure.lines(right, 118, ("one of 4 schedulers:", "one instruction", "for all 32"), "small", step=18)

figure.text(left, 176, "block: 1 to 32 warps, here 4", "bold")
figure.box(left - 4, 184, LANES * SIDE + 7, 78, "")
for row in range(4):
    warp(figure, left, 190 + 18 * row)
figure.lines(right, 198, ("one multiprocessor:", "shared memory and", "barriers in common"), "small", step=18)

figure.text(left, 294, "grid: as many blocks as the work needs", "bold")
for row in range(3):
    for column in range(8):
        busy = row * 8 + column < 12
        figure.box(left + column * 38.5, 304 + row * 34, 34, 28, "amber" if busy else "")
figure.lines(right, 314, ("all 132 multi-", "processors. Blocks", "(amber: running)", "wait until one has", "room, in any order"), "small", step=18)

figure.text(left, 428, "a block of 16 by 16 threads: x counts first", "bold")
for y, warp_number in ((0, 0), (1, 0), (2, 1), (3, 1)):
    figure.text(left, 455 + 18 * y, f"y = {y}", "small")
    for x in range(16):
        figure.box(left + 46 + x * 16, 443 + 18 * y, 14, 14, "blue" if warp_number == 0 else "")
figure.text(right, 455, "warp 0: rows 0, 1", "small blue")
figure.text(right, 491, "warp 1: rows 2, 3", "small")
figure.text(left, 524, "thread (x, y) has the number 16 y + x", "small soft")
figure.write(__file__)
