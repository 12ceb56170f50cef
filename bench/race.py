"""The race: contestants in turn in one process, whoever they are (peers.py, backward.py, decode.py, masks.py, operators.py, on_cpu.py).

The card's power is limited, so what ran before changes what is measured. Therefore: in every round each contestant is timed once, in
random order, after a nap of 60 ms; a time is the median of some launches between CUDA events, L2 flushed before each; a result is the
median of the rounds. A contestant whose name begins with `ch` is ours: it is checked first, and is compared with the others by the median of
the rounds' ratios. A contestant that is `called` is timed as its caller waits for it: the card is idle when the host begins. Such are compared with
each other only. With --before LIBRARY another build's kernels run too: what a change of the house did to ours, cell by cell, is `vs_before`.

A race can be taken in several calls: with --seconds a call ends before its limit, with exit code 75 if cells are left, and with --resume the next
one goes on where the file ends. The context has a part for each call, and an entry says of which one it is.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from bench import results
from bench.structs import BAD_ARGUMENT, HARDWARE_MISSING, Chapter, Shape, Tensors

LAYOUTS = ("bhsd", "bshd")  # of tensors and caches in memory: [batch, heads, seqlen, d] or [batch, seqlen, heads, d]
NAP = 0.06  # seconds
SEED = 1
APART, NEAR = 0.03, 1.25  # rounds that lie further apart are too few; who takes at most so many times the fastest's time is near it
UNFINISHED = 75  # the exit code of a call that left cells for the next one
BEGAN = time.monotonic()
SAME = ("commit", "machine", "gpu", "driver", "toolkit", "pytorch", "cudnn")  # what calls of one race have in common
DISTRIBUTIONS = ("nvidia-cudnn-cu13", "nvidia-cudnn-frontend", "flash-attn", "flash-attn-3", "flash-attn-4", "flashinfer-python", "xformers",
                 "triton")  # peers' packages
torch: Any = None  # imported once the options are right


class Library:
    """libflashbook.so."""

    def __init__(self, path):
        self.c = ctypes.CDLL(os.path.abspath(path))  # a name without a slash would be looked for elsewhere
        for name in ("flashbook_last_error", "flashbook_toolkit", "flashbook_step_name"):
            getattr(self.c, name).restype = ctypes.c_char_p
        for name in ("flashbook_workspace_bytes", "flashbook_masked_workspace_bytes", "flashbook_decode_workspace_bytes",
                     "flashbook_masked_decode_workspace_bytes"):
            getattr(self.c, name).restype = ctypes.c_int64
        self.c.flashbook_attention.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.POINTER(Shape), ctypes.POINTER(Tensors), ctypes.c_void_p]

    def error(self):
        return self.c.flashbook_last_error().decode()

    def toolkit(self):
        return self.c.flashbook_toolkit().decode()

    def chapters(self):
        found = [Chapter() for _ in range(self.c.flashbook_chapter_count())]
        for place, chapter in enumerate(found):
            self.c.flashbook_chapter(place, ctypes.byref(chapter))
        return found

    def step_name(self, chapter, step):
        return self.c.flashbook_step_name(chapter, step).decode()

    def workspace_bytes(self, chapter, step, shape):
        """Bytes, or -1 if the step cannot run the shape; then error() says why."""
        return self.c.flashbook_workspace_bytes(chapter, step, ctypes.byref(shape))

    def cost(self, chapter, step, shape):
        """(FLOPs, bytes moved) by the cost model."""
        flops, moved = ctypes.c_double(), ctypes.c_double()
        self.c.flashbook_cost(chapter, step, ctypes.byref(shape), ctypes.byref(flops), ctypes.byref(moved))
        return flops.value, moved.value

    def attention(self, chapter, step, shape, tensors, stream):
        must(self, self.c.flashbook_attention(chapter, step, ctypes.byref(shape), ctypes.byref(tensors), stream))


def must(library, status):
    """Raises what a status of the library says: Refused where the step or this card cannot, which is no wrong result; RuntimeError for the rest."""
    if status in (BAD_ARGUMENT, HARDWARE_MISSING):
        raise results.Refused(library.error())
    if status:
        raise RuntimeError(library.error())


def steps_of(library, number):
    """How many steps a chapter has."""
    for chapter in library.chapters():
        if chapter.number == number:
            return chapter.steps
    raise results.Refused(f"the library has no chapter {number}: build this commit's, cmake --build --preset gpu --target flashbook_shared")


@dataclasses.dataclass
class Contestant:
    """One of those that are timed in turn."""

    who: str  # "ch01/step4", "cudnn", "ch05/one_loop" of an ablation
    label: str
    run: Any  # launches it once and returns O
    context: object = contextlib.nullcontext  # entered around all of a measurement's launches
    values: dict[str, float] = dataclasses.field(default_factory=dict)  # counters for its result
    skipped: str = ""
    launches: int = 1  # in a round
    milliseconds: list[float] = dataclasses.field(default_factory=list)  # of every round
    keeps: Any = ()  # tensors that live as long as their pointers are used
    kind: str = "forward"  # or "ablation": the first part of its result's name
    called: bool = False  # timed with the host's part of it
    nap: float | None = None  # seconds before it is timed, if not NAP
    flops: float = 0  # of a launch, if not the problem's
    encoded: bool = False  # a peer that reads the problem's e4m3, where it has such
    install: str = ""  # how to get the package that it lacks; then it is named once, and is in no cell


class Replayed:
    """A launch as a CUDA graph, which its first call captures and every call replays: what it takes the card alone."""

    def __init__(self, launch):
        self.launch, self.graph, self.o = launch, None, None

    def __call__(self):
        if self.graph is None:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # what a first launch allocates and loads cannot be captured
                self.launch()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.o = self.launch()
            self.graph = graph
        self.graph.replay()
        return self.o


def check_outputs(problem, contestants, largest_error, launches):
    """Runs each once, notes errors, and sets who cannot run aside: `largest_error(problem, o)` gives an output's error and bound. Each that can
    run has `launches` in a round. Raises Wrong if one of ours is wrong."""
    for contestant in contestants:
        if contestant.skipped:
            continue
        try:
            with contestant.context():
                contestant.run()  # loads the kernels
                o = contestant.run()
            torch.cuda.synchronize()
        except Exception as error:  # what torch.compile throws is no RuntimeError
            if not isinstance(error, results.Refused) and contestant.who.startswith("ch"):
                raise Wrong(f"{problem.name(contestant)}: {error}") from None
            contestant.skipped = (str(error).splitlines() or ["failed"])[0]
            continue
        largest, bound = largest_error(problem, o)
        contestant.values |= {"error": largest, "error_bound": bound}
        contestant.launches = launches
        message = f"{problem.name(contestant)}: error {largest:.1e}, bound {bound:.1e}"
        if contestant.who.startswith("ch") and not largest <= bound:
            raise Wrong(message)
        if not largest <= 2 * bound:
            contestant.skipped = message


class Wrong(Exception):
    """A kernel of ours failed or gave a wrong result."""


# ---- timing ------------------------------------------------------------------------------------------------------------------------


def timed(contestant, cache_filler):
    """Milliseconds: the median of the contestant's launches, after a nap."""
    time.sleep(NAP if contestant.nap is None else contestant.nap)
    events = []
    with contestant.context():
        for _ in range(contestant.launches + (contestant.launches > 1)):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            cache_filler.zero_()  # takes long enough that the launch below waits for nothing but the card
            if contestant.called:
                torch.cuda.synchronize()
            begin.record()
            contestant.run()
            end.record()
            events.append((begin, end))
        torch.cuda.synchronize()
    # The first of several launches warms up.
    return statistics.median(begin.elapsed_time(end) for begin, end in events[contestant.launches > 1:])


