#!/usr/bin/env python3
"""Numbers in Markdown pages come from result files; this puts them there, or checks that they are right.

    quote.py [--check] [--results FOLDER] [FILE...]     default: every Markdown page of the book

A number:  <!-- num forward/ch01/step4/bf16/d128/full/n4096 tflops .1f -->12.3<!-- /num -->
    Fields: tflops, ms, gbps, gbytes (moved, by the cost model; of ncu/... as counted), workspace (GB beyond inputs and outputs), kept (GB
    that a forward pass keeps for the backward pass beside Q, K, V and O), peak (kept, and the most that the backward pass takes), memory_times
    (inputs, outputs and workspace over inputs and outputs), multiplied_tflops (of masked/...: of all pairs of executed tiles), of ncu/...
    also model_gbytes, l2_gbytes (between multiprocessors and L2), l2_model_gbytes,
    raced_tflops, raced_share (of what chapter 0's products reach at the highest clock): of the newest time in turn with cuDNN;
    turn_ours, turn_fa3, turn_cudnn (TFLOP/s) and turn_better (times as fast as the better of the two) of step 5 of chapter 5 and of
    steps 5 to 8 of chapter 6, in turn with FlashAttention-3 and cuDNN in one process; error, or any counter of the result. The last word is a
    Python format. `num ratio A B .1f` is how many times as long A takes as B, `num ratio A B rmse .1f` how many times as much rmse it
    has, or of any counter. `num clocks FLOPS NAME .0f` is how many clocks of a multiprocessor so many FLOPs take at the rate that was measured,
    by 132 of them at 1.7 GHz, in three digits: what the boxes count with. `num on FOLDER ...` takes it from another card's
    folder, such as h100-80gb-hbm3: the page names that card.
A table:   <!-- table ladder --> ... <!-- /table -->      every step on a GPU at one shape, with the peers
           <!-- table host --> ... <!-- /table -->        the steps of the chapters on the CPU
           <!-- table cpu --> ... <!-- /table -->         chapter 2's last step in turn with PyTorch on the CPU
           <!-- table kernels 03 --> ... <!-- /table -->  what each kernel of a chapter takes of a multiprocessor
           <!-- table steps 05 4096 --> ... <!-- /table --> every step of a chapter at every head_dim and mask, and the peers
           <!-- table against 05 5 --> ... <!-- /table --> step 5 of chapter 5, or of 5 to 8 of chapter 6, against cuDNN and FlashAttention-3
           <!-- table peers --> ... <!-- /table -->       these steps and the peers of the same type at the ladder's shape, in one process
           <!-- table decode peers --> ... <!-- /table --> decoding: steps of chapter 8 and the peers; `decode pages`: with pages and without
           <!-- table ablation 05 --> ... <!-- /table -->  a chapter's last step with one switch turned at a time
           <!-- table means --> ... <!-- /table --> of these the values with a mean of 1, and the peers
           <!-- table steps_in_turn --> ... <!-- /table --> chapter 6's steps 5 to 8 and the peers' FP8, in one process
           <!-- table long gpu --> ... <!-- /table --> errors of long rows; `long simulator` likewise
           <!-- table gradients 128 --> ... <!-- /table --> errors of dQ, dK and dV at a head_dim, by kind of inputs
           <!-- table backward 5 --> ... <!-- /table --> gradients by that step of chapter 7 and by the peers, in one process: times and memory
           <!-- table accuracy gpu --> ... <!-- /table --> errors of attention in f16 and FP8; `accuracy simulator`: in the simulator
           <!-- table exercises 04 --> ... <!-- /table --> a chapter's exercises, with points and about how long they take
           <!-- table blackwell clocks --> ... <!-- /table --> arithmetic, no results: a tile's clocks; `cubic`: 2^x by polynomials; `fp4`: NVFP4
Examples in code are left alone. With --check nothing is written: exit code 1 if a page differs from the results, or quotes what was
never measured. A place that waits for a first measurement holds "…" and is right until there is one.
"""

import argparse
import functools
import math
import pathlib
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # the packages, for python3 docs/tools/quote.py

from bench import results
from bench.names import Name
from bench.results import SEQLENS, SHAPES, Entry, Refused, Results, Unmeasured
from docs.tools import blackwell, made, pages
from docs.tools.pages import row

WAITS = "…"  # for a first measurement
CLOCKS_A_SECOND = 132 * 1.7e9  # of all multiprocessors of an H100 or H200, at the clock that predictions take

FIELDS: dict[str, Callable[[Entry], float]] = {
    "ms": lambda entry: entry.milliseconds,
    "tflops": lambda entry: entry.values["FLOPS"] / 1e12,
    "gbps": lambda entry: entry.values["bytes_per_second"] / 1e9,
    "gbytes": lambda entry: entry.values.get("bytes", entry.values.get("bytes_per_second", 0) * entry.milliseconds / 1e3) / 1e9,
    "l2_gbytes": lambda entry: entry.values["l2_bytes"] / 1e9,
    "l2_model_gbytes": lambda entry: entry.values["l2_model_bytes"] / 1e9,
    "memory_times": lambda entry: 1 + entry.values["workspace_bytes"] / entry.values["tensor_bytes"],
    "multiplied_tflops": lambda entry: entry.values["FLOPS"] / entry.values["executed"] / 1e12,
    "model_gbytes": lambda entry: entry.values["model_bytes"] / 1e9,
    "kept": lambda entry: entry.values["kept_bytes"] / 1e9,
    "peak": lambda entry: (entry.values["kept_bytes"] + entry.values["peak_bytes"]) / 1e9,
    "workspace": lambda entry: entry.values["workspace_bytes"] / 1e9,
}

