#!/usr/bin/env python3
"""Reads the result files of bench/results, and files new ones.

    results.py add FILE...     checks a result file and files it as bench/results/<gpu>/<date>-<commit>.json
    results.py list [FOLDER]   prints the newest measurement of every name
    results.py beside FILE...  compares a file's times with the book's, cell by cell, and the two machines' limits

Programs write Google Benchmark's JSON. bench/release files it condensed: NAME.tsv has a line per result with the counters that are used (KEPT),
and context.json in the same folder has the calls that measured them. A folder holds the results of one GPU. The newest measurement of a name
counts. Simulated times, files of several GPUs, wrong results and unknown commits are rejected. The simulator's accuracy results go to
bench/results/simulator.
"""

import dataclasses
import datetime
import functools
import itertools
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # so that python3 bench/results.py finds the packages

from bench.names import DTYPES, Name

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
STUDIES = ("accuracy/", "long/")  # results that the simulator may produce
TIMED = ("forward", "backward", "decode", "called", "alone", "masked", "cpu", "blocks", "ablation", "timeline", "python", "training",
         "many", "triton")  # other kinds count events or report errors
BOOK_GPU = "h200"  # the machine that pages quote, by the name of its folder; releases of other machines have their own folders

COLUMNS = ("name", "ms", "spread", "call", "label", "counters")  # of a table
STAMP = "stamp"  # replaces a time: this line belongs to the timeline above it
CONTEXT = "context.json"
NO_MATTER = ("cpu_scaling_enabled", "library_build_type", "mhz_per_cpu")  # fields that Google Benchmark writes about the host
KEPT = re.compile(r"""FLOPS|bytes_per_second|(tensor|workspace|kept|peak|cache)_bytes|vs_\w+|of_product|share|chosen|executed
    |clocks|per_clock|kernel\d_\w+|(l2_)?(model_)?bytes|(l2_)?over_model|slowdown
    |rmse|relative_rms|d[qkv]|left|quantise_ms|rows|batch|heads
    |loss\w*|last_loss|(most|mean)_apart_\w+|parameters|steps|text_bytes|train_seconds
    |tokens_per_second|peak_gbytes|(host|c)_us\w*""", re.VERBOSE)

LADDER: dict[str, Any] = {"head_dim": 128, "mask": "full", "seqlen": 4096}  # the shape of the README's table and picture: batch 4, heads 16
SHAPES = [(head_dim, mask) for head_dim in (64, 128, 256) for mask in ("full", "causal")]  # the papers'
SEQLENS = (512, 1024, 2048, 4096, 8192, 16384)


class Refused(Exception):
    """A file, a folder or a name that cannot be used; the message says why and what to do."""


class Unmeasured(Refused):
    """A result that has not been measured yet."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A measured or skipped cell."""

    cell: Name
    context: dict[str, Any]  # that of its file
    when: datetime.datetime
    milliseconds: float  # median; NaN if skipped
    values: dict[str, float]  # the counters: FLOPS, bytes_per_second, workspace_bytes, error, ...
    label: str  # the step's name
    stamps: list[dict[str, int]]  # for timeline/...: {warpgroup, tile, moment: cycles, ...} for each pass of a loop
    skipped: str  # why it was skipped, or ""
    file: str = ""  # the file it is from, or in which it was first filed

    @functools.cached_property
    def name(self) -> str:
        return str(self.cell)

    def mean_span(self, moment: str) -> float:
        """Returns the mean time between `moment` and the one before it, or of a whole "tile", over consumers and the middle half of a timeline."""
        tiles = 1 + max(one["tile"] for one in self.stamps)
        passes = [{"from": one["end"], **after} for one in self.stamps for after in self.stamps
                  if one["warpgroup"] == after["warpgroup"] > 0 and one["tile"] == after["tile"] + 1]
        spans = [one["end"] - one["from"] if moment == "tile" else one[moment] - max(at for at in one.values() if one["from"] <= at < one[moment])
                 for one in passes if tiles // 4 <= one["tile"] < tiles - tiles // 4]
        return statistics.fmean(spans)


def write(path: pathlib.Path, whole: dict[str, Any]) -> None:
    """Writes a result file atomically."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)


def commit() -> str:
    """Returns the commit being measured: FLASHBOOK_COMMIT, or git's, or "unknown"."""
    described = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return os.environ.get("FLASHBOOK_COMMIT") or described.stdout.strip() or "unknown"


def folder_of(context: Mapping[str, Any]) -> str:
    """Returns the name of a machine's folder: h200 for an NVIDIA H200."""
    if context.get("machine") == "simulator":
        return "simulator"
    machine = context.get("gpu") or context.get("cpu") or ""
    words = re.sub(r"(?i)nvidia|geforce|tesla|\(.*?\)", "", machine).lower().split()
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words)).strip("-")