def spread(contestant):
    """How far its rounds lie apart, as a part of their median."""
    return (max(contestant.milliseconds) - min(contestant.milliseconds)) / statistics.median(contestant.milliseconds)


def race(contestants, rounds, shuffle, cache_filler):
    """Times each in every round, in a new order. Whose rounds lie apart has three times as many, and so has then who is near the fastest."""
    runners = [contestant for contestant in contestants if not contestant.skipped]

    def in_turn(some, count):
        for _ in range(count):
            shuffle(some)
            for contestant in some:
                contestant.milliseconds.append(timed(contestant, cache_filler))

    in_turn(runners, rounds)
    if any(spread(contestant) > APART for contestant in runners):
        medians = [statistics.median(contestant.milliseconds) for contestant in runners]
        in_turn([contestant for contestant, median in zip(runners, medians, strict=True)
                 if median <= NEAR * min(medians) or spread(contestant) > APART], 2 * rounds)


def before(contestant):
    """Who is the same step in another build."""
    return contestant.who + "_before"


def note_same_bits(contestants, twins):
    """Whether both builds give the same outputs, bit by bit."""
    outputs = lambda found: found if isinstance(found, list) else [found]
    for contestant, twin in zip((c for c in contestants if c.who.startswith("ch")), twins, strict=True):
        if not contestant.skipped and not twin.skipped:
            pairs = zip(outputs(contestant.run()), outputs(twin.run()), strict=True)
            contestant.values["same_bits"] = float(all(torch.equal(a, b) for a, b in pairs))