def tensor_flops(measured: Results) -> float:
    """A second, of 16-bit types, at the highest clock."""
    found = results.limits(measured)
    if "warpgroup_product" not in found:
        raise Unmeasured("machine/rate/warpgroup_product was never measured on this card: bench/release --part machine does it")
    return found["warpgroup_product"]


RACED: dict[str, Callable[[Entry, Results], float]] = {  # of the newest time that was taken in turn with cuDNN
    "raced_tflops": lambda entry, _: entry.values["FLOPS"] / 1e12,
    "raced_share": lambda entry, measured: entry.values["FLOPS"] / tensor_flops(measured),
}


def three_digits(value: float) -> str:
    """1.23, 12.3, 123."""
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def against_cudnn(name: str | Name) -> str:
    """The counter of a name that holds it against cuDNN: PyTorch's attention has no FP8."""
    return "vs_cudnn_bf16" if "/e4m3/" in str(name) else "vs_cudnn"


def raced(measured: Results, name: str | Name) -> Entry:
    """The newest entry of that name that was timed in turn with cuDNN, FP8 with its BF16. Raises Unmeasured if there is none."""
    entry = measured.raced(name, against_cudnn(name))
    if entry is None:
        raise Unmeasured(f"{name} was never timed in turn with cuDNN: bench/peers.py does it")
    return entry


IN_TURN = {"turn_ours": "ours", "turn_fa3": "fa3", "turn_cudnn": "cudnn", "turn_better": "over_better"}


def in_turn(measured: Results, name: str, field: str) -> float:
    """A number of one process with FlashAttention-3 and cuDNN: TFLOP/s, or how many times as fast ours is as the better peer."""
    cell = Name.parse(name)
    found = results.in_turn(measured, cell.who).get(cell) if cell else None
    if found is None:
        raise Refused(f"{name} was not in turn with peers of its type: forward/ch05/step5/bf16/... and forward/ch06/step5 (to step8)/e4m3/... were")
    return float(getattr(found, IN_TURN[field]))


@functools.cache
def other_card(folder: str) -> Results:
    """The results of another card than the book's."""
    if not (results.RESULTS / folder).is_dir():
        raise Refused(f"there is no folder {folder} of results: there are {', '.join(sorted(path.name for path in results.RESULTS.iterdir()))}")
    return results.load(results.RESULTS / folder)


def number(words: Sequence[str], measured: Results) -> str:
    """The text of a `num` span."""
    if len(words) > 2 and words[0] == "on":
        return number(words[2:], other_card(words[1]))
    if len(words) == 4 and words[0] == "ratio":
        value = measured.ratio(words[1], words[2])
    elif len(words) == 4 and words[0] == "clocks":
        value = float(f"{float(words[1]) * CLOCKS_A_SECOND / measured.measured(words[2]).values['FLOPS']:.3g}")
    elif len(words) == 5 and words[0] == "ratio":
        entries = [measured.measured(name) for name in words[1:3]]
        for entry in entries:
            if words[3] not in entry.values:
                raise Refused(f"{entry.name} has no {words[3]}: it has {', '.join(sorted(entry.values))}")
        value = entries[0].values[words[3]] / entries[1].values[words[3]]
    elif len(words) == 3:
        name, field = words[:2]
        if field in IN_TURN:
            value = in_turn(measured, name, field)
        elif field in RACED:
            value = RACED[field](raced(measured, name), measured)
        else:
            entry = measured.raced(name, field) or measured.measured(name)
            if field not in FIELDS and field not in entry.values:
                kind = Unmeasured if field.startswith("vs_") else Refused  # in turn with a peer is measured apart
                raise kind(f"{name} has no {field}: it has {', '.join([*FIELDS, *sorted(entry.values)])}")
            try:
                value = FIELDS[field](entry) if field in FIELDS else entry.values[field]
            except KeyError as missing:
                raise Refused(f"{name} has no {missing}, which {field} needs") from None
    else:
        raise Refused("a number is `num NAME FIELD FORMAT`, `num ratio NAME NAME FORMAT`, `num ratio NAME NAME FIELD FORMAT` or "
                      "`num clocks FLOPS NAME FORMAT`")
    try:
        return format(value, words[-1])
    except ValueError:
        raise Refused(f"{words[-1]!r} is no format: give one such as .1f") from None


def label_of(entry: Entry) -> str:
    titles = results.step_titles(entry.cell.chapter) if entry.cell.chapter and entry.cell.step else {}
    return titles.get(entry.cell.step or 0, entry.label)


def of_product(entry: Entry) -> str:
    """The part of a large matrix product's FLOPS, in turn in one process, as a table has it."""
    share = entry.values.get("of_product")
    return f"{100 * share:.{0 if share >= 0.0995 else 1}f} %" if share else "-"


def table_row(title: str, label: str, entry: Entry, beyond: str) -> str:
    if entry.skipped:
        return row(title, entry.cell.variant, "-", "-", "-", entry.skipped)
    return row(title, label, f"{three_digits(entry.milliseconds)} ms", three_digits(entry.values["FLOPS"] / 1e12), of_product(entry), beyond)


