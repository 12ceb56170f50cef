#!/usr/bin/env python3
"""Draws the book's plots from its result files, as PNG and SVG, into docs/plots.

    plot.py [--results FOLDER] [--out FOLDER] [PLOT...]

PLOT: ladder, seqlen, peers, memory, roofline, host, blocks, accuracy (default: all that have data)

Transparent, with colours that carry on white and on black. The same results give the same bytes. Needs matplotlib (Debian:
python3-matplotlib, seen by /usr/bin/python3).
"""

import argparse
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # the packages, for python3 bench/plot.py

from bench import results
from bench.names import Name
from bench.results import LADDER, Entry, Refused

try:
    import matplotlib
except ImportError:
    print("plot.py needs matplotlib: apt-get install python3-matplotlib, and run it with /usr/bin/python3", file=sys.stderr)
    sys.exit(77)
matplotlib.use("Agg")
import matplotlib.pyplot as plt

GREY = "#757d88"  # as far from white as from GitHub's black
CHAPTERS = {1: "#6f8aab", 2: "#5d9a88", 3: "#2f97bd", 4: "#2c82d2", 5: "#5f6be3", 6: "#dd6518"}
PEERS = {"eager": ("PyTorch eager", ".."), "flash": ("FlashAttention-2", "\\\\\\"), "fa3": ("FlashAttention-3", "xx"),
         "cudnn": ("cuDNN", "///")}
ALARM = "#d1443c"
# What NVIDIA's data sheets say, dense: bytes/s and bytes of the memory, FLOP/s by type.
CARDS = {"NVIDIA H200": {"bandwidth": 4.8e12, "memory": 141e9, "bf16": 989e12, "e4m3": 1979e12, "f32": 67e12}}

plt.rcParams.update({
    "font.family": "DejaVu Sans", "font.size": 9, "svg.fonttype": "path", "svg.hashsalt": "flashbook",
    "text.color": GREY, "axes.labelcolor": GREY, "xtick.color": GREY, "ytick.color": GREY, "axes.edgecolor": GREY,
    "axes.titlecolor": GREY, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "grid.color": GREY, "grid.alpha": 0.25,
    "grid.linewidth": 0.7, "legend.frameon": False, "hatch.color": GREY, "hatch.linewidth": 0.8,
    "savefig.transparent": True, "savefig.bbox": "tight", "savefig.dpi": 160, "figure.constrained_layout.use": True})


def short(n):
    """16k for 16384, 512 for 512."""
    return f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else str(n)


def digits(value):
    """Two or three significant digits."""
    return f"{value:.{2 if value < 0.95 else 1 if value < 99.5 else 0}f}"


def tflops(entry):
    return entry.values["FLOPS"] / 1e12


def shape_text(**shape):
    parts = {"head_dim": "d {}", "mask": "{}", "seqlen": "N {}"}
    return ", ".join(parts[key].format("no mask" if value == "full" else short(value) if key == "seqlen" else value)
                     for key, value in shape.items())


def on_gpu(measured, **shape):
    """{(chapter, step): entry} of steps that were timed on the GPU."""
    return {key: entry for key, entry in measured.by_step(**shape).items() if "bytes_per_second" in entry.values}


def fastest_steps(measured):
    """The steps that stand for their chapters: each one's fastest at the ladder's shape; every step while there is one chapter."""
    entries = on_gpu(measured, **LADDER) or on_gpu(measured)
    chapters = {chapter for chapter, _ in entries}
    if len(chapters) < 2:
        return list(entries)
    return [max((key for key in entries if key[0] == chapter), key=lambda key: tflops(entries[key]))
            for chapter in sorted(chapters)]


def label_of(measured, key):
    """How a series is called: "1 Naive attention", or "1.2 tiles and warps" while its chapter is alone."""
    entry = next(e for e in reversed(measured.history) if e.cell.kind == "forward" and (e.cell.chapter, e.cell.step) == key and not e.skipped)
    chapters = {chapter for chapter, _ in fastest_steps(measured)}
    return f"{key[0]}.{key[1]} {entry.label}" if len(chapters) < 2 else f"{key[0]} {entry.context.get(f'ch{key[0]:02}', '')}"