def entry(problem, contestant, contestants, flops):
    """A result as Google Benchmark would write it."""
    name = problem.name(contestant)
    found = {"name": name, "run_name": name, "run_type": "iteration", "iterations": 1, "real_time": 0.0, "cpu_time": 0.0,
             "time_unit": "ms", "label": contestant.label}
    if contestant.skipped:
        return found | {"error_occurred": True, "error_message": contestant.skipped, "label": "skipped"}
    median = statistics.median(contestant.milliseconds)
    values = dict(contestant.values)
    moved = values.pop("bytes", None)
    if moved:
        values["bytes_per_second"] = moved / (median * 1e-3)
    ours = contestant.who.startswith("ch")
    for other in contestants:
        against = "as_it_is" if other.who.endswith("/as_it_is") else "before" if other.who == before(contestant) else other.who
        if other.skipped or other is contestant or other.called != contestant.called or against.startswith("ch"):
            continue
        ratio = statistics.median(b / a for a, b in zip(contestant.milliseconds, other.milliseconds))
        in_bf16 = bool(problem.encoded) and not other.encoded and against not in ("as_it_is", "before")  # a peer without FP8 runs in BF16
        if other.flops and (ours or not problem.encoded):  # the product is of the problem's type
            values["of_" + against] = ratio * flops / other.flops
        elif ours and not other.flops:
            values["vs_" + against + "_bf16" * in_bf16] = ratio
    return found | {"real_time": median, "FLOPS": (contestant.flops or flops) / (median * 1e-3), "rounds": len(contestant.milliseconds),
                    "launches": contestant.launches, "spread": spread(contestant)} | values


def told(found):
    """An entry, in words for a terminal."""
    bytes_rate = f" {found['bytes_per_second'] / 1e12:6.3f} TB/s" if "bytes_per_second" in found else ""
    return f"{found['real_time']:10.4f} ms {found['FLOPS'] / 1e12:8.3f} TFLOP/s{bytes_rate}" + "".join(
        f"  {key[3:]} x{value:.3f}" for key, value in found.items() if key.startswith(("vs_", "of_")))


class Unfinished(Exception):
    """Cells are left for another call."""