def ladder_table(measured: Results) -> str:
    """Every step on the GPU at the ladder's shape, then the peers: the newest time, or the newest in turn with a matrix product."""
    entries = {key: entry for key, entry in measured.by_step(**results.LADDER).items()
               if "bytes_per_second" in entry.values or entry.skipped}
    if not entries:
        raise Refused("no step was measured at the ladder's shape: ./flashbook bench does it")
    text = row("Chapter", "Step", "Time", "TFLOP/s", "of a product", "Memory beyond inputs and outputs") + row("---", "---", *["--:"] * 4)
    shown = []
    apart = 0.0  # how far a time in that process is from the newest, which chapters and figures quote
    for (chapter, _), newest in entries.items():
        entry = newest if newest.skipped else measured.raced(newest.cell, "of_product") or newest
        shown.append(entry)
        if not entry.skipped:
            apart = max(apart, abs(entry.milliseconds / newest.milliseconds - 1))
        beyond = entry.values.get("workspace_bytes", 0) / 1e9
        text += table_row(f"{chapter} {entry.context.get(f'ch{chapter:02}', '')}", label_of(entry), entry,
                          f"{three_digits(beyond)} GB" if beyond else "none")
    for peer, title in (("eager", "PyTorch, eager"), ("flash", "FlashAttention-2"), ("cudnn", "cuDNN")):
        name = Name("forward", peer, "bf16", **results.LADDER)
        raced_peer = measured.raced(name, "of_product") or measured.newest.get(str(name))
        if raced_peer and not raced_peer.skipped:
            shown.append(raced_peer)
            text += table_row(f"*{title}*", "in turn with ours, BF16", raced_peer, "-")
    where = ", ".join(measured.context()[key] for key in ("gpu", "clocks") if key in measured.context())
    return text + (f"\nForward pass, batch 4, heads 16, N 4096, head_dim 128, no mask; BF16 where the chapter takes it. "
                   "Of a product: the part of what a matrix product of the same type, 8192 in each direction, reaches in the same process. "
                   f"Chapters and figures quote each step's newest time, which differs by at most {100 * apart:.1f} %. "
                   f"{where}. Medians; {measured.origin(shown)}.\n")


def host_table(measured: Results) -> str:
    """The steps of the chapters on the CPU, one head, N = 4096."""
    entries = {key: entry for key, entry in measured.by_step(dtype="f32", head_dim=64, mask="full", seqlen=4096).items()
               if not entry.skipped and "bytes_per_second" not in entry.values}
    if not entries:
        raise Refused("no step was measured on the CPU: ./flashbook bench 02 does it")
    text = row("Chapter", "Step", "Time", "GFLOP/s") + row("---", "---", "--:", "--:")
    for (chapter, _), entry in entries.items():
        text += row(f"{chapter} {entry.context.get(f'ch{chapter:02}', '')}", label_of(entry), f"{three_digits(entry.milliseconds)} ms",
                    three_digits(entry.values["FLOPS"] / 1e9))
    context = next(iter(entries.values())).context
    return text + (f"\nForward pass, one head, N 4096, head_dim 64, no mask, F32. {context['cpu']}, {context['num_cpus']} cores. "
                   f"Medians; {measured.origin(entries.values())}.\n")


def cpu_table(measured: Results) -> str:
    """Chapter 2's last step and PyTorch's attention on the CPU in turn, by cores and shape: GFLOP/s."""
    found: dict[tuple[int, int, int, int], dict[str, Entry]] = {}  # cores, heads, N, head_dim
    for entry in measured.newest.values():
        sizes = re.fullmatch(r"c(\d+)h(\d+)", entry.cell.mask)
        if entry.cell.kind == "cpu" and sizes and not entry.skipped:
            key = int(sizes[1]), int(sizes[2]), entry.cell.seqlen, entry.cell.head_dim
            found.setdefault(key, {})[entry.cell.variant or entry.cell.who] = entry
    if not found:
        raise Unmeasured("chapter 2 was never in turn with PyTorch on the CPU: bench/peers.py --cpu does it")
    text = row("Cores", "heads, $N$, $d$", "step 5", "*PyTorch*", "over PyTorch", "of a product") + row("--:", *["--:"] * 5)
    ratios = []
    for (cores, heads, seqlen, head_dim), by_who in sorted(found.items()):
        ours = by_who["step5"]
        ratios.append(ours.values["vs_torch"])
        text += row(str(cores), f"{heads}, {short(seqlen)}, {head_dim}", *(f"{by_who[who].values['FLOPS'] / 1e9:.0f}" for who in ("step5", "torch")),
                    f"{ratios[-1]:.2f}", of_product(ours))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    context = max((by_who["step5"] for by_who in found.values()), key=lambda entry: entry.when).context
    return text + (f"\nGFLOP/s, F32, no mask, in turn on the same cores; of a product: of a matrix product of 2048 in each direction. Over PyTorch: "
                   f"geometric mean {mean:.2f}, least {min(ratios):.2f}. {context['cpu']}, PyTorch {context['pytorch']}. Medians of five rounds; "
                   f"{context['date'][:10]}, commit {context['commit']}.\n")