def shade(measured, key):
    """A chapter's colour; its earlier steps are greyer."""
    last = max(step for chapter, step in on_gpu(measured) if chapter == key[0])
    colour, grey = (matplotlib.colors.to_rgb(name) for name in (CHAPTERS.get(key[0], GREY), GREY))
    share = 1 if key[1] == last else 0.45
    return tuple(share * c + (1 - share) * g for c, g in zip(colour, grey))


def peer_tflops(measured, peer, **shape):
    """{N: TFLOP/s} of a peer in BF16 that ran in turn with ours. FlashAttention-3: cuDNN's, times their ratio in one process."""
    found = {}
    for entry in measured.newest.values():
        if entry.cell == Name("forward", "cudnn" if peer == "fa3" else peer, "bf16", seqlen=entry.cell.seqlen, **shape) and not entry.skipped:
            found[entry.cell.seqlen] = tflops(entry)
    if peer == "fa3":
        cells = {name.seqlen: cell for name, cell in results.in_turn().items()
                 if name == Name("forward", "ch05/step5", "bf16", seqlen=name.seqlen, **shape)}
        found = {n: rate * cells[n].fa3 / cells[n].cudnn for n, rate in found.items() if n in cells}
    return found


def foot(figure, measured, text, processor=None):
    """The line below a plot that says what was measured where."""
    context = measured.context()
    where = processor or ", ".join(context[key] for key in ("gpu", "clocks") if key in context)
    figure.supxlabel(f"{text}\n{where}. Medians; {measured.origin()}", x=0.01, ha="left", fontsize=7, color=GREY)


def save(figure, folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", metadata={"Software": None})
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)


def ladder(measured, folder):
    """Bars: TFLOP/s of every step, and how much each gains over the one before; below, in one process, ours and the peers of the same type."""
    entries = on_gpu(measured, **LADDER)
    if not entries:
        return False
    rates = [tflops(entry) for entry in entries.values()]
    rivals = [(f"{chapter}: {who}", getattr(cell, field), field)
              for name, cell in sorted(results.beside_peers().items(), key=lambda item: item[0].who)
              if (name.head_dim, name.mask, name.seqlen) == tuple(LADDER.values())
              for chapter in [{"bf16": "BF16", "e4m3": "FP8"}[name.dtype]]
              for who, field in ((f"step {name.chapter}.{name.step}", "ours"), ("FlashAttention-3", "fa3"), ("cuDNN", "cudnn"))]
    figure, (axes, below) = plt.subplots(2, 1, figsize=(7, 3.6 + 0.26 * (len(rates) + len(rivals))), height_ratios=[len(rates), len(rivals)])
    axes.barh(range(len(rates)), rates, height=0.7, color=[shade(measured, key) for key in entries])
    axes.set(xscale="log", xlabel="TFLOP/s", yticks=range(len(rates)), xlim=(min(rates) / 12, 3000))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticklabels([f"{chapter}.{step}  {entry.label}" for (chapter, step), entry in entries.items()])
    axes.set_ylim(len(rates) - 0.4, -0.6)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    for i, rate in enumerate(rates):
        gain = f"×{digits(rate / rates[i - 1])}   " if i else ""
        axes.annotate(gain + digits(rate), (rate, i), (-4, 0), textcoords="offset points", va="center", ha="right", color="white",
                      fontsize=8.5, weight="bold")
    marks = {}
    card = CARDS.get(measured.context().get("gpu"), {})
    for kind, title in (("bf16", "BF16 data sheet"), ("e4m3", "FP8 data sheet")):
        if kind in card and (kind == "bf16" or any(e.cell.dtype == kind for e in entries.values())):
            marks[title] = card[kind] / 1e12
    place = 0.0
    for title, rate in sorted(marks.items(), key=lambda item: item[1]):
        axes.axvline(rate, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=0)
        place = max(rate, place * 1.6)  # labels that would touch step aside
        above = axes.get_xaxis_transform()
        axes.plot([rate, place], [1, 1 + 0.14 / figure.get_figheight()], color=GREY, lw=0.7, transform=above, clip_on=False)
        axes.text(place, 1 + 0.2 / figure.get_figheight(), f"{title} {rate:.0f}", transform=above, rotation=40, rotation_mode="anchor",
                  fontsize=7.5)
    below.barh(range(len(rivals)), [rate for _, rate, _ in rivals], height=0.7,
               color=[CHAPTERS[5 if words.startswith("BF16") else 6] if field == "ours" else GREY for words, _, field in rivals])
    below.set_yticks(range(len(rivals)), [words for words, _, _ in rivals])
    below.set_ylim(len(rivals) - 0.4, -0.6)
    below.set(xlabel="TFLOP/s", title="In one process with the peers")
    below.grid(axis="x")
    below.tick_params(axis="y", length=0)
    for i, (_, rate, _) in enumerate(rivals):
        below.annotate(digits(rate), (rate, i), (-4, 0), textcoords="offset points", va="center", ha="right", color="white", fontsize=8.5,
                       weight="bold")
    figure.suptitle("The ladder: every step's forward pass", x=0.01, ha="left", fontsize=10, weight="bold", color=GREY)
    foot(figure, measured, f"Batch 4, heads 16, {shape_text(**LADDER)}; BF16 where a chapter takes it. ×: gain over the step before")
    save(figure, folder, "ladder")
    return True


