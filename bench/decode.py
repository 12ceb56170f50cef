#!/usr/bin/env python3
"""Times decoding, with all contestants interleaved in one process (bench/race.py).

    decode.py [--only REGEX] [--step equal_work,boxes,warpgroup] [--peers fa3,cudnn,...] [--rounds 5] [--seconds S] [--resume]
              [--out FILE] [--library FILE]
    decode.py --summary FILE   prints the table that ends such a run, and needs no GPU
    decode.py --one-query | --prefill | --ablation [--step per_head,pack_gqa,...] [--peers cudnn,flash,...]
              [--pages 16,64,128] [--shape 0,1,...] [--rounds 5] [--out FILE] [--library FILE]

Without a mode it times caches as used in practice (bench/cells.py): both memory layouts, pages of 16 to 256 rows, 1 to
16 query tokens, groups of 1 to 16 heads, against FlashAttention-3, cuDNN and FlashInfer, on the GPU alone and as called
from Python.

--one-query  the steps of chapter 8 in [batch, heads, seqlen, d] with one query per sequence, with pages and plans,
             against PyTorch's kernels. Step 8 reads the same keys and values rounded to e4m3, half the bytes. Two
             shapes have a window, or a softcap and sinks; in these, ring, paged, equal_work and FlashInfer (without
             sinks) take part. Latent attention is compared with FlashInfer's and with a copy of the same number of
             bytes, since PyTorch has no kernel whose keys are also its values.
--prefill    the last queries of each sequence, packed and causal, in one launch: `chunks` are 8 sequences with 512
             queries each and 2k to 16k keys, `mixed` are 32 sequences with one query and 2 with 1024. Step 6, chapter
             9's prompts, cuDNN's paged attention, and FlashInfer's batch prefill (kernels fa2 and fa3, planned
             beforehand) take part. FLOPs count visible pairs.
--ablation   the ring with one switch changed at a time, and split_kv, on one sequence and on 16.

cuDNN's paged attention and FlashInfer take part if nvidia-cudnn-frontend and flashinfer-python are installed.
`bytes_per_second` counts each key and value that must be read once, however often a kernel reads it. `vs_cudnn` is our
speed relative to cuDNN. Our results are checked against float64 attention before they are timed.
"""

import argparse
import dataclasses
import functools
import importlib.util
import itertools
import math
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # so that python3 bench/decode.py finds the packages

from bench import caches, cells, packages, peers, race, results
from bench.caches import in_pages, largest_error
from bench.names import Name
from bench.race import SEED, Contestant, whole_numbers
from bench.structs import SCALE_OF_HEAD, Shape, Tensors, feature, pointers_to

CHAPTER = 8
EQUAL_WORK, LATENT_STEP, E4M3_CACHE = "equal_work", "latent", "e4m3_cache"  # steps for a prefix read once, for latent keys, and for a cache in e4m3
MASKS, PROMPTS = 9, "prompts"  # chapter and step for many queries
PEERS = ("cudnn", "flash", "flex")
# Kernels that read pages, and their packages: for one query per sequence, and for any number.
ONE_QUERY = {"cudnn_paged": "cudnn", "flashinfer": "flashinfer", "flashinfer_tc": "flashinfer"}
PREFILL = {"cudnn_paged": "cudnn", "flashinfer_fa2": "flashinfer", "flashinfer_fa3": "flashinfer"}
PAGED = ONE_QUERY | PREFILL
PEER_PAGES = (64, 16)  # number of rows per page
torch: Any = None

# (batch, query heads, key heads, head_dim, keys)
SHAPES = [(1, 32, 8, 128, 8192), (1, 32, 8, 128, 131072), (16, 32, 8, 128, 8192), (64, 32, 8, 128, 8192), (128, 32, 8, 128, 2048),
          (16, 64, 8, 128, 32768), (4, 32, 32, 128, 16384), (1, 16, 1, 256, 65536)]
