#!/usr/bin/env python3
"""Writes ladder_ch01.svg, ladder_ch02.svg, ...: the book's ladder with one chapter's rungs highlighted, in TFLOP/s on a
linear scale. Chapter 2 (on the CPU, in GFLOP/s), 7 (backward pass), 8 (in bytes per second), 9 (under a window) and 10
(two GPUs) have their own ladders. ladder_book.svg has the fastest step of every chapter and the peers. Rates come
from the newest results, names of steps from the chapters."""
import re
import sys
from pathlib import Path

from svg import Figure

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import results, steps
from bench.names import Name

LIT = (1, 3, 4, 5, 6)  # GPU chapters whose page begins with this figure
# Chapter 5's last step combines several ideas. These are the ones that matter at the ladder's shape, with the names of
# the versions that lack them.
WITHOUT = {"other_stay": "persistent blocks", "from_registers": "output by TMA", "other_rescaling": "lazy rescaling"}
ON_CPU: dict[str, str | int] = {"dtype": "f32", "head_dim": 64, "mask": "full", "seqlen": 4096}
# Chapter 8's steps for one query per sequence.
ONE_QUERY = ("ch08/per_head", "ch08/pack_gqa", "ch08/split_kv", "ch08/ring", "ch08/paged_p64", "ch08/equal_work")
WIDTH, LEFT, RIGHT, ROW, BAR, LIMIT = 420, 16, 16, 34, 8, 18


def folder(chapter):
    [path] = ROOT.glob(f"chapters/{chapter:02}_*")
    return path


def title(chapter):
    return re.findall(r"^# Chapter \d+: (.+)", (folder(chapter) / "README.md").read_text(encoding="utf-8"))[0]


def label(step):
    """"4.3 two stages"."""
    return f"{step.chapter}.{step.number} {step.title}"


def boxes(chapter):
    """Returns the boxes of a chapter's steps: {step: text}."""
    page = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder(chapter).glob("*.md")) if path.stem != "appendix")
    sections = re.split(r"^## (?:Step (\d+))?", page, flags=re.M)
    return {int(step): "\n".join(re.findall(r"^>.*", text, flags=re.M)) for step, text in zip(sections[1::2], sections[2::2]) if step}


def afterwards(chapter):
    """Returns the steps for which the page has no prediction."""
    return {step for step, text in boxes(chapter).items() if re.search(r"> \*\*Prediction\.\*\* None\b", text)}


def limits(chapter):
    """Returns what limits each step according to the page: {step: words}."""
    found = {step: re.search(r"ottleneck (?:is )?(?:now|still):? \*([^*]+)\*", re.sub(r"\n> ?", " ", text)) for step, text in boxes(chapter).items()}
    return {f"{chapter}.{step}": words[1].rstrip(".:") for step, words in found.items() if words}


def rows_of(measured, lit):
    """Yields (words, TFLOP/s, highlighted) from the bottom of the ladder to its top: every step of `lit`, and the
    fastest step of each other chapter."""
    rates: dict[int, dict[int, float]] = {}
    for (chapter, step), entry in measured.by_step(**results.LADDER).items():
        if not entry.skipped and "bytes_per_second" in entry.values:
            rates.setdefault(chapter, {})[step] = entry.values["FLOPS"] / 1e12
    marked = afterwards(lit)
    for chapter, of_chapter in rates.items():
        if chapter != lit:
            yield f"{chapter} {title(chapter)}", max(of_chapter.values()), False
            continue
        for step in steps.of(chapter):
            if step.number not in of_chapter:
                continue
            if step.name == "ch05/persistent":
                yield from sorted(rows_without(measured, of_chapter[step.number], results.LADDER), key=lambda rung: rung[1])
            yield f"{label(step)}{' *' if step.number in marked else ''}", of_chapter[step.number], True