def seqlen(measured, folder):
    """Bars in panels: TFLOP/s by N, for each head dimension and mask."""
    keys = fastest_steps(measured)
    head_dims = sorted({e.cell.head_dim for e in measured.newest.values() if e.cell.kind == "forward" and "bytes_per_second" in e.values})
    if not keys:
        return False
    panels: dict[Any, Any] = {}
    lacking: dict[Any, list[int]] = {}
    for head_dim in head_dims:
        for mask in ("full", "causal"):
            series: dict[Any, dict[int, float]] = {}
            for n in sorted({e.cell.seqlen for e in measured.newest.values() if e.cell.chapter}):
                entries = measured.by_step(head_dim=head_dim, mask=mask, seqlen=n)
                for key in keys:
                    if key in entries and "bytes_per_second" in entries[key].values:
                        series.setdefault(key, {})[n] = tflops(entries[key])
                    elif key in entries and "memory" in entries[key].skipped:
                        lacking.setdefault((mask, head_dim, key), []).append(n)
            panels[mask, head_dim] = series
    best = max(rate for series in panels.values() for by_n in series.values() for rate in by_n.values())
    in_fp8 = {key for key in keys for series in panels.values() for n in series.get(key, {})
              if measured.by_step(seqlen=n)[key].cell.dtype == "e4m3"}
    keys = [key for key in keys if key not in in_fp8]  # FP8 stands beside FP8: the plot `peers`
    fast = lambda by_n: max(by_n.values(), default=0) >= best / 30  # slower ones are only in the ladder
    keys = [key for key in keys if any(fast(series.get(key, {})) for series in panels.values())]
    rivals = {peer: {panel: peer_tflops(measured, peer, mask=panel[0], head_dim=panel[1]) for panel in panels}
              for peer in ("flash", "fa3", "cudnn")}
    rivals = {peer: by_panel for peer, by_panel in rivals.items()
              if 0 < max((rate for by_n in by_panel.values() for rate in by_n.values()), default=0) <= 10 * best}
    lengths = sorted({n for series in panels.values() for key in keys for n in series.get(key, {})})
    width = 0.84 / (len(keys) + len(rivals))

    figure, grid = plt.subplots(len(head_dims), 2, figsize=(7.4, 0.9 + 2.3 * len(head_dims)), sharex=True, sharey=True, squeeze=False)
    for axes, ((mask, head_dim), series) in zip(grid.flat, panels.items()):
        bars = [(label_of(measured, key), series.get(key, {}), {"color": shade(measured, key)}) for key in keys]
        bars += [(PEERS[peer][0], by_panel[mask, head_dim], {"facecolor": "none", "edgecolor": GREY, "hatch": PEERS[peer][1], "lw": 0.7})
                 for peer, by_panel in rivals.items()]
        for i, (label, by_n, style) in enumerate(bars):
            places = [x + (i - (len(bars) - 1) / 2) * width for x, n in enumerate(lengths) if n in by_n]
            heights = [by_n[n] for n in lengths if n in by_n]
            drawn = axes.bar(places, heights, width * 0.92, label=label, **style)
            if i == len(keys) - 1 or (i < len(keys) and len(bars) <= 3):  # where there is room, else only our latest
                axes.bar_label(drawn, [digits(rate) for rate in heights], fontsize=6.5, padding=2,
                               rotation=90 if len(bars) > 3 else 0, color=GREY)
            if i < len(keys):
                without = lacking.get((mask, head_dim, keys[i]), [])
                axes.plot([lengths.index(n) + (i - (len(bars) - 1) / 2) * width for n in without if n in lengths],
                          [best / 50] * len([n for n in without if n in lengths]), "x", color=ALARM, ms=5, mew=1.5)
        axes.set_title(f"head_dim {head_dim}, {'causal' if mask == 'causal' else 'no mask'}")
        axes.set_xticks(range(len(lengths)), [short(n) for n in lengths])
        axes.grid(axis="y")
    for axes in grid[-1]:
        axes.set_xlabel("sequence length N")
    for axes in grid[:, 0]:
        axes.set_ylabel("TFLOP/s")
    axes.margins(y=0.12)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="lower left", bbox_to_anchor=(0, 1), ncol=4, fontsize=7.5,
                  columnspacing=1.2, borderaxespad=0)
    too_large = "× marks what does not fit into the card's memory. " if lacking else ""
    foot(figure, measured, too_large + "Batch × N = 16k tokens, heads × head_dim = 2048; BF16 where a chapter takes it. "
         "FLOPs = 4·B·H·N²·d, half for causal")
    save(figure, folder, "seqlen")
    return True