class File:
    """A result file that is whole after each cell, and can be taken up again."""

    def __init__(self, options, library):
        self.path, self.seconds, self.longest = options.out, options.seconds, 0.0
        this = context(library)
        self.whole = {"context": this | {"calls": [this]}, "benchmarks": []}
        if options.resume and self.path.exists():
            before = json.loads(self.path.read_text())
            for key in SAME:
                if before["context"].get(key) != this.get(key):
                    raise results.Refused(f"{self.path} was begun with the {key} {before['context'].get(key)}, and this call has {this.get(key)}: "
                                          "go on with the same, or begin another file")
            self.whole = {"context": this | {"calls": [*before["context"]["calls"], this]}, "benchmarks": before["benchmarks"]}
        self.done = {entry["cell"] for entry in self.whole["benchmarks"]}

    def begin(self, cell):
        """When the cell begins. Raises Unfinished if there may be no time for it."""
        now = time.monotonic()
        if self.seconds and now - BEGAN + 1.5 * self.longest + 2 > self.seconds:
            raise Unfinished(f"{cell} and what follows are left for another call with --resume")
        return now

    def add(self, cell, entries, begun):
        call = len(self.whole["context"]["calls"]) - 1
        self.whole["benchmarks"] += [entry | {"cell": cell, "call": call} for entry in entries]
        results.write(self.path, self.whole)
        self.longest = max(self.longest, time.monotonic() - begun)

    def lacks(self, contestants):
        """Those that can be had here; the others are named, once, with what installs them."""
        absent = self.whole["context"].setdefault("absent", {})
        for contestant in contestants:
            if contestant.install and contestant.who not in absent:
                absent[contestant.who] = f"{contestant.skipped}: {contestant.install}"
                print(f"{contestant.who} is left out: {absent[contestant.who]}", flush=True)
        return [contestant for contestant in contestants if not contestant.install]


def run(options, library, check, cells):
    """Measures every cell that the file does not have; it is whole after each. `cells`: {word: function of a library that makes a problem, its
    contestants and its FLOPs}, one at a time, since the next one takes the memory of the last. `check(problem, contestants)` is asked first."""
    file = File(options, library)
    shuffle = random.Random(SEED).shuffle
    cache_filler = torch.empty(1 << 28, device="cuda", dtype=torch.uint8)  # 256 MB: several times any L2 cache
    earlier = options.before and Library(options.before)
    for cell, make in cells.items():
        if cell in file.done:
            continue
        begun = file.begin(cell)
        problem, contestants, flops = make(library)
        contestants = file.lacks(contestants)
        if earlier:
            kept, others, _ = make(earlier)  # the same problem once more: a contestant has pointers into its own
            twins = [dataclasses.replace(twin, who=before(twin), keeps=(twin.keeps, kept)) for twin in others if twin.who.startswith("ch")]
            check(problem, contestants + twins)
            note_same_bits(contestants, twins)
            contestants += twins
        else:
            check(problem, contestants)
        race(contestants, options.rounds, shuffle, cache_filler)
        entries = [entry(problem, contestant, contestants, flops) for contestant in contestants]
        for contestant, found in zip(contestants, entries, strict=True):
            print(f"{found['name']:50}", (contestant.skipped and f"skipped: {contestant.skipped}") or told(found), flush=True)
        file.add(cell, entries, begun)
        del problem, contestants
        torch.cuda.empty_cache()


# ---- the program -------------------------------------------------------------------------------------------------------------------


def command():
    """The command line, with paths of this tree as they are from its root."""
    return " ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]).replace(f"{results.ROOT}/", "")


def packages():
    """{distribution: version} of the peers' packages that are installed."""
    found = {}
    for name in DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def context(library):
    """What the result file says of the machine."""
    asked = subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem,power.limit,uuid,memory.total",
                            "--format=csv,noheader"], capture_output=True, text=True)
    found = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "command": command(), "machine": "gpu",
             "gpu": torch.cuda.get_device_name(), "runtime": f"CUDA {torch.version.cuda}", "toolkit": library.toolkit(),
             "pytorch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "commit": results.commit()}
    if asked.returncode == 0:
        driver, sm, memory, power, uuid, total = asked.stdout.splitlines()[0].split(", ")
        clocks = f"SM up to {sm}, memory {memory}, power limit {power.replace('.00 ', ' ')}"
        found |= {"driver": driver, "clocks": clocks, "gpu_uuid": uuid, "memory": total}
    found["packages"] = packages()
    return found | {f"ch{chapter.number:02}": chapter.title.decode() for chapter in library.chapters()}