def whole_of(path: str | pathlib.Path) -> Any:
    """Returns a result file's content in Google Benchmark's form; tables are converted back."""
    path = pathlib.Path(path)
    if path.suffix != ".tsv":
        return json.loads(path.read_text(encoding="utf-8"))
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    if tuple(head.split("\t")) != COLUMNS:
        raise ValueError(f"its columns are not {', '.join(COLUMNS)}")
    runs: list[dict[str, Any]] = []
    for line in lines:
        name, time, spread, call, label, counters = line.split("\t")
        values = dict(counter.split("=") for counter in counters.split())
        if time == STAMP:
            runs[-1].setdefault("stamps", []).append(counters.replace("=", " "))
            continue
        run = {"name": name, "run_type": "iteration", "real_time": 0.0, "time_unit": "ms", "call": int(call), "label": label}
        if time == "skipped":
            runs.append(run | {"label": "skipped", "error_occurred": True, "error_message": label})
        else:
            counted = values | ({"spread": spread} if spread else {})
            runs.append(run | {"real_time": float(time), **{key: json.loads(value) for key, value in counted.items()}})
    return {"context": contexts(path.parent)[path.stem], "benchmarks": runs}


def contexts(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Returns the context of each table in a folder, by the table's name."""
    file = folder / CONTEXT
    whole = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"common": {}, "tables": {}}
    return {name: context | {"calls": [whole["common"] | call for call in context["calls"]]} for name, context in whole["tables"].items()}


def number(value: float) -> str:
    """Returns the number with seven digits; whole numbers unchanged."""
    return str(int(value)) if abs(value) < 1e12 and value == int(value) else f"{value:.7g}"


def is_kept(key: str, cell: Name | None) -> bool:
    """Returns whether a table keeps a counter. Kernels' resources are kept for one length only, since masks and lengths do not change
    them."""
    if key.startswith("kernel") and cell and cell.kind == "forward":
        return (cell.mask, cell.seqlen) == (LADDER["mask"], LADDER["seqlen"])
    return bool(KEPT.fullmatch(key))


def one_line(text: object) -> str:
    return " ".join(str(text).split())


def lines_of(run: dict[str, Any]) -> Iterable[str]:
    """Yields a result as lines of a table: one, plus one per pass of a timeline."""
    name, call = run["name"], str(run.get("call", 0))
    if run.get("error_occurred"):
        reason = one_line(run.get("error_message", "no reason given")).partition(". ")[0]
        yield "\t".join((name, "skipped", "", call, reason, ""))
        return
    time = run["real_time"] * {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}[run["time_unit"]]
    counters = [f"{key}={number(value)}" for key, value in run.items()
                if isinstance(value, (int, float)) and is_kept(key, Name.parse(name))]
    spread = f"{run['spread']:.2g}" if "spread" in run else ""
    yield "\t".join((name, number(time), spread, call, one_line(run.get("label", "")), " ".join(counters)))
    for text in run.get("stamps", []):
        stamp = text.split()
        yield "\t".join((name, STAMP, "", call, "", " ".join(f"{key}={value}" for key, value in zip(stamp[::2], stamp[1::2], strict=True))))


