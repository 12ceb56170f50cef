#!/usr/bin/env python3
"""Writes rank_errors.svg: the error of a ring's output over the number of ranks, with partial results carried in
float32 and in bf16. recorded/recorded_data.py takes the numbers from the simulator."""
import json
from math import log2
from pathlib import Path

from svg import Figure

DATA = Path(__file__).with_name("interactive") / "rank_errors_data.js"


text = DATA.read_text(encoding="utf-8")
errors = json.loads(text[text.index("{\"tokens"):text.rindex("}") + 1])["errors"]
last = errors[-1]
figure = Figure(480, 300, f"Relative RMS error of O over the ranks of a ring: with float32 {last['float32']:.1e} for {last['ranks']} ranks, no more than for one, with bf16 {last['bf16']:.1e}.")
left, right, top, bottom = 70, 460, 24, 240
most = 1.15 * max(e["bf16"] for e in errors)

def x(ranks):
    return left + (right - left) * log2(ranks) / log2(last["ranks"])

def y(error):
    return bottom - (bottom - top) * error / most

figure.line([(left, top), (left, bottom), (right, bottom)])
for value in range(0, int(most * 1000) + 1):
    figure.text(left - 8, y(value / 1000) + 5, f"{value}e-3" if value else "0", "small soft", "end")
    figure.line([(left, y(value / 1000)), (right, y(value / 1000))], dashed=True)
for e in errors:
    figure.text(x(e["ranks"]), bottom + 21, str(e["ranks"]), "small soft", "middle")
figure.text(right, bottom + 44, "ranks", "small soft", "end")
figure.text(left + 8, top + 2, "relative RMS error of O", "small soft")
for kind, look, below in (("float32", "blue", 22), ("bf16", "red", -12)):
    figure.line([(x(e["ranks"]), y(e[kind])) for e in errors], look)
    for e in errors:
        figure.dot(x(e["ranks"]), y(e[kind]), look)
    figure.text(x(8), y(errors[3][kind]) + below, f"carried in {kind}", f"small {look}", "end")
figure.write(__file__)