def kernels_table(measured: Results, chapter: str) -> str:
    """Registers, shared memory and occupancy of every kernel of a chapter, by step and head_dim."""
    text = row("Step", "$d$", "Kernel", "Threads", "Registers", "Shared, KB", "Blocks", "Occupancy", "Spilled")
    text += row("--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:")
    found: dict[tuple[int, int], Entry] = {}  # (step, head_dim) -> the newest entry without a mask that says it, of one run that of the longest N
    for entry in measured.history:
        cell = entry.cell
        if (cell.kind == "forward" and cell.chapter == int(chapter) and cell.step and cell.mask == "full"
                and cell.dtype in ("bf16", "e4m3") and "kernel1_registers" in entry.values):
            key = (cell.step, cell.head_dim)
            if key not in found or (found[key].when, found[key].cell.seqlen) <= (entry.when, cell.seqlen):
                found[key] = entry
    if not found:
        raise Unmeasured(f"no kernel of chapter {chapter} was measured: ./flashbook bench {chapter} does it on a GPU")
    for (step, head_dim), entry in sorted(found.items()):
        kernel = 1
        while f"kernel{kernel}_registers" in entry.values:
            of = {name: entry.values[f"kernel{kernel}_{name}"]
                  for name in ("threads", "registers", "shared_bytes", "blocks", "occupancy", "local_bytes")}
            text += row(str(step), str(head_dim), str(kernel), f"{of['threads']:.0f}", f"{of['registers']:.0f}", f"{of['shared_bytes'] / 1024:.1f}",
                        f"{of['blocks']:.0f}", f"{of['occupancy']:.0%}", f"{of['local_bytes']:.0f} B")
            kernel += 1
    return text + f"\nShared memory of a block, blocks on a multiprocessor; as launched without a mask. {measured.origin(found.values())}.\n"


def short(seqlen: int) -> str:
    return f"{seqlen // 1024}k" if seqlen >= 1024 else str(seqlen)


def titled(head_dim: int, mask: str) -> str:
    return f"{head_dim}, {'none' if mask == 'full' else mask}"


def steps_table(measured: Results, chapter: str, seqlen: str) -> str:
    """TFLOP/s of every step of a chapter in turn with cuDNN, by head_dim and mask at one length, and of the peers."""
    steps = {}  # who -> its idea in a few words
    for entry in measured.newest.values():
        if entry.cell.kind == "forward" and entry.cell.chapter == int(chapter):
            steps[entry.cell.who] = f"{entry.cell.step}: {label_of(entry)}"
    if not steps:
        raise Unmeasured(f"no step of chapter {chapter} was measured: ./flashbook bench {chapter} does it on a GPU")
    shown = []

    def tflops(who: str, head_dim: int, mask: str) -> str:
        name = Name("forward", who, "bf16", head_dim, mask, int(seqlen))
        entry = raced(measured, name) if who in steps else measured.newest.get(str(name))
        if entry is None or entry.skipped:
            return "-"
        shown.append(entry)
        return f"{entry.values['FLOPS'] / 1e12:.0f}"

    text = row("$d$, mask", *(titled(*shape) for shape in SHAPES)) + row("---", *["--:"] * len(SHAPES))
    peers = ("flash", "*FlashAttention-2*"), ("cudnn", "*cuDNN*"), ("fa3", "*FlashAttention-3*")
    for who, title in (*sorted(steps.items()), *peers):
        text += row(title, *(tflops(who, *shape) for shape in SHAPES))
    return text + f"\nTFLOP/s in turn with cuDNN, forward pass, N = {short(int(seqlen))}, BF16. Medians; {measured.origin(shown)}.\n"


def against_table(measured: Results, chapter: str, step: str) -> str:
    """How many times as fast a step is as cuDNN and FlashAttention-3 in the same type, in turn in one process."""
    cells = results.in_turn(measured, f"ch{chapter}/step{step}")
    peers: dict[str, Callable[[results.InTurn], float]] = {
        "cuDNN": lambda cell: cell.ours / cell.cudnn, "FlashAttention-3": lambda cell: cell.ours / cell.fa3,
        "the better of the two": lambda cell: cell.over_better}
    found = {peer: {(name.head_dim, name.mask, name.seqlen): ratio(cell) for name, cell in cells.items()} for peer, ratio in peers.items()}
    text = row("$d$, mask", "against", *map(short, SEQLENS)) + row("---", "---", *["--:"] * len(SEQLENS))
    for shape in SHAPES:
        for peer in ("cuDNN", "FlashAttention-3"):
            text += row(titled(*shape), peer, *(f"{found[peer][shape[0], shape[1], seqlen]:.2f}" for seqlen in SEQLENS))
    said = []
    for peer, ratios in found.items():
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        head_dim, mask, seqlen = min(ratios, key=lambda cell: ratios[cell])
        said.append(f"{mean:.3f} times {peer}, at least {min(ratios.values()):.3f} ({titled(head_dim, mask)}, N = {short(seqlen)})")
    dtype = {"bf16": "BF16", "e4m3": "FP8"}[next(iter(cells)).dtype]
    origin = measured.origin(measured.beside_peers[name] for name in cells)
    return text + f"\n{dtype}, in turn in one process; medians, on an H200, {origin}. Geometric means of {len(cells)} cells: {'; '.join(said)}.\n"