def rows_without(measured, rate, shape):
    """Yields the rate of chapter 5's last step without each of its ideas. `rate` is that of the step itself; ratios
    were measured interleaved."""
    for who, idea in WITHOUT.items():
        entry = measured.newest.get(str(Name("ablation", f"ch05/{who}", "bf16", **shape)))
        if entry and not entry.skipped:
            yield f"5.{steps.of(5)[-1].number} without {idea}", rate * entry.values["vs_as_it_is"], False


def rows_of_book(measured):
    """Yields the fastest step of each chapter, then ours and the peers, measured in one process per type."""
    rates: dict[int, float] = {}
    for (chapter, _), entry in measured.by_step(**results.LADDER).items():
        if not entry.skipped and "bytes_per_second" in entry.values and chapter < 6:
            rates[chapter] = max(rates.get(chapter, 0), entry.values["FLOPS"] / 1e12)
    for chapter, rate in rates.items():
        yield f"{chapter} {title(chapter)}", rate, True
    for name, cell in sorted(results.in_turn(measured, "ch05/persistent", "ch06/transpose_once").items(), key=lambda item: item[0].who):
        if (name.head_dim, name.mask, name.seqlen) == tuple(results.LADDER.values()):
            dtype = {"bf16": "BF16", "e4m3": "FP8"}[name.dtype]
            yield f"chapter {name.chapter}, step {name.step}, {dtype}", cell.ours, True
            yield f"FlashAttention-3, {dtype}", cell.fa3, False
            yield f"cuDNN, {dtype}", cell.cudnn, False


def limits_of_fastest():
    """Returns what limits the fastest step of each chapter of the forward pass in 16 bits: {chapter: words}."""
    measured = results.load(results.RESULTS / results.BOOK_GPU)
    rates = {key: entry.values["FLOPS"] for key, entry in measured.by_step(**results.LADDER).items()
             if not entry.skipped and "bytes_per_second" in entry.values and key[0] < 6}
    fastest = {chapter: max((step for number, step in rates if number == chapter), key=lambda step: rates[chapter, step]) for chapter, _ in rates}
    return {str(chapter): limits(chapter).get(f"{chapter}.{step}", "") for chapter, step in fastest.items()}


def rows_beside(measured, chapter, name, peers, own, field="FLOPS"):
    """Returns (words, rate, highlighted) at one shape, slowest first: of peers, {words: names of results} of which the fastest is taken,
    and of a chapter's steps, {name: words}."""
    marked = afterwards(chapter)
    rungs = [(who, words, False) for words, several in peers.items() for who in several.split()]
    rungs += [(who, words + " *" * (int(words.split()[0].partition(".")[2]) in marked), True) for who, words in own.items()]
    found = sorted(((words, entry.values[field] / 1e12, is_lit) for who, words, is_lit in rungs
                    if (entry := measured.newest.get(name.format(who))) and not entry.skipped), key=lambda rung: rung[1])
    return sorted({rung[0]: rung for rung in found}.values(), key=lambda rung: rung[1])


def draw(lit, rows, unit, notes):
    digits = 2 if unit == "TB/s" else 0
    limit_of = limits(lit) if lit else limits_of_fastest()
    marked = any(words.endswith("*") for words, _, _ in rows)
    under = [limit_of.get(words.split()[0], "") if is_lit else "" for words, _, is_lit in rows]  # what limits the step
    height = ROW * len(rows) + LIMIT * sum(map(bool, under))
    figure = Figure(WIDTH, 44 + height + (20 if marked else 0) + 4 + 20 * len(notes),
                    "; ".join(f"{words.rstrip(' *')}: {rate:.{digits}f} {unit}{', limit: ' * bool(limit)}{limit}" for (words, rate, _), limit in zip(rows, under)))
    figure.text(LEFT, 26, f"The ladder, chapter {lit} highlighted" if lit else "The ladder", "bold")
    figure.text(WIDTH - RIGHT, 26, unit, "small soft", "end")
    scale = (WIDTH - LEFT - RIGHT) / max(rate for _, rate, _ in rows)
    y = 44
    for (words, rate, is_lit), limit in zip(rows, under):
        figure.text(LEFT, y + 14, words, "bold" if is_lit else "small soft")
        figure.text(WIDTH - RIGHT, y + 14, f"{rate:.{digits or 1}f}" if rate < 99.5 else f"{rate:.0f}", "bold" if is_lit else "small soft", "end")
        figure.box(LEFT, y + 19, max(rate * scale, 2), BAR, "blue" if is_lit else "")
        if limit:
            figure.text(LEFT, y + 43, f"limit: {limit}", "small amber")
        y += ROW + LIMIT * bool(limit)
    y += 16
    if marked:
        figure.text(LEFT, y, "* no prediction was made", "small soft")
        y += 20
    for i, note in enumerate(notes):
        figure.text(LEFT, y + 20 * i, note, "small soft")
    figure.write(str(Path(__file__).with_name(f"ladder_ch{lit:02}.py" if lit else "ladder_book.py")))


