"""The numbers of the front page's ladder: every shape that was measured, for the figure in which one can choose."""
from typing import Any

from bench import results

LAST_IN_BF16 = 5  # chapters beyond it compute in FP8, or something else


def shapes() -> list[dict[str, Any]]:
    """For each head dimension, mask and length: the fastest step of each chapter, and in one process ours and the peers, by type."""
    measured = results.load(results.RESULTS / results.BOOK_GPU)
    found = []
    for name, cell in results.beside_peers(measured).items():
        if name.dtype != "bf16":
            continue
        shape: dict[str, Any] = {"head_dim": name.head_dim, "mask": name.mask, "seqlen": name.seqlen}
        rates: dict[int, tuple[float, str]] = {}
        for (chapter, step), entry in measured.by_step(**shape).items():
            if not entry.skipped and "bytes_per_second" in entry.values and chapter <= LAST_IN_BF16:
                rate = round(entry.values["FLOPS"] / 1e12, 1)
                rates[chapter] = max(rates.get(chapter, (0.0, "")), (rate, f"{chapter}.{step} {entry.context.get(f'ch{chapter:02}', '')}"))
        found.append({**shape, "chapters": [[words, rate] for rate, words in rates.values()], "bf16": in_turn_row(cell)})
    for name, cell in results.beside_peers(measured).items():
        if name.dtype == "e4m3":
            for shape in found:
                if (shape["head_dim"], shape["mask"], shape["seqlen"]) == (name.head_dim, name.mask, name.seqlen):
                    shape["e4m3"] = in_turn_row(cell)
    return found


def in_turn_row(cell: results.InTurn) -> list[float]:
    return [round(rate) for rate in (cell.ours, cell.fa3, cell.cudnn)]