LATENT_KEY, LATENT_VALUE = 576, 512  # elements of a latent key, and how many of them, from the first, are its value
LATENT = [(64, heads, 1, LATENT_KEY, 8192) for heads in (16, 32, 64, 128)]
LATENT += [(128, 128, 1, LATENT_KEY, 4096), (16, 128, 1, LATENT_KEY, 32768), (1, 128, 1, LATENT_KEY, 131072), (128, 16, 1, LATENT_KEY, 8192)]
UNEVEN = (16, 32, 8, 128, 65536)  # one sequence has this length, the others a 16th of it
SHARED = (64, 32, 8, 128, 9216)  # all share the same keys, except the last 1024
OWN_KEYS = 1024
WINDOWED, RULED = (16, 32, 8, 128, 8192), (16, 32, 8, 128, 8192)  # only the last keys; a softcap and sinks
WINDOW, SOFTCAP = 1024, 20.0
RAGGED = {"chunks": [(512, 2048 * i) for i in range(1, 9)], "mixed": [(1, 4096)] * 32 + [(1024, 4096)] * 2}  # (queries, keys) of each sequence
OF_RAGGED = [(len(sizes), 32, 8, 128, max(keys for _, keys in sizes)) for sizes in RAGGED.values()]
ALL_SHAPES = [*SHAPES, UNEVEN, SHARED, *LATENT, WINDOWED, RULED, *OF_RAGGED]
WORDS = dict(enumerate(("window", "rules", *RAGGED), len(ALL_SHAPES) - 2 - len(RAGGED)))  # words in the names of shapes, by number