def peers(measured, folder):
    """Lines by N: chapter 5's last step, and chapter 6's two last, over the better of FlashAttention-3 and cuDNN in the same type."""
    panels = {"ch05/step5": "BF16: chapter 5, step 5", "ch06/step7": "FP8: chapter 6, step 7", "ch06/step8": "FP8: step 8, by a line"}
    figure, grid = plt.subplots(1, 3, figsize=(7.4, 3.4), sharey=True)
    for axes, (who, title) in zip(grid, panels.items()):
        cells = {name: cell for name, cell in results.beside_peers(tuple(panels)).items() if name.who == who}
        dtype = next(iter(cells)).dtype
        lengths = sorted({name.seqlen for name in cells})
        for head_dim, mark, colour in ((64, "o", CHAPTERS[2]), (128, "s", CHAPTERS[3]), (256, "^", CHAPTERS[6])):
            for mask, style in (("full", "-"), ("causal", "--")):
                by_n = [cells[Name("forward", who, dtype, head_dim, mask, n)].over_better for n in lengths]
                axes.plot(lengths, by_n, mark + style, ms=4.5, lw=1.6, color=colour, label=f"d {head_dim}, {'no mask' if mask == 'full' else mask}")
        axes.axhline(1, color=GREY, lw=1)
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [short(n) for n in lengths])
        axes.minorticks_off()
        axes.set(xlabel="sequence length N", title=title)
        axes.grid()
    grid[0].set_ylabel("times as fast as the better peer")
    figure.legend(*grid[0].get_legend_handles_labels(), fontsize=7.5, loc="lower left", bbox_to_anchor=(0, 1), ncol=3, borderaxespad=0)
    figure.supxlabel("H200. BF16 in one process with both peers, 2026-11-21, ours as of commit 4fb3efa. FP8 in one process with cuDNN,\n"
                     f"{results.fp8_steps().said}; FlashAttention-3 by its ratio to cuDNN", x=0.01, ha="left", fontsize=7, color=GREY)
    save(figure, folder, "peers")
    return True