def peers_table(measured: Results) -> str:
    """The last steps of chapters 5 and 6 and the peers in the same type at the ladder's shape, in turn in one process."""
    text = row("Type", "ours", "TFLOP/s", "*FlashAttention-3*", "*cuDNN*", "ours over the better") + row("---", "---", *["--:"] * 4)
    shown: dict[str, list[Entry]] = {"BF16": [], "FP8": []}
    for name, cell in results.in_turn(measured, "ch05/step5", "ch06/step7", "ch06/step8").items():
        if (name.head_dim, name.mask, name.seqlen) == tuple(results.LADDER.values()):
            dtype = {"bf16": "BF16", "e4m3": "FP8"}[name.dtype]
            shown[dtype].append(measured.beside_peers[name])
            text += row(dtype, f"chapter {name.chapter}, step {name.step}", *(f"{value:.0f}" for value in (cell.ours, cell.fa3, cell.cudnn)),
                        f"{cell.over_better:.2f}")
    origins = "; ".join(f"{dtype} {measured.origin(entries)}" for dtype, entries in shown.items())
    return text + f"\nThe same shape; H200. In turn, one process for each type: {origins}. Step 8 takes exponentials by a line.\n"


EARLIER = "†"


def beside_ours(text: str, entry: Entry, ours: Entry | None) -> str:
    """A number of an entry, marked if it is not of the process in which ours ran."""
    return text + EARLIER * (ours is not None and entry.file != ours.file)


def marked_earlier(text: str) -> str:
    """What the mark means, if a table has it."""
    return f" {EARLIER} In another process, earlier." if EARLIER in text else ""


DECODERS = {"peers": {"ch08/step4": "step 4", "ch08/step6": "step 6", "cudnn": "*cuDNN*", "flash": "*FlashAttention-2*"},
            "pages": {"ch08/step6": "no pages", "ch08/step6_p64": "pages of 64", "ch08/step6_p16": "pages of 16"},
            **{f"paged{rows}": {f"ch08/step6_p{rows}": "step 6", f"cudnn_paged_p{rows}": "*cuDNN*",
                                f"flashinfer_tc_p{rows}": "*FlashInfer, tensor cores*", f"flashinfer_p{rows}": "*FlashInfer, plain*"}
               for rows in (64, 16)}}


LATENT = 576  # elements of a latent key


def decode_table(measured: Results, beside: str) -> str:
    """Bytes of keys and values a second, one query a sequence, in turn in one process; beside peers also how many times as fast step 6 is as
    cuDNN, and with pages as the fastest of them."""
    if beside not in DECODERS:
        raise Refused(f"decode has no table of {beside}: there are {', '.join(DECODERS)}")
    decoders = DECODERS[beside]
    ours = next(iter(decoders)) if beside.startswith("paged") else "ch08/step6"
    found: dict[tuple[int, int, str], dict[str, Entry]] = {}
    for entry in measured.newest.values():
        cell = entry.cell
        is_row = cell.kind == "decode" and cell.head_dim != LATENT and re.fullmatch(r"b\d+h\d+k\d+(uneven)?", cell.mask)
        if is_row and not entry.skipped:
            found.setdefault((entry.cell.seqlen, entry.cell.head_dim, entry.cell.mask), {})[entry.cell.who] = entry
    if not any(ours in by_who for by_who in found.values()):
        raise Unmeasured("decoding was never measured: bench/decode.py does it")
    against = {"peers": ["vs_cudnn"], "pages": []}.get(beside, [f"vs_{who}" for who in decoders if who != ours])
    last = [] if not against else ["step 6 over cuDNN"] if beside == "peers" else ["step 6 over the fastest"]
    text = row("sequences × keys", "heads", "$d$", *decoders.values(), *last) + row(*["--:"] * (3 + len(decoders) + len(last)))
    ratios = []
    for (seqlen, head_dim, word), by_who in sorted(found.items()):
        sizes = re.fullmatch(r"b(\d+)h(\d+)k(\d+)(uneven)?", word)
        assert sizes
        values = by_who[ours].values if ours in by_who else {}
        ratio = min((values[name] for name in against if name in values), default=None)
        ratios += [ratio] if ratio else []
        text += row(f"{sizes[1]} × {short(seqlen)}" + (" and less" if sizes[4] else ""), f"{sizes[2]}/{sizes[3]}", str(head_dim),
                    *(beside_ours(f"{by_who[who].values['bytes_per_second'] / 1e12:.2f}", by_who[who], by_who.get(ours)) if who in by_who else "-"
                      for who in decoders),
                    *([f"{ratio:.2f}" if ratio else "-"] if last else []))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    summary = f"{last[0][0].upper()}{last[0][1:]}: geometric mean {mean:.2f}, least {min(ratios, default=math.nan):.2f}. " if last else "Step 6. "
    pages = f"Pages of {beside.removeprefix('paged')} in random order. " if beside.startswith("paged") else ""
    return text + (f"\nTB/s of the keys and values that must be read, BF16, one query a sequence, in turn in one process.{marked_earlier(text)} "
                   f"{pages}{summary}"
                   f"Medians; {measured.origin(entry for by_who in found.values() for who, entry in by_who.items() if who in decoders)}.\n")