def samples(runs: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Returns the numbers of rounds and launches behind a call's results: 3, or 3-9 if results differ."""
    seen: dict[str, list[int]] = {}
    for run in runs:
        for key in ("rounds", "launches", "runs"):
            if key in run:
                seen.setdefault(key, []).append(int(run[key]))
    return {key: str(min(of)) if min(of) == max(of) else f"{min(of)}-{max(of)}" for key, of in seen.items()}


def condense(whole: dict[str, Any], path: pathlib.Path) -> None:
    """Files results in Google Benchmark's form as a table; the calls go to context.json in the same folder."""
    runs = [run for run in whole["benchmarks"] if run.get("run_type") == "iteration"]
    calls = [{key: value for key, value in call.items() if key not in ("calls", "absent", *NO_MATTER)}
             | samples(run for run in runs if run.get("call", 0) == place)
             for place, call in enumerate(whole["context"].get("calls", [whole["context"]]))]
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = contexts(path.parent)
    absent = whole["context"].get("absent")
    tables[path.stem] = ({"absent": absent} if absent else {}) | {"calls": calls}
    every = sorted((call for table in tables.values() for call in table["calls"]), key=lambda call: str(call["date"]))
    # Keep only the newest title of a chapter.
    common = {key: value for call in every for key, value in call.items()
              if re.fullmatch(r"ch\d\d", key) or all(other.get(key) == value for other in every)}
    for table in tables.values():
        table["calls"] = [{key: value for key, value in call.items() if key not in common} for call in table["calls"]]
    write(path.parent / CONTEXT, {"common": dict(sorted(common.items())), "tables": dict(sorted(tables.items()))})
    text = "\n".join(["\t".join(COLUMNS), *(line for run in runs for line in lines_of(run))]) + "\n"
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def files_of(folder: str | pathlib.Path) -> list[pathlib.Path]:
    """Returns the result files of a folder."""
    return sorted(path for path in pathlib.Path(folder).glob("*") if path.suffix in (".json", ".tsv") and path.name != CONTEXT)


def read(path: str | pathlib.Path) -> list[Entry]:
    """Returns the entries of one result file."""
    try:
        whole = whole_of(path)
        context, runs = whole["context"], whole["benchmarks"]
        if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
            raise ValueError("its benchmarks are not a list of results")
        calls = context.get("calls", [context])  # a file of several calls has a context per call
        if not isinstance(calls, list) or not calls or not all(isinstance(call, dict) for call in calls):
            raise ValueError("its calls are not a list of contexts")
        calls = [{key: value for key, value in (context | call).items() if key != "calls"} for call in calls]
        whens = [datetime.datetime.fromisoformat(call["date"]).astimezone(datetime.timezone.utc) for call in calls]
        for call in calls:
            for key in ("machine", "commit", "gpu", "cpu"):
                if not isinstance(call.get(key, ""), str):
                    raise ValueError(f"its {key} is not text")
        places = [run.get("call", 0) for run in runs]
        if not all(type(place) is int and 0 <= place < len(calls) for place in places):
            raise ValueError("a result names a call that the file does not have")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise Refused(f"{path} is not a result file ({error}): write one with bench/forward --out") from None
    for call in calls:
        if call.get("machine") == "simulator" and not all(str(run.get("name")).startswith(STUDIES) for run in runs):
            raise Refused(f"{path} was measured in the simulator, whose times say nothing about a GPU: measure on a GPU")
        for key in ("machine", "commit", "gpu" if call.get("machine") == "gpu" else "cpu"):
            if call.get(key, "unknown") in ("unknown", ""):
                raise Refused(f"{path} has no {key}: measure with ./flashbook bench, which sets FLASHBOOK_COMMIT")
        if not folder_of(call):
            raise Refused(f"{path} has no name of a machine: measure with bench/forward, which writes it")
    return [entry_of(run, calls[place], whens[place], path) for run, place in zip(runs, places, strict=True) if run.get("run_type") == "iteration"]


def entry_of(run: dict[str, Any], context: dict[str, Any], when: datetime.datetime, path: str | pathlib.Path) -> Entry:
    name = run.get("name", "")
    cell = Name.parse(name) if isinstance(name, str) else None
    if not cell:
        raise Refused(f"{path} has a result named {name!r}: use names such as forward/ch01/register_tile/bf16/d128/causal/n2048")
    for key, kind in (("label", str), ("error_message", str), ("error_occurred", bool), ("stamps", list)):
        if not isinstance(run.get(key, kind()), kind):
            raise Refused(f"{path}: {name} has the {key} {run[key]!r}: write the file with bench/forward")
    skipped = run.get("error_message", "no reason given") if run.get("error_occurred") else ""
    if skipped and run.get("label") == "wrong":
        raise Refused(f"{path}: {name} was wrong ({skipped}): fix it and measure again")
    scale = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}.get(str(run.get("time_unit")))
    time = run.get("real_time")
    if scale is None or not is_measured(time) or time < 0 or (time == 0 and cell.kind in TIMED and not skipped):
        raise Refused(f"{path}: {name} took {time!r} {run.get('time_unit')!r}: a time must be a positive number of ns, us, ms or s")
    values = {key: value for key, value in run.items() if isinstance(value, (int, float)) and key not in ("iterations", "call")}
    for key, value in values.items():
        if not skipped and not is_measured(value):
            raise Refused(f"{path}: {name} has the {key} {value}: a counter must be a finite number")
    return Entry(cell, context, when, float("nan") if skipped else time * scale, values,
                 run.get("label", ""), [pass_of(text, name, path) for text in run.get("stamps", [])], skipped, str(context.get("file", path)))