def memory(measured, folder):
    """Lines: device memory that the forward pass needs, by N."""
    shape = {key: LADDER[key] for key in ("head_dim", "mask")}
    lines: dict[Any, dict[int, float]] = {}
    lacking: dict[int, set[int]] = {}
    lengths = sorted({e.cell.seqlen for e in measured.newest.values() if e.cell.chapter})
    for n in lengths:
        for (chapter, _), entry in measured.by_step(**shape, seqlen=n).items():
            if "memory" in entry.skipped:
                lacking.setdefault(chapter, set()).add(n)
            elif "bytes_per_second" in entry.values:
                lines.setdefault(chapter, {})[n] = (entry.values["tensor_bytes"] + entry.values["workspace_bytes"]) / 1e9
                lines.setdefault("least", {})[n] = entry.values["tensor_bytes"] / 1e9
    if not lines:
        return False
    least = lines.pop("least")
    groups: dict[Any, list[int]] = {}  # chapters that need the same
    for chapter, by_n in lines.items():
        key = "least" if all(abs(by_n[n] / least[n] - 1) < 0.02 for n in by_n) else chapter
        groups.setdefault(key, []).append(chapter)
    figure, axes = plt.subplots(figsize=(6, 3.6))
    for key, chapters in groups.items():
        by_n = lines[chapters[0]]
        names = "chapter " + str(chapters[0]) if len(chapters) == 1 else "chapters " + ", ".join(map(str, chapters))
        text = f"{names}: inputs and outputs only" if key == "least" else f"{names}: with S and P" if key == 1 else names
        axes.plot(list(by_n), list(by_n.values()), "o-", ms=4.5, lw=1.8, color=CHAPTERS.get(chapters[-1], GREY), label=text)
    if "least" not in groups:
        axes.plot(list(least), list(least.values()), "--", color=GREY, label="inputs and outputs")
    limit = CARDS.get(measured.context().get("gpu"), {}).get("memory")
    if limit:
        axes.axhline(limit / 1e9, color=ALARM, lw=1, ls="--")
        axes.annotate(f"the card has {limit / 1e9:.0f} GB", (lengths[0], limit / 1e9), (0, 3), textcoords="offset points", color=ALARM,
                      fontsize=7.5)
        for where in lacking.values():
            axes.plot(sorted(where), [limit / 1e9] * len(where), "x", color=ALARM, ms=7, mew=1.6)
    axes.set(yscale="log", xlabel="sequence length N", ylabel="GB", title="Memory of the forward pass")
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [short(n) for n in lengths])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.margins(y=0.15)
    axes.grid()
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0, 0.86))
    foot(figure, measured, f"Batch × N = 16k tokens, 16 heads, {shape_text(**shape)}, BF16")
    save(figure, folder, "memory")
    return True


def roofline(measured, folder):
    """Dots: TFLOP/s over the FLOPs that a step computes for each byte it moves, below what the card can do."""
    entries = on_gpu(measured, **LADDER)
    if not entries:
        return False
    figure, axes = plt.subplots(figsize=(6.2, 4.0))
    card = CARDS.get(measured.context().get("gpu"), {})
    points = {key: (entry.values["FLOPS"] / entry.values["bytes_per_second"], tflops(entry)) for key, entry in entries.items()}
    left, right = min(x for x, _ in points.values()) / 8, max(5000, *(x for x, _ in points.values())) * 5
    for kind, title in (("f32", "F32 cores"), ("bf16", "BF16 tensor cores"), ("e4m3", "FP8 tensor cores")):
        if kind in card:
            roof, bandwidth = card[kind] / 1e12, card["bandwidth"] / 1e12
            ridge = roof / bandwidth
            axes.plot([left, ridge, right], [left * bandwidth, roof, roof], color=GREY, lw=1.6 if kind == "bf16" else 0.9)
            axes.annotate(f"{title} {roof:.0f}", (right, roof), (-2, 3), textcoords="offset points", ha="right", fontsize=7.5)
    if card:
        axes.annotate(f"memory {card['bandwidth'] / 1e12:g} TB/s", (left * 1.5, left * 1.5 * card["bandwidth"] / 1e12), (-3, 5),
                      textcoords="offset points", fontsize=7.5, rotation=45, rotation_mode="anchor",
                      transform_rotates_text=True)
    named = fastest_steps(measured)
    for key, (x, y) in points.items():
        axes.plot(x, y, "o", ms=7 if key in named else 4, color=shade(measured, key), zorder=3 if key in named else 2)
        if key in named:  # neighbours are named on different sides
            left_side = key[0] % 2 == 0
            axes.annotate(label_of(measured, key), (x, y), (-7 if left_side else 7, 0), textcoords="offset points", va="center",
                          ha="right" if left_side else "left", fontsize=7.5, weight="bold")
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(min(y for _, y in points.values()) / 3, 4000),
             xlabel="FLOPs for each byte of device memory", ylabel="TFLOP/s", title="Below the roof")
    axes.grid()
    foot(figure, measured, f"Batch 4, heads 16, {shape_text(**LADDER)}. Bytes by the chapters' cost models, roofs from the data sheet")
    save(figure, folder, "roofline")
    return True


