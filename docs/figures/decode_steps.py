#!/usr/bin/env python3
"""Writes decode_steps.svg: the read rate of chapter 8's steps for one query per sequence, for one long batch and for one sequence, from the
newest results. Latent keys have a different shape, and an e4m3 cache is half the size."""

from svg import Figure

from bench import results, steps

SHAPES = (("16 sequences of 8192 tokens", "d128/b16h32k8/n8192"), ("one sequence of 8192 tokens", "d128/b1h32k8/n8192"))
OURS = ("per_head", "pack_gqa", "split_kv", "ring", "paged", "equal_work")
WIDTH, LEFT, RIGHT, ROW, BAR, MOST = 420, 16, 16, 34, 8, 4.8  # MOST: TB/s of the data sheet


measured = results.load(results.RESULTS / results.BOOK_GPU)
panels = []
for title, shape in SHAPES:
    rows = []
    chosen = [step for step in steps.of(8) if step.slug in OURS]
    # Pages have 64 keys.
    for who, words in (*((step.name + "_p64" * (step.slug == "paged"), f"{step.number} {step.title}") for step in chosen), ("cudnn", "cuDNN")):
        entry = measured.newest.get(f"decode/{who}/bf16/{shape}")
        if entry and not entry.skipped:
            rows.append((words, entry.values["bytes_per_second"] / 1e12, who != "cudnn"))
    panels.append((title, rows))
height = 70 + sum(40 + ROW * len(rows) for _, rows in panels)
figure = Figure(WIDTH, height, "; ".join(f"{title}, {words}: {rate:.2f} TB/s" for title, rows in panels for words, rate, _ in rows))
y = 26
for title, rows in panels:
    figure.text(LEFT, y, title, "bold")
    figure.text(WIDTH - RIGHT, y, "TB/s", "small soft", "end")
    for i, (words, rate, ours) in enumerate(rows):
        top = y + 14 + ROW * i
        figure.text(LEFT, top + 14, words, "" if ours else "small soft")
        figure.text(WIDTH - RIGHT, top + 14, f"{rate:.2f}", "bold" if ours else "small soft", "end")
        figure.box(LEFT, top + 19, max(rate / MOST * (WIDTH - LEFT - RIGHT), 2), BAR, "blue" if ours else "")
    y += 40 + ROW * len(rows)
figure.lines(LEFT, y, ("H200, 32 query heads, 8 key heads, d 128, bf16. The full", "width is 4.8 TB/s, the data sheet's bandwidth."), "small soft")
figure.write(__file__)