def is_measured(value: object) -> TypeGuard[float]:
    """Returns whether this is a finite number that a float can hold."""
    return isinstance(value, (int, float)) and abs(value) <= sys.float_info.max


def pass_of(text: object, name: str, path: str | pathlib.Path) -> dict[str, int]:
    """Parses "warpgroup 1 tile 30 landed 4183 ..." into {"warpgroup": 1, "tile": 30, "landed": 4183, ...}."""
    words = text.split() if isinstance(text, str) else []
    try:
        return dict(zip(words[::2], map(int, words[1::2]), strict=True))
    except ValueError:
        raise Refused(f"{path}: {name} has the stamps {text!r}: use names, each followed by a number") from None


class Results:
    """The newest entry of every name in some files of one machine."""

    def __init__(self, paths: Iterable[str | pathlib.Path]) -> None:
        self.history: list[Entry] = []  # all entries, oldest first
        self.folder = RESULTS
        self.quoted: list[Entry] = []  # those that pages quote, as docs/tools/quote.py finds them
        for path in paths:
            self.history += read(path)
            self.folder = pathlib.Path(path).parent
        self.history.sort(key=lambda entry: entry.when)
        machines = sorted({folder_of(entry.context) for entry in self.history})
        if len(machines) > 1:
            raise Refused(f"the results are from several machines, {', '.join(machines)}: use a folder for each")
        self.named: dict[str, list[Entry]] = {}  # all entries of a name, oldest first
        for entry in self.history:
            self.named.setdefault(entry.name, []).append(entry)
        self.newest = {name: entries[-1] for name, entries in self.named.items()}
        self.beside_peers = beside_peers(self)

    def context(self) -> dict[str, Any]:
        """Returns the newest file's context, or {} without results. Only timed attention counts."""
        return next((entry.context for entry in reversed(self.history) if entry.cell.kind not in ("timeline", "machine")), {})

    def origin(self, entries: Iterable[Entry] | None = None) -> str:
        """Returns the newest day and commit of these entries (default: all timed attention), and whether there are older
        ones."""
        chosen = list(entries) if entries else [entry for entry in self.newest.values() if entry.cell.kind not in ("timeline", "machine")]
        context = max(chosen, key=lambda entry: entry.when).context
        commits = {entry.context["commit"] for entry in chosen}
        return f"{context['date'][:10]}, commit {context['commit']}" + (" and earlier" if len(commits) > 1 else "")

    def measured(self, name: str | Name) -> Entry:
        """Returns the entry with this name. Raises Refused if it was never measured or was skipped."""
        entry = self.newest.get(str(name))
        if entry is None:
            raise Unmeasured(f"{name} was never measured: run ./flashbook bench")
        if entry.skipped:
            raise Refused(f"{name} was skipped: {entry.skipped}")
        return entry

    def by_step(self, **shape: str | int) -> dict[tuple[int, int], Entry]:
        """Returns {(chapter, step): entry} of every step's forward pass at head_dim, mask and seqlen, including skipped
        ones.

        The type is BF16 if the chapter was measured in it, else E4M3, else any other.
        """
        found: dict[tuple[int, int], list[Entry]] = {}
        for entry in self.newest.values():
            cell = entry.cell
            if cell.kind == "forward" and cell.chapter and cell.step and all(getattr(cell, part) == value for part, value in shape.items()):
                found.setdefault((cell.chapter, cell.step), []).append(entry)
        return {key: min(found[key], key=lambda entry: DTYPES.index(entry.cell.dtype)) for key in sorted(found)}

    def raced(self, name: str | Name, field: str) -> Entry | None:
        """Returns the newest entry with this name that was interleaved with a peer (field vs_cudnn, ...), or None."""
        return next((past for past in reversed(self.named.get(str(name), [])) if past.values.get(field)), None)


def load(folder: str | pathlib.Path = RESULTS / BOOK_GPU) -> Results:
    """Returns the results of one folder; empty if there is none."""
    return Results(files_of(folder))


