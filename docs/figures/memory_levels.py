#!/usr/bin/env python3
"""Writes memory_levels.svg: who owns each memory, its size, and its latency as measured on an H200 by chapter 0's
program. What has not been measured has no bar."""
import sys
from pathlib import Path

from svg import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench import results

LEVELS = (("registers", "a thread's own", "256 KB per multiprocessor", "green", "multiply_add"),
          ("shared memory", "a block's", "up to 227 KB per block", "green", "shared"),
          ("L1 cache", "a multiprocessor's", "the rest of 256 KB", "green", "l1"),
          ("L2 cache", "the whole chip's", "60 MB", "amber", "l2"),
          ("device memory", "the whole chip's", "141 GB", "blue", "device"))
WIDEST = 440


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