def latent_table(measured: Results) -> str:
    """Latent attention, one query a sequence: what it computes and reads a second, beside a copy in the same process."""
    found: dict[tuple[int, int, int], dict[str, Entry]] = {}
    for entry in measured.newest.values():
        if entry.cell.kind == "decode" and entry.cell.head_dim == LATENT and not entry.skipped:
            sizes = re.fullmatch(r"b(\d+)h(\d+)k1", entry.cell.mask)
            if not sizes:
                raise Refused(f"{entry.cell.mask} is no shape of latent attention: it reads b16h128k1")
            who = {"copy": "copy", "flashinfer_p64": "flashinfer"}.get(entry.cell.who, "paged" if entry.cell.who.endswith("_p64") else "ours")
            found.setdefault((int(sizes[2]), entry.cell.seqlen, int(sizes[1])), {})[who] = entry
    if not found:
        raise Unmeasured("latent attention was never measured: bench/decode.py --latent does it")
    text = row("heads", "sequences", "keys", "TFLOP/s", "TB/s", "of a copy", "pages of 64", "*FlashInfer*, pages of 64") + row(*["--:"] * 8)
    for (heads, keys, batch), by_who in sorted(found.items()):
        ours, copied = (by_who[who].values["bytes_per_second"] for who in ("ours", "copy"))
        text += row(str(heads), str(batch), short(keys), f"{by_who['ours'].values['FLOPS'] / 1e12:.0f}", f"{ours / 1e12:.2f}",
                    f"{ours / copied:.0%}".replace("%", " %"),
                    *(beside_ours(f"{by_who[who].values['FLOPS'] / 1e12:.0f}", by_who[who], by_who["ours"]) if who in by_who else "-"
                      for who in ("paged", "flashinfer")))
    return text + (f"\nBF16, one query a sequence, in turn in one process.{marked_earlier(text)} FLOPs as FlashMLA counts them, "
                   "TB/s of the latents, each read once. "
                   f"With pages: TFLOP/s. Medians; {measured.origin(entry for by_who in found.values() for entry in by_who.values())}.\n")


def ablation_table(measured: Results, chapter: str) -> str:
    """How many times as fast the chapter's last step is with one switch turned, in turn with the step as it is."""
    names: dict[str, str] = {}  # switch -> what it does, in the order of the results, the newest first
    lengths, shown = set(), []
    for entry in sorted(measured.newest.values(), key=lambda entry: str(entry.context["date"]), reverse=True):
        if entry.cell.kind == "ablation" and entry.cell.chapter == int(chapter) and "vs_as_it_is" in entry.values:
            names.setdefault(entry.cell.who, entry.cell.variant.replace("_", " "))
            lengths.add(entry.cell.seqlen)
            shown.append(entry)
    if not names:
        raise Unmeasured(f"there is no ablation of chapter {chapter}: bench/peers.py --ablation does it on a GPU")
    text = row("Turned", "$N$", *(titled(*shape) for shape in SHAPES)) + row("---", "--:", *["--:"] * len(SHAPES))
    for who, title in names.items():
        for seqlen in sorted(lengths):
            entries = [measured.newest.get(str(Name("ablation", who, "bf16", head_dim, mask, seqlen))) for head_dim, mask in SHAPES]
            text += row(title, short(seqlen), *(f"{entry.values['vs_as_it_is']:.3f}" if entry and not entry.skipped else "-" for entry in entries))
    return text + f"\nTimes as fast as step 5 as it is, in turn in one process; below 1 the switch pays as it stands. {measured.origin(shown)}.\n"


def accuracy_table(measured: Results, machine: str) -> str:
    """RMSE, and the relative RMS error, of every variant of the study of accuracy, by kind of inputs."""
    found = results.accuracy(measured, machine)
    kinds = list(dict.fromkeys(kind for by_kind in found.values() for kind in by_kind))
    text = row("Attention", "Type", *kinds) + row("---", "---", *["--:"] * len(kinds))
    for by_kind in found.values():
        entry = next(iter(by_kind.values()))
        errors = (by_kind[kind].values if kind in by_kind else None for kind in kinds)
        text += row(entry.label, entry.cell.dtype,
                    *(f"{of['rmse']:.2e} ({three_digits(100 * of['relative_rms'])} %)" if of else "-" for of in errors))
    context, cell, values = entry.context, entry.cell, entry.values
    return text + (f"\nRMSE against FP64, and the same over the RMS of O. Batch {values['batch']:.0f}, heads {values['heads']:.0f}, N {cell.seqlen}, "
                   f"head_dim {cell.head_dim}, no mask, {values['rows']:.0f} rows. {context.get('gpu', 'The simulator')}; "
                   f"{context['date'][:10]}, commit {context['commit']}.\n")


LONG_STEPS = ("plain", "ch06/step5", "ch06/promoted", "ch06/step5_centred")
LONG_INPUTS = {"quarter": "mean 1/4", "one": "mean 1", "one_sign": "one sign", "all_equal": "all equal"}


def long_table(measured: Results, machine: str) -> str:
    """The relative RMS error of O, and what is left of O, by kind of values, attention and number of keys."""
    found = [entry for entry in results.study(measured, machine, "long") if entry.cell.who in LONG_STEPS]
    lengths = sorted({entry.cell.seqlen for entry in found})
    text = row("Values", "Attention", *map(short, lengths)) + row("---", "---", *["--:"] * len(lengths))
    newest = {entry.name: entry for entry in found}
    for kind, who, dtype in dict.fromkeys((entry.cell.kind, entry.cell.who, entry.cell.dtype) for entry in found):
        entries = [newest.get(str(Name(kind, who, dtype, found[0].cell.head_dim, "full", seqlen))) for seqlen in lengths]
        label = next(entry.label for entry in entries if entry)
        text += row(LONG_INPUTS[kind.partition("/")[2]], label,
                    *(f"{three_digits(100 * entry.values['relative_rms'])} % ({entry.values['left']:.3f})" if entry else "-" for entry in entries))
    last = found[-1]
    return text + (f"\nRMS error of O over its RMS, e4m3; in brackets, how much of O is left along its true direction. Heads {last.values['heads']:.0f}, "
                   f"head_dim {last.cell.head_dim}, no mask. {last.context.get('gpu', 'The simulator')}; "
                   f"{last.context['date'][:10]}, commit {last.context['commit']}.\n")