def unit_of(cell: Name) -> str:
    """Returns the unit of chapter 0 that runs a step's products: multiply-adds in float32, mma.sync, or wgmma in 16 bits or
    e4m3."""
    if cell.dtype == "e4m3":
        return "e4m3"
    if cell.chapter in (1, 3) and cell.who not in ("ch01/wmma", "ch03/split_k"):
        return "multiply_add"
    return "warp_product" if cell.chapter in (1, 3, 4) else "warpgroup_product"


def limits(measured: Results) -> dict[str, float]:
    """Returns the machine's limits, as measured by chapter 0: FLOP/s of multiply_add, warp_product and warpgroup_product at the highest clock
    (for e4m3, twice the last), bytes/s of a copy in device memory (copy), and its size in bytes (memory). Unmeasured limits are missing."""
    found = {}
    for unit, flops in (("multiply_add", 2), ("warp_product", 1), ("warpgroup_product", 1)):
        entry = measured.newest.get(f"machine/rate/{unit}")
        clock = re.search(r"SM up to (\d+) MHz", str(entry.context.get("clocks", ""))) if entry else None
        if entry and clock and not entry.skipped and "multiprocessors" in entry.context:
            found[unit] = flops * entry.values["per_clock"] * int(entry.context["multiprocessors"]) * int(clock[1]) * 1e6
    if "warpgroup_product" in found:
        found["e4m3"] = 2 * found["warpgroup_product"]
    copied = measured.newest.get("machine/bandwidth/device_copy")
    if copied and not copied.skipped:
        found["copy"] = copied.values["bytes_per_second"]
    for entry in measured.newest.values():
        if size := re.fullmatch(r"(\d+) MiB", str(entry.context.get("memory", ""))):
            found["memory"] = int(size[1]) * 2.0**20
    return found


def limit_of(entry: Entry, peaks: Mapping[str, float]) -> tuple[str, float] | None:
    """Returns the bottleneck of a forward step on a machine, and the lower bound in milliseconds; None if chapter 0 did not measure it
    there."""
    unit = unit_of(entry.cell)
    if unit not in peaks or "copy" not in peaks or "FLOPS" not in entry.values:
        return None
    moved = entry.values.get("bytes_per_second", 0) * entry.milliseconds
    floors = {"products": entry.values["FLOPS"] * entry.milliseconds / peaks[unit], "device memory": moved / peaks["copy"]}
    return max(floors.items(), key=lambda floor: floor[1])


def compared(theirs: Results, book: Results) -> Iterable[str]:
    """Yields the book's times next to theirs, a line per cell, with the speed relative to the book and the ratio expected from the machines'
    limits."""
    here, there = limits(theirs), limits(book)
    shared = [(entry, book.newest[name]) for name, entry in theirs.newest.items() if entry.cell.kind in TIMED and name in book.newest]
    shared = [(own, reference) for own, reference in shared if not own.skipped and not reference.skipped]
    if not shared:
        yield f"the book has none of these cells: its files are in {RESULTS / BOOK_GPU}"
        return
    yield f"{'':44} {'here, ms':>10} {'book, ms':>10}  as fast as the book"
    for own, reference in shared:
        speed, their_limit, own_limit = reference.milliseconds / own.milliseconds, limit_of(reference, there), limit_of(own, here)
        why = f", by the limits {their_limit[1] / own_limit[1]:.2f} ({own_limit[0]})" if their_limit and own_limit else ""
        yield f"{own.name:44} {own.milliseconds:10.4f} {reference.milliseconds:10.4f}  {speed:.2f}{why}"
    cards = [next(entry.context.get("gpu") or entry.context.get("cpu", "") for entry in reversed(measured.history)) for measured in (theirs, book)]
    yield f"here: {cards[0]}; the book: {cards[1]}, {book.origin([reference for _, reference in shared])}"
    for name, words in (("multiply_add", "multiply-adds in float32"), ("warp_product", "mma.sync products"),
                        ("warpgroup_product", "wgmma products"), ("copy", "a copy in device memory"), ("memory", "device memory")):
        if name in there:
            scale, unit = (1e9, "GB") if name == "memory" else (1e12, "TB/s" if name == "copy" else "TFLOP/s")
            yield f"{words}: {f'{here[name] / scale:.2f}' if name in here else 'not measured'} here, {there[name] / scale:.2f} {unit} there"
    if not here:
        yield "the limits of this machine were not measured: run ./flashbook bench, which includes chapter 0"