def add_options(parser):
    """The options of every program that races."""
    parser.add_argument("--library", type=pathlib.Path, help="default: build/gpu/lib/libflashbook.so, or libablation.so beside it")
    parser.add_argument("--before", type=pathlib.Path, help="the libflashbook.so of another commit, to be timed in turn with this one; wants --out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, help="write here instead of bench/results/<gpu>/")
    add_calls(parser)


def add_layout(parser):
    """The option of every program that times attention: a bench covers both layouts (tests/bench/layouts_test.py)."""
    parser.add_argument("--layout", type=layouts, default=list(LAYOUTS),
                        help=f"order of the tensors in memory: {','.join(LAYOUTS)} (default: both)")


def layouts(text):
    """["bhsd", "bshd"] of "bhsd,bshd"."""
    if unknown := [word for word in text.split(",") if word not in LAYOUTS]:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is no layout: give some of {','.join(LAYOUTS)}, with commas between")
    return text.split(",")


def in_layout(word: str, layout: str) -> str:
    """What a mask is called in the names of results."""
    return word if layout == LAYOUTS[0] else f"{word}_{layout}"


def randn(layout, batch, heads, rows, head_dim, dtype):
    """Normal random numbers, a view [batch, heads, rows, head_dim] of a tensor in that layout."""
    made = lambda *sizes: torch.randn(*sizes, device="cuda", dtype=dtype)
    return made(batch, heads, rows, head_dim) if layout == "bhsd" else made(batch, rows, heads, head_dim).transpose(1, 2)


def set_strides(struct, **tensors):
    """The strides of views [batch, heads, rows, head_dim], in a struct of flashbook.h."""
    for name, tensor in tensors.items():
        for axis, stride in zip(("batch", "head", "row"), tensor.stride()):
            setattr(struct, f"{name}_{axis}_stride", stride)


def add_calls(parser):
    """The options of a race that is taken in several calls."""
    parser.add_argument("--resume", action="store_true", help="go on where the file of --out ends")
    parser.add_argument("--seconds", type=float, default=0, help="begin no cell that may end later; exit code 75 if some are left")


def whole_numbers(text):
    """[512, 4096] of "512,4k"."""
    return [int(word[:-1]) * 1024 if word[-1:] in "kK" and word else int(word) for word in text.split(",")]


def pytorch(program):
    """PyTorch, if it is here and sees a GPU; else None, and stderr says why."""
    global torch  # noqa: PLW0603
    try:
        import torch
    except ImportError:
        print(f"{program} needs PyTorch with CUDA (pip install torch); without it, bench/forward times our kernels alone", file=sys.stderr)
        return None
    if not torch.cuda.is_available():
        print(f"no GPU: {program} times kernels on one; PyTorch sees none here", file=sys.stderr)
        return None
    return torch


def measure(program, options, run, target="flashbook_shared"):
    """Runs `run(options, library)`, which writes options.out, and files that if the user did not name it. Returns the exit code."""
    options.library = options.library or results.ROOT / "build" / "gpu" / "lib" / f"lib{target.removesuffix('_shared')}.so"
    if options.rounds < 1:
        print(f"{program}: --rounds is the number of rounds: at least 1, and 5 for a result", file=sys.stderr)
        return 2
    if options.before and not (options.out and options.before.exists()):
        missing = "--out FILE is" if options.before.exists() else f"{options.before} is"
        print(f"{program}: {missing} missing: --before compares with another build, which is not filed", file=sys.stderr)
        return 2
    if options.resume and not options.out:
        print(f"{program}: --resume goes on with the file of --out: name it", file=sys.stderr)
        return 2
    if not options.library.exists():
        print(f"{options.library} is missing: cmake --build --preset gpu --target {target}", file=sys.stderr)
        return 2
    return filed(program, options, lambda: run(options, Library(options.library)))


def filed(program, options, run):
    """Runs `run()`, which writes options.out, and files that if the user did not name it. Returns the exit code."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            keep = options.out
            options.out = keep or pathlib.Path(folder) / "measured.json"
            run()
            print(keep or results.add(options.out))
    except Wrong as reason:
        print(f"{program}: wrong: {reason}", file=sys.stderr)
        return 1
    except Unfinished as reason:
        print(f"{program}: {reason}", file=sys.stderr)
        return UNFINISHED
    except results.Refused as reason:
        print(f"{program}: {reason}", file=sys.stderr)
        return 2
    return 0
