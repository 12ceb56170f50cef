#!/usr/bin/env python3
"""Writes issue_slots.svg: in which clocks the four schedulers issue an instruction, with 1, 4 and 20 warps, each
executing a chain of dependent multiply-adds of 5 clocks."""

from svg import Figure

LEFT, CELL, CLOCKS, LATENCY = 112, 22, 15, 5
SCHEDULERS = 4
LOOKS = ("blue", "amber", "green", "")


def panel(figure, y, warps):
    rate = min(SCHEDULERS, warps / LATENCY)
    figure.text(16, y, f"{warps} warp{'s' if warps > 1 else ''}", "bold")
    figure.text(LEFT, y, f"{rate:g} instruction{'s' if rate > 1 else ''} per clock", "")
    for scheduler in range(SCHEDULERS):
        top = y + 12 + scheduler * 22
        figure.text(16, top + 14, f"scheduler {scheduler}", "small soft")
        for clock in range(CLOCKS):
            x = LEFT + clock * CELL
            number = clock % LATENCY  # index of the warp that may issue in this clock
            if scheduler + number * SCHEDULERS < warps:
                figure.box(x, top, CELL - 2, 18, LOOKS[number] if number < 3 else "plain", str(scheduler + number * SCHEDULERS))
            else:
                figure.line([(x + 6, top + 9), (x + CELL - 8, top + 9)], "")


figure = Figure(470, 426, "Four schedulers over 16 clocks. One warp issues in one of 20 slots, four warps in one of five, twenty warps fill every slot: "
                          "while one waits for its result another issues.")
for i, warps in enumerate((1, 4, 20)):
    panel(figure, 32 + 130 * i, warps)
figure.text(LEFT, 416, "15 clocks; a number is a warp, a dash idle", "small soft")
figure.write(__file__)