@dataclasses.dataclass
class Problem:
    """A problem with a cache: one query per sequence, or several, which are packed."""

    shape: Shape
    q: Any  # [batch, heads, 1, head_dim]; packed, [1, heads, queries, head_dim] with all heads of a query together in memory
    k: Any
    v: Any
    lengths: Any = None  # [batch]; None: all have seqlen_k
    shared: int = 0  # keys of a prefix that all sequences share
    window: int = 0  # visible keys per query; 0: all
    softcap: float = 0.0
    sinks: Any = None  # [heads]
    first_query: Any = None  # [batch + 1], where each sequence's queries begin; None: each has one
    word: str = ""  # the word in its name
    encoded: tuple[()] = ()  # not quantised

    def name(self, contestant):
        kind = "ablation" if contestant.kind == "ablation" else "decode"
        return str(Name(kind, contestant.who, "bf16", self.shape.head_dim, self.word, self.shape.seqlen_k))

    def kv_bytes(self):
        keys = self.lengths.sum().item() if self.lengths is not None else self.shape.batch * self.shape.seqlen_k
        keys -= (self.shape.batch - 1) * self.shared
        if self.window:
            keys = self.shape.batch * self.window
        return (2 if self.is_latent() else 4) * keys * self.shape.kv_heads * self.shape.head_dim

    @functools.cached_property
    def e4m3(self):
        """Returns (keys, values, their scales per head) in e4m3. Scales are powers of two, so that decoded values are exact in bf16."""
        scales = [torch.exp2(torch.ceil(torch.log2(t.abs().amax((2, 3)).float() / 448))) for t in (self.k, self.v)]
        encoded = ((t / scale[:, :, None, None].to(t.dtype)).to(torch.float8_e4m3fn) for t, scale in zip((self.k, self.v), scales, strict=True))
        return *encoded, *scales

    def rounded(self):
        """Returns the problem that an e4m3 cache represents."""
        k, v, *scales = self.e4m3
        k, v = (t.to(torch.bfloat16).mul_(scale[:, :, None, None]) for t, scale in zip((k, v), scales, strict=True))
        return dataclasses.replace(self, k=k, v=v)

    def features(self):
        """Returns its features in the C interface, except for pages and scales."""
        found = []
        if self.window or self.is_ragged():
            found.append(feature("Window", left=self.window - 1, right=0))
        if self.softcap:
            found.append(feature("Softcap", softcap=self.softcap))
        if self.sinks is not None:
            found.append(feature("Sinks", sink_logits=self.sinks.data_ptr()))
        if self.is_ragged():
            found.append(feature("PackedQueries", first_query=self.first_query.data_ptr(), queries=self.q.shape[2]))
        if self.lengths is not None:
            found.append(feature("Lengths", lengths=self.lengths.data_ptr()))
        return found

    def has_rules(self):
        return bool(self.window or self.softcap or self.is_ragged())

    def is_ragged(self):
        return self.first_query is not None

    def rows(self, tensor, b, h):
        """Returns the rows of a sequence's queries in Q or O, [queries, head_dim]."""
        return tensor[0, h, self.first_query[b]:self.first_query[b + 1]] if self.is_ragged() else tensor[b, h]

    def is_latent(self):
        return self.shape.head_dim == LATENT_KEY

    def flops(self):
        """Returns the FLOPs for the keys that are read; with a shared prefix, fewer than are computed. For ragged queries, returns the FLOPs
        of visible pairs."""
        if self.is_ragged():
            queries, keys = self.first_query.diff(), self.lengths
            pairs = (queries * keys - queries * (queries - 1) // 2).sum().item()
            return 4 * self.shape.head_dim * self.shape.heads * pairs
        a_byte = (LATENT_KEY + LATENT_VALUE) / LATENT_KEY if self.is_latent() else 1
        return a_byte * self.kv_bytes() * self.shape.heads / self.shape.kv_heads


def make_problem(batch, heads, kv_heads, head_dim, keys, uneven=False, shared=0, word=""):
    torch.manual_seed(SEED)
    shape = Shape(batch, heads, kv_heads, 1, keys, head_dim, 0, peers.DTYPES["bf16"], 1 / math.sqrt(head_dim))
    random_tensor = lambda heads, rows: torch.randn(batch, heads, rows, head_dim, device="cuda", dtype=torch.bfloat16)
    k = random_tensor(kv_heads, keys)
    v = k[..., :LATENT_VALUE] if head_dim == LATENT_KEY else random_tensor(kv_heads, keys)
    found = Problem(shape, random_tensor(heads, 1), k, v)
    found.word = f"b{batch}h{heads}k{kv_heads}"
    if uneven:
        found.lengths = torch.full((batch,), keys // 16, device="cuda", dtype=torch.int32)
        found.lengths[batch // 3] = keys
        found.word += "uneven"
    found.word += word
    if word == "window":
        found.window = WINDOW
    if word == "rules":
        found.softcap, found.sinks = SOFTCAP, torch.randn(heads, device="cuda")
    if word in RAGGED:
        make_ragged(found, RAGGED[word])
    if shared:
        found.shared = shared
        found.word += "shared"
        for tensor in (k, v):
            tensor[1:, :, :shared] = tensor[:1, :, :shared]
    return found


def make_ragged(problem, sizes):
    """Gives each sequence the numbers of queries and keys in `sizes`."""
    shape, (queries, keys) = problem.shape, zip(*sizes, strict=True)
    problem.first_query = torch.tensor([0, *itertools.accumulate(queries)], device="cuda", dtype=torch.int32)
    problem.lengths = torch.tensor(keys, device="cuda", dtype=torch.int32)
    packed = torch.randn(sum(queries), shape.heads, shape.head_dim, device="cuda", dtype=torch.bfloat16)
    problem.q, shape.seqlen_q, row = packed.transpose(0, 1)[None], max(queries), shape.heads * shape.head_dim
    strides = shape.seqlen_q * row, shape.head_dim, row
    shape.set_strides(q=strides, o=strides)


# ---- contestants -------------------------------------------------------------------------------------------------------------------


def ours(library, slug, problem, page_rows=0, once=False, ablation=False, chapter=CHAPTER):
    """Returns a step, with keys in pages of `page_rows` rows in random order, or without pages. `once`: a shared prefix is read once;
    otherwise every sequence reads it from the same pages."""
    step = library.step(chapter, slug)
    name = library.step_name(chapter, step)
    who = f"ch{chapter:02}/{slug}" + (f"_p{page_rows}" if page_rows else "") + ("_once" if once else "")
    found = Contestant(who, name, None, kind="ablation" if ablation else "decode")
    shape, is_e4m3 = problem.shape, slug == E4M3_CACHE
    pages = feature("Pages", page_rows=page_rows, pages=shape.batch * shape.seqlen_k // (page_rows or 1), shared_keys=problem.shared if once else 0)
    scales = feature("Scales", scaling=SCALE_OF_HEAD)
    features = [*problem.features(), *[pages] * bool(page_rows), *[scales] * is_e4m3]
    size = library.workspace_bytes(chapter, step, shape.described(*features))
    if size < 0:
        found.skipped = library.error()
        return found
    k, v, table = problem.k, problem.v, None
    if is_e4m3:
        k, v, *factors = problem.e4m3
        scales.k_scale, scales.v_scale = (factor.data_ptr() for factor in factors)
    if page_rows:
        order = torch.randperm(pages.pages, device="cuda")
        k, table = in_pages(k, order, page_rows), order.to(torch.int32)
        v = k if problem.is_latent() else in_pages(v, order, page_rows)
        if problem.shared:
            prefix_pages = table.view(shape.batch, -1)[:, :problem.shared // page_rows]
            prefix_pages.copy_(prefix_pages[:1].clone().expand_as(prefix_pages))
        pages.page_table = table.data_ptr()
    o = torch.full_like(problem.q[..., :LATENT_VALUE], float("nan"))  # a contiguous copy of some columns of a latent query
    lse = torch.full(o.shape[:3], float("nan"), device="cuda", dtype=torch.float32)
    workspace = torch.zeros(size, device="cuda", dtype=torch.uint8)
    given, tensors = shape.described(*features), pointers_to(Tensors, problem.q, k, v, o, lse, workspace)
    found.values = {"workspace_bytes": size, "bytes": problem.kv_bytes() // (2 if is_e4m3 else 1)}

    def run():
        library.attention(chapter, step, given, tensors)
        return o

    found.run, found.keeps = run, (k, v, table, lse, workspace)
    return found


def copy(problem):
    """Reads half of the cache's bytes and writes as many."""
    half = problem.k.view(-1)[: problem.k.numel() // 2]
    to = torch.empty_like(half)
    return Contestant("copy", "a copy of equally many bytes", lambda: to.copy_(half), values={"bytes": problem.kv_bytes()}, keeps=to)


def peer(who, problem):
    """Returns PyTorch's attention with one backend forced, or FlexAttention compiled."""
    q, k, v, scale = problem.q, problem.k, problem.v, problem.shape.scale
    values = {"bytes": problem.kv_bytes()}
    if who == "flex":
        from torch.nn.attention.flex_attention import flex_attention

        compiled = torch.compile(flex_attention, dynamic=False)
        return Contestant(who, "FlexAttention, compiled", lambda: compiled(q, k, v, scale=scale, enable_gqa=True), values=values)

    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[who]
    run = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True)
    return Contestant(who, backend.name, run, context=lambda: sdpa_kernel(backend), values=values)


def paged_peer(who, problem, page_rows):
    """Returns cuDNN's or FlashInfer's attention over pages in random order, or the reason for leaving it out."""
    found = Contestant(f"{who}_p{page_rows}", f"{PAGED[who]}, pages of {page_rows}", None, values={"bytes": problem.kv_bytes()})
    if importlib.util.find_spec(PAGED[who]) is None:
        found.skipped = f"its package, {PAGED[who]}, is not installed"
        found.install = packages.PACKAGES["cudnn_frontend" if PAGED[who] == "cudnn" else "flashinfer"].install
        return found
    shape = problem.shape
    table = torch.randperm(shape.batch * shape.seqlen_k // page_rows, device="cuda")
    parts = problem.k.split((LATENT_VALUE, LATENT_KEY - LATENT_VALUE), -1) if problem.is_latent() else (problem.k, problem.v)
    keys, values = (in_pages(tensor, table, page_rows) for tensor in parts)
    table = table.to(torch.int32)
    lengths = torch.full((shape.batch,), shape.seqlen_k, device="cuda", dtype=torch.int32) if problem.lengths is None else problem.lengths
    found.keeps = (keys, values, table, lengths)
    try:
        if who == "cudnn_paged":
            queries = problem.first_query.diff() if problem.is_ragged() else torch.ones_like(lengths)
            found.run = caches.cudnn(problem.q, keys, values, shape.scale, problem.is_ragged(), table, lengths, queries, problem.first_query,
                                     shape.seqlen_q)
        elif problem.is_latent():
            found.run = flashinfer_latent(problem, keys, values, table, lengths)
        else:
            found.run = flashinfer(problem, (keys, values), table, lengths, who)
    except Exception as error:  # packages raise all kinds of exceptions
        found.skipped = (str(error).splitlines() or [type(error).__name__])[0]
    return found


def flashinfer(problem, cache, table, lengths, who):
    o = torch.empty_like(problem.q)
    queries, o_rows = (tensor.transpose(1, 2).view(-1, problem.shape.heads, problem.shape.head_dim) for tensor in (problem.q, o))
    launch = caches.flashinfer(who, queries, o_rows, cache, "HND", table, lengths, problem.shape.scale, problem.first_query, problem.window,
                               problem.softcap)

    def run():
        launch()
        return o

    return run


def flashinfer_latent(problem, latents, positions, table, lengths):
    """Returns a launch of FlashInfer's latent attention, which keeps latents and positions in two caches."""
    shape, page_rows = problem.shape, latents.shape[2]
    first, used = caches.used_pages(page_rows, table, lengths)
    workspace = torch.empty(1 << 28, device="cuda", dtype=torch.uint8)
    wrapper = importlib.import_module("flashinfer").mla.BatchMLAPagedAttentionWrapper(workspace)
    wrapper.plan(torch.arange(shape.batch + 1, device="cuda", dtype=torch.int32), first, used, lengths, shape.heads, LATENT_VALUE,
                 LATENT_KEY - LATENT_VALUE, page_rows, False, shape.scale, problem.q.dtype, problem.q.dtype)
    q_latent, q_position = (part.contiguous() for part in problem.q[:, :, 0].split((LATENT_VALUE, LATENT_KEY - LATENT_VALUE), -1))
    o = torch.empty_like(q_latent)

    def run():
        wrapper.run(q_latent, q_position, latents[:, 0], positions[:, 0], out=o)
        return o.unsqueeze(2)

    return run


def check(problem, contestants):
    """Calls race.check_outputs, except for copies, which have no output."""
    for contestant in contestants:
        if contestant.who == "copy":
            contestant.run()
            contestant.launches = 20
    is_e4m3 = lambda c: c.who.startswith(f"ch{CHAPTER:02}/{E4M3_CACHE}")
    race.check_outputs(problem, [c for c in contestants if c.who != "copy" and not is_e4m3(c)], largest_error, 20)
    if rounded := [c for c in contestants if is_e4m3(c)]:
        race.check_outputs(problem.rounded(), rounded, largest_error, 20)


# ---- the program -------------------------------------------------------------------------------------------------------------------


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--summary", type=pathlib.Path, metavar="FILE", help="print the table of a result file")
    modes.add_argument("--one-query", action="store_true", help="chapter 8's ladder, and latent attention")
    modes.add_argument("--prefill", action="store_true", help="shapes with different numbers of queries")
    modes.add_argument("--ablation", action="store_true", help="the ring and its switches, without peers")
    parser.add_argument("--only", default="", metavar="REGEX", help="without a mode: only cells (such as d128/b64h64k8t16_bshd_p64/n8192) that match")
    parser.add_argument("--step", type=lambda text: text.split(","), help="default: all; without a mode, steps in addition to the package's choice")
    parser.add_argument("--peers", help=f"some of {','.join(cells.PEERS)}, with a mode some of {','.join((*PEERS, *PAGED))} (default: all), or none")
    parser.add_argument("--pages", type=whole_numbers, default=[16, 64, 128], help="page sizes for the steps that read pages, or 0 for none")
    parser.add_argument("--shape", type=whole_numbers,
                        help="with a mode, shapes from 0 (default: all with one query); 8 is uneven, 9 has a shared prefix, 10 to 17 are latent, "
                             "18 has a window, 19 a softcap and sinks, 20 and 21 have different numbers of queries")
    race.add_options(parser)
    options = parser.parse_args()
    ragged = len(ALL_SHAPES) - len(RAGGED)
    shapes = range(ragged, len(ALL_SHAPES)) if options.prefill else (0, 2) if options.ablation else range(ragged)
    options.serving = not (options.one_query or options.prefill or options.ablation)
    if not options.serving and options.only:
        parser.error(f"--only {options.only} is given with a mode: leave one out, or choose shapes with --shape")
    if options.serving and options.shape:
        parser.error("--shape is given without a mode: choose cells with --only, or add --one-query")
    options.shape = options.shape or shapes
    known = cells.PEERS if options.serving else (*PEERS, *PAGED)
    options.peers = list(known) if options.peers is None else [] if options.peers == "none" else options.peers.split(",")
    if unknown := [who for who in options.peers if who not in known]:
        parser.error(f"--peers has {unknown[0]}: use a comma-separated list of {','.join(known)}, or none")
    if options.serving and not cells.pick(options.only):
        parser.error(f"--only {options.only} matches no cell: their names look like {cells.CELLS[0]}")
    return options


def contestants_of(library, options, problem, uneven):
    """Returns our steps without pages, the paged steps with them, and the peers; PyTorch has none that supports lengths."""
    asked = library.slugs(CHAPTER, options.step)
    if options.ablation:
        return [ours(library, step, problem, ablation=True) for step in asked]
    if problem.is_latent():
        found = [ours(library, LATENT_STEP, problem), ours(library, LATENT_STEP, problem, 64), copy(problem)]
        return found + [paged_peer(who, problem, 64) for who in options.peers if who == "flashinfer"]
    if problem.shared:
        return [ours(library, EQUAL_WORK, problem, 64, once) for once in (False, True)]
    if problem.is_ragged():
        found = [ours(library, PROMPTS, problem, rows, chapter=MASKS) for rows in PEER_PAGES]
        found += [ours(library, step, problem, PEER_PAGES[0]) for step in (asked if options.step else (EQUAL_WORK,))]
        return found + [paged_peer(who, problem, rows) for who in options.peers if who in PREFILL for rows in PEER_PAGES]
    steps = [step for step in asked if options.step or step != LATENT_STEP]
    if problem.has_rules():
        found = [ours(library, step, problem) for step in steps if step in ("ring", "paged", EQUAL_WORK)]
        found += [ours(library, EQUAL_WORK, problem, rows) for rows in options.pages if rows]
        knows = [] if problem.sinks is not None else [who for who in options.peers if who in ("flashinfer", "flashinfer_tc")]
        return found + [paged_peer(who, problem, rows) for who in knows for rows in PEER_PAGES]
    found = [ours(library, step, problem) for step in steps]
    found += [ours(library, step, problem, rows) for step in steps if step in ("paged", EQUAL_WORK, E4M3_CACHE) for rows in options.pages if rows]
    found += [paged_peer(who, problem, rows) for who in options.peers if who in ONE_QUERY for rows in PEER_PAGES]
    return found if uneven else found + [peer(who, problem) for who in options.peers if who not in PAGED]


def cell(options, number, library):
    batch, heads, kv_heads, head_dim, keys = ALL_SHAPES[number]
    uneven, shared = ALL_SHAPES[number] is UNEVEN, keys - OWN_KEYS if ALL_SHAPES[number] is SHARED else 0
    problem = make_problem(batch, heads, kv_heads, head_dim, keys, uneven, shared, WORDS.get(number, ""))
    return problem, contestants_of(library, options, problem, uneven), problem.flops()


def run(options, library):
    if options.serving:
        cells.run(options, library)
        return
    race.run(options, library, check, {f"shape{number}": functools.partial(cell, options, number) for number in options.shape})


def main():
    global torch  # noqa: PLW0603
    options = parse()
    if options.summary:
        print(*cells.summary(results.whole_of(options.summary)["benchmarks"]), sep="\n")
        return 0
    torch = peers.torch = packages.torch = caches.torch = cells.torch = race.pytorch("decode.py")
    return 77 if torch is None else race.measure("decode.py", options, run, "ablation" if options.ablation else "flashbook_shared")


if __name__ == "__main__":
    sys.exit(main())