GRADIENT_INPUTS = {"normal": "N(0, 1)", "outliers": "outliers", "one_hot": "one key each", "large_scores": "scores up to 1e4"}


def gradients_table(measured: Results, head_dim: str) -> str:
    """The RMSE of dQ, dK and dV by kind of inputs, of the peers and of chapter 7's step 5; the gradients' own size first."""
    found = [entry for entry in results.study(measured, "gpu", "gradients")
             if entry.cell.head_dim == int(head_dim) and entry.cell.step in (None, 5) and entry.cell.who != "cudnn_frontend"]
    text = row("Inputs", "Gradient by", "dQ", "dK", "dV") + row("---", "---", "--:", "--:", "--:")
    for entry in found:
        text += row(GRADIENT_INPUTS[entry.cell.inputs], entry.label, *(f"{entry.values[tensor]:.2e}" for tensor in ("dq", "dk", "dv")))
    context = found[0].context
    return text + (f"\nRMSE of two heads against FP64; of the first row of each kind the RMS of the gradient itself. BF16, N {found[0].cell.seqlen}, "
                   f"head_dim {head_dim}, no mask. {context['gpu']}; {context['date'][:10]}, commit {context['commit']}.\n")


def beside(measured: Results, entry: Entry, who: str) -> Entry:
    """A peer of the same cell in the same file."""
    for other in measured.history:
        if other.file == entry.file and other.cell == replace(entry.cell, who=who) and not other.skipped:
            return other
    raise Refused(f"{entry.name} was in turn with no {who}: {pathlib.Path(entry.file).name} has none of that shape")


def backward_table(measured: Results, step: str) -> str:
    """TFLOP/s of a step and of the peers, timed in turn."""
    of_step = [entry for entry in measured.history
               if (entry.cell.kind, entry.cell.who) == ("backward", f"ch07/step{step}") and "vs_eager" in entry.values]
    if not of_step:
        raise Unmeasured("gradients were never timed in turn with PyTorch written out: bench/backward.py does it")
    of_step = [entry for entry in of_step if entry.file == of_step[-1].file]
    rates = row("d, mask", "N", f"Step {step}", "cuDNN", "FA2", "Eager") + row("---", *["--:"] * 5)
    for entry in of_step:
        peers = {who: beside(measured, entry, who) for who in ("cudnn", "flash", "eager")}
        rates += row(f"{entry.cell.head_dim}, {entry.cell.mask}", short(entry.cell.seqlen),
                     *(three_digits(of.values["FLOPS"] / 1e12) for of in (entry, *peers.values())))
    context = of_step[0].context
    return rates + (f"\nTFLOP/s of the backward pass, FLOPs = 2.5 times the forward pass's; BF16, 16384 tokens, heads x head_dim = 2048. "
                    f"FA2: FlashAttention-2 as PyTorch calls it; eager: PyTorch, each operation of attention a call of its own. One process, "
                    f"{context['gpu']}, {context['date'][:10]}, commit {context['commit']}.\n")


def means_table(measured: Results) -> str:
    """The error of O by the number of keys, values N(+-1, 1): steps with their means and without, and the peers with."""
    lengths = (1024, 4096, 16384, 65536)
    text = row("Values N(±1, 1)", *map(short, lengths)) + row("---", *["--:"] * len(lengths))
    shown = []
    for who in ("step5", "promoted", "step5_centred", "promoted_centred"):
        entries = [measured.measured(Name("long/one", f"ch06/{who}", "e4m3", 128, "full", seqlen)) for seqlen in lengths]
        shown += entries
        text += row(entries[0].label, *(f"{three_digits(100 * entry.values['relative_rms'])} %" for entry in entries))
    peers = {int(line["seqlen"]): line for line in results.by_hand("fp8_means") if line["causal"] == "0" and line["mean"] == "1"}
    for peer, title in (("fa3", "*FlashAttention-3*"), ("cudnn", "*cuDNN*")):
        text += row(title, *(f"{100 * float(peers[seqlen][f'{peer}_error']):.1f} %" if seqlen in peers else "-" for seqlen in lengths))
    return text + f"\nRMS error of O over its RMS, head_dim 128, no mask; the peers on 2026-11-21. {measured.origin(shown)}.\n"


