"""Caches as used in practice. bench/decode.py times these cells unless it is given a mode.

`bshd` is the layout of FlashAttention, vLLM and FlashInfer: [batch, seqlen, kv_heads, d], or pages
[rows, kv_heads, d], which FlashInfer calls NHD. `bhsd` is [batch, kv_heads, seqlen, d], or pages [kv_heads, rows, d]
(HND). Queries are the last tokens of their sequence, with a causal mask. If there are pages or different lengths, every
contestant gets the lengths as a tensor; a full contiguous cache comes without lengths.

Each cell is timed in two ways. `decode/...` is the GPU alone, replaying a CUDA graph; ours is the C function with the
step that the Python package chooses, and with each of --step. `called/...` is the time a Python caller waits, from an
idle GPU to the result. Both exclude FlashInfer's plan, which a model makes once for all layers. FlashAttention-3
chooses its number of splits itself.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import math
import os
import re
import statistics
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from bench import caches, flash_attention_3, packages, peers, race, results
from bench.names import Name
from bench.race import LAYOUTS, SEED, Contestant
from bench.structs import Shape, Tensors, feature, pointers_to

CHAPTER = 8
PEERS = ("fa3", "cudnn", "cudnn_frontend", "flashinfer")
TOKENS, PAGES, TOKENS_PER_PAGED_CELL = (1, 2, 4, 8, 16), (16, 64, 256), (1, 8)
LAUNCHES, NAP = 10, 0.02  # launches per round; the seconds are fewer than elsewhere, since memory-bound kernels draw less power
torch: Any = None


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cache and the queries against it."""

    batch: int
    heads: int
    kv_heads: int
    keys: int  # at most
    tokens: int = 1  # queries per sequence
    page_rows: int = 0  # 0 without pages
    layout: str = LAYOUTS[0]
    head_dim: int = 128
    ragged: bool = False  # lengths between `keys` / 32 and `keys`

    @property
    def word(self) -> str:
        pages = f"_p{self.page_rows}" if self.page_rows else ""
        return f"b{self.batch}h{self.heads}k{self.kv_heads}t{self.tokens}{'ragged' * self.ragged}_{self.layout}{pages}"

    def __str__(self) -> str:
        return f"d{self.head_dim}/{self.word}/n{self.keys}"

    @property
    def lengths(self) -> list[int]:
        """The number of keys of each sequence, unsorted."""
        steps = max(self.batch - 1, 1)
        return [round(self.keys * 2 ** (-5 * (7 * b % self.batch) / steps)) if self.ragged else self.keys for b in range(self.batch)]

    def kv_bytes(self) -> int:
        """Returns the bytes of all keys and values that must be read."""
        return 4 * sum(self.lengths) * self.kv_heads * self.head_dim

    def flops(self) -> int:
        pairs = sum(self.tokens * keys - self.tokens * (self.tokens - 1) // 2 for keys in self.lengths)
        return 4 * self.head_dim * self.heads * pairs


SHAPES = [Cell(1, 32, 8, 8192), Cell(1, 32, 8, 131072), Cell(16, 32, 8, 4096), Cell(64, 64, 8, 8192), Cell(128, 32, 8, 2048),
          Cell(32, 16, 16, 8192)]
OTHERS = [Cell(16, 64, 4, 8192), Cell(16, 32, 8, 8192, head_dim=64), Cell(16, 16, 4, 8192, head_dim=256), Cell(32, 32, 8, 16384, ragged=True)]
CASES = [(tokens, 0) for tokens in TOKENS] + [(tokens, rows) for rows in PAGES for tokens in TOKENS_PER_PAGED_CELL]  # (tokens, rows per page)
CELLS = [dataclasses.replace(shape, tokens=tokens, page_rows=rows, layout=layout)
         for shapes, cases in ((SHAPES, CASES), (OTHERS, [(1, 0), (8, 0), (1, 64), (8, 64)]))
         for shape in shapes for tokens, rows in cases for layout in LAYOUTS]


@dataclasses.dataclass
class Problem:
    """A cell's tensors, all of them views [batch, heads, rows, head_dim]."""

    cell: Cell
    shape: Shape
    q: Any  # [batch, tokens, heads, head_dim] in memory
    k: Any  # without pages
    v: Any
    cache: tuple[Any, Any]  # k and v, or pages [pages, kv_heads, rows, head_dim]
    lengths: Any = None  # [batch]; None: all have seqlen_k
    table: Any = None  # [batch, pages per sequence]
    window = 0
    softcap = 0.0
    sinks = None
    encoded = ()

    def name(self, contestant: Contestant) -> str:
        kind = "called" if contestant.called else "decode"
        return str(Name(kind, contestant.who, "bf16", self.cell.head_dim, self.cell.word, self.cell.keys))

    def rows(self, tensor: Any, b: int, h: int) -> Any:
        return tensor[b, h]

    def by_token(self) -> tuple[Any, Any, Any]:
        """Q and the cache in FlashAttention's layout, [.., rows, heads, head_dim]."""
        q, k, v = (tensor.transpose(1, 2) for tensor in (self.q, *self.cache))
        return q, k, v


def make_problem(cell: Cell) -> Problem:
    torch.manual_seed(SEED)
    k, v = (race.randn(cell.layout, cell.batch, cell.kv_heads, cell.keys, cell.head_dim, torch.bfloat16) for _ in "kv")
    q = race.randn("bshd", cell.batch, cell.heads, cell.tokens, cell.head_dim, torch.bfloat16)
    shape = Shape(cell.batch, cell.heads, cell.kv_heads, cell.tokens, cell.keys, cell.head_dim, 1, peers.DTYPES["bf16"],
                  1 / math.sqrt(cell.head_dim))
    found = Problem(cell, shape, q, k, v, (k, v))
    if cell.page_rows or cell.ragged:
        found.lengths = torch.tensor(cell.lengths, device="cuda", dtype=torch.int32)
    if cell.page_rows:
        order = torch.randperm(cell.batch * cell.keys // cell.page_rows, device="cuda")
        found.cache = caches.in_pages(k, order, cell.page_rows), caches.in_pages(v, order, cell.page_rows)
        found.table = order.to(torch.int32).view(cell.batch, -1)
    race.set_strides(shape, q=q, k=found.cache[0], v=found.cache[1], o=q)
    return found


# ---- contestants -----------------------------------------------------------------------------------------------------


def ours(library: Any, chapter: int, slug: str, problem: Problem) -> Contestant:
    """Returns a step, called through the C function."""
    step, table = library.step(chapter, slug), problem.table
    found = Contestant(f"ch{chapter:02}/{slug}", library.step_name(chapter, step), None)
    features = [] if problem.lengths is None else [feature("Lengths", lengths=problem.lengths.data_ptr())]
    if table is not None:
        features.append(feature("Pages", page_table=table.data_ptr(), page_rows=problem.cell.page_rows, pages=problem.cache[0].shape[0]))
    given = problem.shape.described(*features)
    size = library.workspace_bytes(chapter, step, given)
    if size < 0:
        found.skipped = library.error()
        return found
    o = torch.full_like(problem.q, float("nan"))  # keeps the strides of Q
    lse = torch.full(problem.q.shape[:3], float("nan"), device="cuda", dtype=torch.float32)
    workspace = torch.zeros(size, device="cuda", dtype=torch.uint8)
    tensors = pointers_to(Tensors, problem.q, *problem.cache, o, lse, workspace)

    def launch() -> Any:
        library.attention(chapter, step, given, tensors)
        return o

    found.run, found.keeps = race.Replayed(launch), (lse, workspace)
    return found


def package(problem: Problem) -> tuple[Contestant, int, str]:
    """Returns the Python package, and the chapter and step that it chooses."""
    from flashbook import explain, flash_attn_with_kvcache

    tensors, options = problem.by_token(), {"cache_seqlens": problem.lengths, "block_table": problem.table, "causal": True}
    said = explain(flash_attn_with_kvcache, *tensors, **options)
    run = lambda: flash_attn_with_kvcache(*tensors, **options).transpose(1, 2)
    return Contestant(f"ch{said.chapter:02}/{said.step}", said.name, run, called=True), said.chapter, said.step


def fa3(problem: Problem) -> Any:
    q, k, v = problem.by_token()
    return lambda: flash_attention_3.with_cache(q, k, v, problem.shape.scale, problem.lengths, problem.table).transpose(1, 2)


def cudnn(problem: Problem) -> Any:
    """Returns a launch of PyTorch's attention. Several queries need a mask in memory, since PyTorch aligns its causal
    mask with the first key."""
    from torch.nn.functional import scaled_dot_product_attention

    cell, (k, v), mask = problem.cell, problem.cache, None
    if cell.tokens > 1:
        hidden = torch.ones(cell.tokens, cell.keys, device="cuda", dtype=torch.bool).triu(cell.keys - cell.tokens + 1)
        mask = torch.zeros(cell.tokens, cell.keys, device="cuda", dtype=torch.bfloat16).masked_fill(hidden, float("-inf"))
    return lambda: scaled_dot_product_attention(problem.q, k, v, attn_mask=mask, scale=problem.shape.scale, enable_gqa=True)


def cudnn_frontend(problem: Problem) -> Any:
    queries = None if problem.lengths is None else torch.full_like(problem.lengths, problem.cell.tokens)
    return caches.cudnn(problem.q, *problem.cache, problem.shape.scale, problem.cell.tokens > 1, problem.table, problem.lengths, queries)


def flashinfer(who: str, problem: Problem) -> Any:
    cell, by_token = problem.cell, problem.by_token()
    q, o = by_token[0], torch.empty_like(by_token[0])
    first = torch.arange(cell.batch + 1, device="cuda", dtype=torch.int32) * cell.tokens if cell.tokens > 1 else None
    order, pages = ("NHD", by_token[1:]) if cell.layout == "bshd" else ("HND", problem.cache)
    packed = [tensor.view(-1, cell.heads, cell.head_dim) for tensor in (q, o)]
    launch = caches.flashinfer(who, packed[0], packed[1], pages, order, problem.table, problem.lengths, problem.shape.scale, first)

    def run() -> Any:
        launch()
        return o.transpose(1, 2)

    return run


def peer(who: str, problem: Problem) -> list[Contestant]:
    """Returns a peer's two contestants, the GPU alone and as called, or one with the reason why they are missing."""
    if who != "cudnn":
        lacking = packages.absent("flashinfer" if who.startswith("flashinfer") else who)
        if lacking:
            return [lacking]
    makers = {"fa3": fa3, "cudnn": cudnn, "cudnn_frontend": cudnn_frontend}
    label = f"cuDNN {torch.backends.cudnn.version()}, called by PyTorch"
    if who != "cudnn":
        label = packages.PACKAGES[who if who in makers else "flashinfer"].label
    context: Any = contextlib.nullcontext
    try:
        if who == "cudnn":
            from torch.nn.attention import SDPBackend, sdpa_kernel

            context = lambda: sdpa_kernel(SDPBackend.CUDNN_ATTENTION)
        run = makers[who](problem) if who in makers else flashinfer(who, problem)
    except Exception as error:  # packages raise all kinds of exceptions
        return [Contestant(who, label, None, skipped=(str(error).splitlines() or [type(error).__name__])[0])]
    return [Contestant(who, label, race.Replayed(run), context=context), Contestant(who, label, run, context=context, called=True)]


def peers_of(cell: Cell, asked: Iterable[str]) -> list[str]:
    """Returns the peers that can read this cache, with FlashInfer once per kernel."""
    able = {"fa3", "cudnn_frontend"} if cell.page_rows or cell.ragged else {"fa3", "cudnn_frontend", "cudnn"}
    found = [who for who in asked if who in able]
    if "flashinfer" in asked and cell.page_rows:
        found += ["flashinfer", "flashinfer_tc"] if cell.tokens == 1 else ["flashinfer_fa2", "flashinfer_fa3"]
    return found


def contestants_of(options: Any, cell: Cell, library: Any) -> tuple[Problem, list[Contestant], int]:
    problem = make_problem(cell)
    try:
        called, chapter, step = package(problem)
    except (NotImplementedError, RuntimeError, ValueError) as error:  # the package does not support the call
        reason, step = str(error).splitlines()[0], ""
        found = [Contestant(f"ch{CHAPTER:02}/package", "the package", None, skipped=reason, called=True)]
    else:
        chosen = ours(library, chapter, step, problem)
        found = [chosen, called] if not options.before else [chosen]  # a process can load only one package
        for contestant in found:
            contestant.values["chosen"] = 1
    if options.step:
        found += [ours(library, CHAPTER, other, problem) for other in library.slugs(CHAPTER, options.step) if other != step]
    found += [contestant for who in peers_of(cell, options.peers) for contestant in peer(who, problem)]
    for contestant in found:
        contestant.values["bytes"], contestant.nap = cell.kv_bytes(), NAP
    return problem, found, cell.flops()


def check(problem: Problem, contestants: list[Contestant]) -> None:
    race.check_outputs(problem, contestants, caches.largest_error, LAUNCHES)


# ---- the program -----------------------------------------------------------------------------------------------------


def pick(pattern: str) -> dict[str, Cell]:
    """Returns the cells whose names match the regular expression."""
    return {str(cell): cell for cell in CELLS if re.search(pattern, str(cell))}


def row(*columns: Any) -> str:
    return f"{columns[0]:10} {columns[1]:6} {columns[2]:12} {columns[3]:>6}" + "".join(f"{column:>16}" for column in columns[4:])


def summary(entries: list[dict[str, Any]]) -> Iterator[str]:
    """Yields a table of the chosen steps' speed relative to the fastest peer, by group of cells, and each cell that is
    slower."""
    groups: dict[tuple[str, str, str], list[tuple[float, float, str]]] = {}
    skipped: collections.Counter[tuple[str, str]] = collections.Counter()
    for entry in entries:
        name = Name.parse(entry["name"])
        sizes = name and re.fullmatch(rf"\w+?_({'|'.join(LAYOUTS)})(?:_p(\d+))?", name.mask)
        if name is None or not sizes:
            continue
        if entry.get("error_occurred"):
            skipped[f"{name.kind}/{name.who}", entry["error_message"]] += 1
            continue
        peers_of_cell = {key[3:]: value for key, value in entry.items() if key.startswith("vs_") and key != "vs_before"}
        if not entry.get("chosen") or not peers_of_cell:
            continue
        best = min(peers_of_cell, key=lambda who: peers_of_cell[who])
        ratio = peers_of_cell[best]
        found = ratio, entry["bytes_per_second"] / 1e12, f"{name}: {ratio:.3f} of {best}"
        timing = "as called" if name.kind == "called" else "GPU alone"
        cache = f"pages of {sizes[2]}" if sizes[2] else "contiguous"
        for layout, kind in ((sizes[1], cache), (sizes[1], "all"), ("both", "all")):
            groups.setdefault((timing, layout, kind), []).append(found)
    yield row("timing", "layout", "cache", "cells", "over best peer", "least", "below 1.00", "TB/s", "best peer's")
    for group, cells in sorted(groups.items()):
        ratios, rates = [ratio for ratio, *_ in cells], [rate for _, rate, _ in cells]
        yield row(*group, len(cells), f"{statistics.geometric_mean(ratios):.3f}", f"{min(ratios):.3f}", sum(ratio < 1 for ratio in ratios),
                  f"{statistics.median(rates):.2f}", f"{statistics.median(rate / ratio for ratio, rate, _ in cells):.2f}")
    for ratio, _, words in sorted(cell for group, cells in groups.items() if group[1] == "both" for cell in cells):
        if ratio < 1:
            yield words
    for (who, reason), count in sorted(skipped.items()):
        yield f"{who} skipped in {count}: {reason}"


def run(options: Any, library: Any) -> None:
    os.environ["FLASHBOOK_LIBRARY"] = str(options.library)
    sys.path.insert(0, str(results.ROOT / "python"))
    make = {name: functools.partial(contestants_of, options, cell) for name, cell in pick(options.only).items()}
    try:
        race.run(options, library, check, make)
    finally:
        if options.out.exists():
            print(*summary(json.loads(options.out.read_text())["benchmarks"]), sep="\n", flush=True)