measured = results.load(results.RESULTS / results.BOOK_GPU)
for lit in LIT:
    draw(lit, list(rows_of(measured, lit)), "TFLOP/s", ("H200, batch 4, 16 heads, N 4096, d 128, no mask", "The fastest step of other chapters"))
draw(7, rows_beside(measured, 7, "backward/{}/bf16/d128/full/n4096", {"PyTorch, P in memory": "eager", "FlashAttention-2": "flash", "cuDNN": "cudnn"},
                    {step.name: label(step) for step in steps.of(7)}),
     "TFLOP/s", ("H200, backward, batch 4, 16 heads, N 4096, d 128, no mask", "Others: what PyTorch calls"))
draw(8, rows_beside(measured, 8, "decode/{}/bf16/d128/b16h32k8/n8192", {"FlexAttention": "flex", "FlashAttention-2": "flash", "cuDNN": "cudnn"},
                    {who: label(step) + " of 64 keys" * (step.slug == "paged") for step in steps.of(8) for who in ONE_QUERY if who.removesuffix("_p64") == step.name},
                    "bytes_per_second"),
     "TB/s", ("H200, 16 sequences of 8192 keys, one query each, bf16,", "32 query heads, 8 key heads, d 128"))
draw(9, rows_beside(measured, 9, "masked/{}/bf16/d128/window/n8192",
                    {"PyTorch, a mask of pairs": "dense", "FlashAttention-2": "flash2", "FlexAttention": "flex"},
                    {step.name: label(step) for step in steps.of(9) if step.slug not in ("varlen", "backward")}),
     "TFLOP/s", ("H200, a causal window of 1024, visible pairs,", "batch 2, 16 heads, N 8192, d 128, bf16"))
titles = re.findall(r"^## Step ([1-5]): (.+)", (folder(10) / "README.md").read_text(encoding="utf-8"), flags=re.M)
draw(10, rows_beside(measured, 10, "many/{}/bf16/d128/causal/n65536",
                     {"5 on one GPU": "ch05/persistent", "PyTorch, context_parallel": "cp_cudnn_allgather cp_cudnn_alltoall"},
                     {steps.of(10)[int(number) - 1].name: f"10.{number} {words}" for number, words in titles}),
     "TFLOP/s", ("Two H200s, forward, batch 1, 16 heads, N 65536, d 128,", "causal, bf16; of both GPUs together"))
draw(0, list(rows_of_book(measured)), "TFLOP/s", ("H200, forward, batch 4, 16 heads, N 4096, d 128, no mask", "The fastest step of each chapter, BF16"))
on_cpu = measured.by_step(**ON_CPU)
draw(2, [(label(step), on_cpu[2, step.number].values["FLOPS"] / 1e9, True) for step in steps.of(2)
         if (2, step.number) in on_cpu and not on_cpu[2, step.number].skipped], "GFLOP/s", ("16 cores, one head, N 4096, d 64, no mask, float32", "Steps 1 to 3 use one core"))
