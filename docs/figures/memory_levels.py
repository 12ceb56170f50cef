#!/usr/bin/env python3
"""Writes memory_levels.svg: whose each memory is, its size, and its latency as chapter 0's program measured it on an H200. What was not
measured yet has no bar. Also what the figure shows of a level when one points at it, interactive/memory_levels_data.js."""
import re
import sys
from pathlib import Path

from svg import Figure, write_data

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench import results

LEVELS = (("registers", "a thread's own", "256 KB a multiprocessor", "green", "multiply_add"),
          ("shared memory", "a block's", "up to 227 KB a block", "green", "shared"),
          ("L1 cache", "a multiprocessor's", "the rest of 256 KB", "green", "l1"),
          ("L2 cache", "the whole chip's", "60 MB", "amber", "l2"),
          ("device memory", "the whole chip's", "141 GB", "blue", "device"))
WIDEST = 440
MULTIPROCESSORS, REQUEST = 132, 128  # bytes that a warp's request moves
OPERANDS = 12                        # bytes that a multiply-add takes from registers


def write_levels():
    """Of each level size, clocks that a load waits, and bytes a clock that a multiprocessor gets from it; null where nothing was measured."""
    measured = results.load()

    def value(name, key):
        return measured.measured(f"machine/{name}").values[key]

    def share(name):  # of what all multiprocessors together get in a second, at the card's highest clock
        megahertz = int(re.findall(r"SM up to (\d+) MHz", measured.measured(f"machine/{name}").context["clocks"])[0])
        return value(name, "bytes_per_second") / (1e6 * megahertz) / MULTIPROCESSORS

    bandwidth = {"multiply_add": OPERANDS * value("rate/multiply_add", "per_clock"), "shared": REQUEST / value("bank/s1", "clocks"), "l1": None,
                 "l2": share("bandwidth/l2_read"), "device": share("bandwidth/device_copy")}
    data = {"levels": [{"name": name, "whose": whose, "size": size, "clocks": round(value(f"latency/{level}", "clocks")),
                        "bytes": bandwidth[level] and round(bandwidth[level], 1)} for name, whose, size, _, level in LEVELS],
            "multiplyAdds": round(value("rate/multiply_add", "per_clock"), 1),
            "together": {"L2 cache": round(value("bandwidth/l2_read", "bytes_per_second") / 1e12, 2),
                         "device memory": round(value("bandwidth/device_copy", "bytes_per_second") / 1e12, 2)}}
    write_data(__file__, "Clocks and bytes of an H200, from bench/results", data)


write_levels()
measured = results.load().newest
clocks = {level: measured[name].values["clocks"] for *_, level in LEVELS if (name := f"machine/latency/{level}") in measured}
pitch = 70 if clocks else 34
figure = Figure(480, 22 + 5 * pitch, "The memories of an H200 with their sizes and the clocks that a load waits: the farther away, the larger and the slower.")
for i, (name, whose, size, look, level) in enumerate(LEVELS):
    y = 14 + pitch * i
    figure.text(20, y + 18, name, "bold")
    figure.text(158, y + 18, f"{whose}, {size}", "small soft")
    if level in clocks:
        width = max(2, WIDEST * clocks[level] / max(clocks.values()))
        figure.box(20, y + 28, width, 22, look)
        inside = width > WIDEST / 2
        figure.text(28 if inside else 20 + width + 8, y + 44, f"{clocks[level]:.0f} clocks", "small")
figure.write(__file__)