@dataclasses.dataclass(frozen=True)
class InTurn:
    """A cell in which a step of ours, FlashAttention-3 and cuDNN were interleaved in one process: TFLOP/s, the peers' from the median ratios."""

    ours: float
    fa3: float
    cudnn: float

    @property
    def over_better(self) -> float:
        return self.ours / max(self.fa3, self.cudnn)


def complete_file(measured: Results, names: list[Name], fields: set[str]) -> dict[Name, Entry]:
    """Returns the entries with these names in the newest file that has them all with these fields; {} if there is
    none."""
    files: dict[str, dict[Name, Entry]] = {}
    for name in names:
        for entry in measured.named.get(str(name), []):
            if fields <= entry.values.keys():
                files.setdefault(entry.file, {})[name] = entry
    found = [entries for entries in files.values() if len(entries) == len(names)]
    return max(found, key=lambda entries: max(entry.when for entry in entries.values()), default={})


def beside_peers(measured: Results) -> dict[Name, Entry]:
    """Returns chapter 5's last step and chapter 6's steps from its fifth on. Each type is from the newest file in which all its
    cells were interleaved with FlashAttention-3 and cuDNN in that type; types without such a file are missing."""
    fp8 = ("persistent", "row_sums", "transpose_once", "transpose_once_means", "linear_exp")
    steps = {"bf16": ("ch05/persistent",), "e4m3": tuple(f"ch06/{who}" for who in fp8)}
    cudnn = {"bf16": "vs_cudnn", "e4m3": "vs_cudnn_frontend"}
    found: dict[Name, Entry] = {}
    for dtype, contestants in steps.items():
        names = [Name("forward", who, dtype, *shape, seqlen) for shape in SHAPES for seqlen in SEQLENS for who in contestants]
        found |= complete_file(measured, names, {cudnn[dtype], "vs_fa3"})
    return found


def in_turn(measured: Results, *of: str) -> dict[Name, InTurn]:
    """Returns the rates of these steps (ch05/persistent, ...) from `beside_peers`. cuDNN is the faster of PyTorch's call and its own frontend. Raises
    Unmeasured if a step is missing."""
    found = {}
    for name, entry in measured.beside_peers.items():
        if name.who in of:
            ours = entry.values["FLOPS"] / 1e12
            cudnn = min(entry.values[field] for field in ("vs_cudnn", "vs_cudnn_frontend") if field in entry.values)
            found[name] = InTurn(ours, ours / entry.values["vs_fa3"], ours / cudnn)
    if lacking := set(of) - {name.who for name in found}:
        raise Unmeasured(f"{', '.join(sorted(lacking))} was never interleaved with FlashAttention-3 and cuDNN in every cell: run bench/release")
    return found


def add(path: str | pathlib.Path, results: pathlib.Path | None = None) -> pathlib.Path:
    """Files a result file under its GPU, date and commit; returns the path."""
    entries = read(path)
    if not entries:
        raise Refused(f"{path} has no results")
    context = entries[0].context
    folder = (results or RESULTS) / folder_of(context)
    commit = re.sub(r"[^\w.-]", "-", context["commit"])
    stem = f"{context['date'][:10]}-{commit}"
    target = folder / f"{stem}.json"
    copies = itertools.count(2)
    while target.exists():
        target = folder / f"{stem}-{next(copies)}.json"
    folder.mkdir(parents=True, exist_ok=True)
    Results([*files_of(folder), path])  # raises if machines are mixed
    unfinished = target.with_suffix(".unfinished")
    shutil.copyfile(path, unfinished)
    unfinished.replace(target)  # atomically
    return target


def main(words: list[str]) -> int:
    try:
        if words[:1] == ["add"] and len(words) > 1:
            for path in words[1:]:
                print(add(path))
        elif words[:1] == ["beside"] and len(words) > 1:
            print(*compared(Results(words[1:]), load()), sep="\n")
        elif words[:1] == ["list"] and len(words) < 3:
            for name, entry in sorted(load(*words[1:]).newest.items()):
                rate = entry.values.get("FLOPS", 0) / 1e12
                print(f"{name:48}", f"skipped: {entry.skipped}" if entry.skipped
                      else f"{entry.milliseconds:10.3f} ms {rate:8.2f} TFLOP/s  {entry.context['commit']}")
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except Refused as reason:
        print(f"results.py: {reason}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