def host(measured, folder):
    """Lines: the steps of a chapter on the CPU, time by N."""
    shape = {"dtype": "f32", "head_dim": 64, "mask": "full"}
    lines: dict[Any, dict[int, Entry]] = {}
    for n in sorted({e.cell.seqlen for e in measured.newest.values()}):
        for key, entry in measured.by_step(**shape, seqlen=n).items():
            if not entry.skipped and "bytes_per_second" not in entry.values:
                lines.setdefault((key, entry.label), {})[n] = entry
    if not lines:
        return False
    figure, axes = plt.subplots(figsize=(6, 3.4))
    for i, (((chapter, step), label), by_n) in enumerate(lines.items()):
        axes.plot(list(by_n), [entry.milliseconds for entry in by_n.values()], marker="osD^v*"[i % 6], ms=5, lw=1.6,
                  color=[CHAPTERS[1], CHAPTERS[3], CHAPTERS[5], CHAPTERS[6], ALARM][i % 5], label=f"{chapter}.{step} {label}")
        last = by_n[max(by_n)]
    lengths = sorted({n for by_n in lines.values() for n in by_n})
    axes.set(yscale="log", xlabel="sequence length N", ylabel="milliseconds", title="On the CPU: one head, F32, head_dim 64")
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [short(n) for n in lengths])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid()
    axes.legend(fontsize=8)
    foot(figure, measured, "Batch 1, one head, no mask", processor=f"{last.context['cpu']}, {last.context['num_cpus']} cores")
    save(figure, folder, "host")
    return True


def blocks(measured, folder):
    """Lines by block size, a panel each: time, bytes asked for, shared memory, warps at a time. Step 2 of chapter 3."""
    found: dict[int, dict[int, Entry]] = {}
    for entry in measured.newest.values():
        if entry.cell.kind == "blocks" and entry.cell.seqlen == LADDER["seqlen"] and entry.cell.mask == LADDER["mask"]:
            found.setdefault(entry.cell.head_dim, {})[int(entry.cell.variant.removeprefix("b"))] = entry
    if not found:
        return False
    panels = {"time, ms": lambda e: e.milliseconds,
              "GB asked for": lambda e: e.values["bytes_per_second"] * e.milliseconds / 1e12,
              "shared memory of a block, KB": lambda e: e.values["kernel1_shared_bytes"] / 1024,
              "warps on a multiprocessor": lambda e: 8 * e.values["kernel1_blocks"]}
    sizes = sorted({rows for by_rows in found.values() for rows in by_rows})
    figure, grid = plt.subplots(2, 2, figsize=(5.8, 4.8), sharex=True)
    for axes, (title, value) in zip(grid.flat, panels.items()):
        for head_dim, mark, colour in ((64, "o", CHAPTERS[2]), (128, "s", CHAPTERS[3]), (256, "^", CHAPTERS[5])):
            by_rows = dict(sorted(found.get(head_dim, {}).items()))
            fitting = {rows: value(entry) for rows, entry in by_rows.items() if not entry.skipped}
            axes.plot(list(fitting), list(fitting.values()), mark + "-", ms=4.5, lw=1.6, color=colour, label=f"head_dim {head_dim}")
            lacking = [rows for rows, entry in by_rows.items() if "does not fit" in entry.skipped]
            axes.plot(lacking, [0.04] * len(lacking), "x", color=ALARM, ms=7, mew=1.6, transform=axes.get_xaxis_transform())
        axes.set_title(title)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, sizes)
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.grid()
    grid[1, 0].set_ylim(top=255)
    grid[1, 0].axhline(227, color=ALARM, lw=1, ls="--")
    grid[1, 0].annotate("a block has 227", (sizes[0], 227), (0, -9), textcoords="offset points", color=ALARM, fontsize=7.5)
    for axes in grid[1]:
        axes.set_xlabel("queries and keys of a tile")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="lower left", bbox_to_anchor=(0, 1), ncol=3, fontsize=8, borderaxespad=0)
    crosses = "× marks what does not fit. " if any(e.skipped for by_rows in found.values() for e in by_rows.values()) else ""
    foot(figure, measured, f"{crosses}Chapter 3 step 2, batch 4, heads x head_dim 2048, N {short(LADDER['seqlen'])}, no mask, BF16")
    save(figure, folder, "blocks")
    return True