def in_turn_steps_table(measured: Results) -> str:
    """Steps 5 to 8 of chapter 6 and the peers' FP8 in one process, and how they stand to one another."""
    columns = {**{f"step{step}": f"step {step}" for step in (5, 6, 7, 8)}, "step7_means": "step 7, means"}
    cells: dict[tuple[int, str, int], dict[str, results.InTurn]] = {}
    for name, cell in results.in_turn(measured, *(f"ch06/{column}" for column in columns)).items():
        cells.setdefault((name.head_dim, name.mask, name.seqlen), {})[name.variant] = cell
    text = row("$d$, mask", "TFLOP/s of", *map(short, SEQLENS)) + row("---", "---", *["--:"] * len(SEQLENS))
    for shape in SHAPES:
        of_shape = [cells[shape[0], shape[1], seqlen] for seqlen in SEQLENS]
        for column, title in list(columns.items())[:-1]:
            text += row(titled(*shape), title, *(f"{cell[column].ours:.0f}" for cell in of_shape))
        text += row(titled(*shape), "*cuDNN*", *(f"{cell['step7'].cudnn:.0f}" for cell in of_shape))
        text += row(titled(*shape), "*FlashAttention-3*", *(f"{cell['step7'].fa3:.0f}" for cell in of_shape))

    def mean(ratios: list[float]) -> str:
        return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f} (least {min(ratios):.3f})"

    def over(of: str, to: str) -> str:
        return mean([cell[of].ours / cell[to].ours for cell in cells.values()])

    def price(seqlen: int) -> str:
        dearest = max(cell["step7"].ours / cell["step7_means"].ours for (_, _, n), cell in cells.items() if n == seqlen)
        return f"{100 * (dearest - 1):.1f} % at {short(seqlen)}"

    better = ", ".join(f"step {step} {mean([cell[f'step{step}'].over_better for cell in cells.values()])}" for step in (5, 6, 7, 8))
    origin = measured.origin(entry for name, entry in measured.beside_peers.items() if name.dtype == "e4m3")
    return text + (f"\nAll in turn in one process on an H200, medians; {origin}. \"Means\": given back. Geometric means over "
                   f"{len(cells)} cells: step 6 is {over('step6', 'step5')} times step 5, step 7 {over('step7', 'step6')} times step 6, "
                   f"step 8 {over('step8', 'step7')} times step 7; step 7 with means given back {over('step7_means', 'step7')} times step 7. "
                   f"So means take at most {', '.join(map(price, SEQLENS))} more time. "
                   f"Over the better of cuDNN and FlashAttention-3: {better}.\n")


def exercises_table(_: Results, chapter: str) -> str:
    return made.exercises_of(results.ROOT.glob(f"chapters/{chapter}_*/exercises/exercises.json"), lambda _: "")


def blackwell_table(_: Results, what: str) -> str:
    """A table of blackwell.py."""
    made = {"clocks": blackwell.clocks_table, "cubic": blackwell.cubic_table, "fp4": blackwell.fp4_table}
    if what not in made:
        raise Refused(f"there is no table blackwell {what}: there are {', '.join(made)}")
    return made[what]()


TABLES: dict[str, Callable[..., str]] = {
    "ladder": ladder_table, "host": host_table, "kernels": kernels_table, "steps": steps_table,
    "against": against_table, "peers": peers_table, "decode": decode_table, "latent": latent_table, "ablation": ablation_table,
    "accuracy": accuracy_table,
    "long": long_table, "means": means_table,
    "gradients": gradients_table, "backward": backward_table, "steps_in_turn": in_turn_steps_table, "cpu": cpu_table, "exercises": exercises_table,
    "blackwell": blackwell_table}


def wrapped(line: str) -> str:
    """A row of a table as it is, a note below it at the width of a page's source."""
    return line if line.startswith("|") else textwrap.fill(line, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def table(words: Sequence[str], measured: Results) -> str:
    if words[0] not in TABLES:
        raise Refused(f"there is no table {words[0]}: there are {', '.join(TABLES)}")
    make = TABLES[words[0]]
    if make.__code__.co_argcount != len(words):
        raise Refused(f"the table {words[0]} takes other words: quote.py --help shows them")
    try:
        return "".join(map(wrapped, make(measured, *words[1:]).splitlines(keepends=True)))
    except (KeyError, IndexError, StopIteration) as missing:
        raise Unmeasured(f"the table {' '.join(words)} needs a result that was never measured ({missing}): bench/release takes all") from None


def makers(measured: Results) -> dict[str, pages.Maker]:
    """What gives the marked texts of a page, by their kinds."""
    def maker(make: Callable[[Sequence[str], Results], str]) -> pages.Maker:
        def text_of(place: pages.Marked) -> str:
            try:
                return make(place.words, measured)
            except Refused as reason:
                if isinstance(reason, Unmeasured) and place.text.strip() == WAITS:
                    return place.text
                raise pages.Refused(str(reason)) from None
        return text_of

    def plain_number(place: pages.Marked) -> str:
        if "<" in place.text:
            raise pages.Refused("a num that is not closed, or holds more than its number")
        return maker(number)(place)

    return {"num": plain_number, "table": maker(table)}


def quoted(text: str, measured: Results) -> tuple[str, list[pages.Fault]]:
    """The page as it should be, and what is wrong with it: [(line, message)]."""
    page, stale, refused = pages.filled(text, makers(measured))
    return page, sorted(stale + refused)


def book_pages() -> list[pathlib.Path]:
    """Every Markdown page of the book."""
    def is_built(path: pathlib.Path) -> bool:
        return any(part.startswith(("build", ".")) for part in path.relative_to(results.ROOT).parts)

    return [path for path in sorted(results.ROOT.rglob("*.md")) if not is_built(path)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is wrong")
    parser.add_argument("--results", type=pathlib.Path, default=results.RESULTS / results.BOOK_GPU, metavar="FOLDER")
    options = parser.parse_args()
    try:
        measured = results.load(options.results)
        right = [pages.update(page, makers(measured), options.check) for page in options.files or book_pages()]
    except Refused as reason:
        print(f"quote.py: {reason}", file=sys.stderr)
        return 2
    if options.check and not all(right):
        print("python3 docs/tools/quote.py brings the pages up to date", file=sys.stderr)
    return int(not all(right))


if __name__ == "__main__":
    sys.exit(main())