def accuracy(measured, folder):
    """Dots: relative RMS error against FP64 of each way to compute attention, by kind of inputs."""
    machine = "gpu" if any(entry.cell.kind.startswith("accuracy/") for entry in measured.newest.values()) else "simulator"
    try:
        found = results.accuracy(measured, machine)
    except Refused:
        return False
    figure, axes = plt.subplots(figsize=(6.2, 3.6))
    marks = {"normal": ("o", CHAPTERS[3], "N(0, 1)"), "outliers": ("s", CHAPTERS[6], "one outlier in 1000"),
             "channels": ("^", CHAPTERS[5], "large channels")}
    for place, by_kind in enumerate(found.values()):
        errors = [entry.values["relative_rms"] for entry in by_kind.values()]
        axes.plot([min(errors), max(errors)], [place, place], color=GREY, lw=1, zorder=1)
    for kind, (mark, colour, title) in marks.items():
        places = [place for place, by_kind in enumerate(found.values()) if kind in by_kind]
        errors = [by_kind[kind].values["relative_rms"] for by_kind in found.values() if kind in by_kind]
        axes.plot(errors, places, mark, color=colour, ms=6, label=title)
    entries = [next(iter(by_kind.values())) for by_kind in found.values()]
    axes.set_yticks(range(len(entries)), [f"{entry.cell.dtype}: {entry.label}" for entry in entries], fontsize=8)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="RMS error over RMS of O", title="Accuracy against FP64")
    axes.grid(axis="x")
    figure.legend(*axes.get_legend_handles_labels(), fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncol=3, borderaxespad=0)
    last = entries[-1]
    figure.supxlabel(f"Batch {last.values['batch']:.0f}, heads {last.values['heads']:.0f}, N {last.cell.seqlen}, d {last.cell.head_dim}, no mask. "
                     f"{last.context.get('gpu', 'The simulator')}; {last.context['date'][:10]}, commit {last.context['commit']}",
                     x=0.01, ha="left", fontsize=7, color=GREY)
    save(figure, folder, "accuracy")
    return True


PLOTS = {draw.__name__: draw for draw in (ladder, seqlen, peers, memory, roofline, host, blocks, accuracy)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plots", nargs="*", metavar="PLOT", help=", ".join(PLOTS))
    parser.add_argument("--results", type=pathlib.Path, default=results.RESULTS / results.BOOK_GPU, metavar="FOLDER")
    parser.add_argument("--out", type=pathlib.Path, default=results.ROOT / "docs" / "plots", metavar="FOLDER")
    options = parser.parse_args()
    unknown = set(options.plots) - set(PLOTS)
    if unknown:
        parser.error(f"there is no plot {', '.join(sorted(unknown))}: there are {', '.join(PLOTS)}")
    try:
        measured = results.load(options.results)
        if not measured.history:
            raise Refused(f"{options.results} has no results: ./flashbook bench measures them")
        for name in options.plots or PLOTS:
            drawn = PLOTS[name](measured, options.out)
            print(f"{options.out / name}.svg" if drawn else f"{name}: nothing measured for it yet")
    except Refused as reason:
        print(f"plot.py: {reason}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
