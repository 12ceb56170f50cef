#!/usr/bin/env python3
"""Times chapter 10 on several GPUs of one host, interleaved with one GPU alone and with PyTorch's context_parallel.

    many.py [--ranks 2] [--heads 16] [--kv-heads 16] [--head-dim 128] [--seqlen 64k,16k] [--mask causal,documents] [--seconds 240] [--rounds 5]
            [--who ch10,python,peers] [--gradient] [--out FILE] [--program build/gpu/bin/many] [--library build/gpu/lib/libflashbook.so]

The most important cells come first. A cell that would not finish within --seconds is not started, and the exit code is then 75. The file is
complete after every cell; with --out, a later call continues a file of the same commit. Contestants run in two kinds of processes on the same
GPUs. `bench/many` (many.cpp) has chapter 10's steps, with copies and with NCCL, and chapters 5, 7, 8 and 9 on the first GPU alone. One process per
GPU has the context_parallel of the Python package and of PyTorch. In every round each contestant is timed once, in random order, after a rest
of 60 ms. A time is the median of several launches, each after a flush of the L2, from the common start until the slowest GPU is done. Chapter 10
is timed with the host's clock. PyTorch is timed with CUDA events on the slower rank, which excludes the time until the host notices the end.

Results have names such as many/ch10/zigzag/bf16/d128/causal/n65536. `zigzag_nccl` is the step with NCCL,
`zigzag_striped` the step with stripes, and many/ch05/persistent is chapter 5 on one GPU. `documents` means eight
documents with 1/36 to 8/36 of the tokens, `decode` one query against N keys. If there are not two GPUs and 16 heads,
the mask is called causal_p8 or causal_p8h64. `share` is one GPU's time over the number of GPUs times theirs (median
over rounds). `vs_context_parallel` is the speed relative to PyTorch's faster method in the same round. Exit code 1 if
ours is wrong, 77 without two GPUs.

A contestant that does not answer within 90 s, or whose process ends, is skipped, and the result records this. Its process is restarted with the
same tensors, and the others continue. This costs 90 s that --seconds does not include.

machine/hop/copies_64mb is one hop of a ring without attention, and copies_40x1mb a hop with 40 messages of 1 MB. NVLink multicast stays off:
nothing here uses it, and every process is started with it disabled.
"""

import abc
import argparse
import contextlib
import datetime
import json
import math
import os
import pathlib
import queue
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from bench import race, results
from bench.names import Name

NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
ALONE = {"causal": "ch05/persistent", "full": "ch05/persistent", "gradient": "ch07/persistent", "documents": "ch09/varlen",
         "decode": "ch08/equal_work"}
LONG = ("carried", "zigzag", "all_gather", "ulysses", "ring")  # steps of chapter 10, most important first
STEPS = {"causal": LONG, "full": LONG, "gradient": ("backward",), "documents": ("carried", "all_gather", "ulysses"), "decode": ("decode",)}
STRIPED = {"causal": ("zigzag", "carried"), "documents": ("carried",)}  # steps that are also timed with stripes
NO_MARGIN = ("carried", "backward")
MARGIN = 8  # multiprocessors reserved for NCCL's kernels
ROTATIONS = ("allgather", "alltoall")
PATIENCE = 90  # seconds to wait for an answer
MAX_CHECKED = 128 * 1024  # up to this length PyTorch's results are compared with those of one GPU
HOPS = ((1, 1), (1, 16), (1, 64), (1, 256), (32, 1), (40, 1))  # messages of so many megabytes; step 1 receives 32 from another rank, and step 5 40
KEPT = 128 * 1024  # up to this length the tensors of all contestants stay in memory
LAUNCHES, DECODE_LAUNCHES = 3, 20
CELLS = (("causal", 64), ("causal", 16), ("causal", 32), ("causal", 8), ("full", 64), ("gradient", 64), ("causal", 128), ("full", 16),
         ("gradient", 16), ("causal", 256), ("documents", 64), ("decode", 256), ("full", 32), ("full", 128), ("gradient", 32),
         ("causal", 512), ("full", 8), ("causal", 1024), ("decode", 1024))  # kind, N / 1024


# ---- the process of each GPU, which also runs this file ----------------------------------------------------------------------------


class OfRank:
    """Carries out the requests in a rank's process. Also runs on CPU tensors, over Gloo and in the simulator, for tests."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        import flashbook
        from flashbook import _library, ops

        self.torch, self.dist, self.flashbook = torch, dist, flashbook
        self.wanted: Any = None  # O computed on one GPU
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.simulated = _library.is_simulated()
        if self.simulated:
            ops.ON_CPU = ops.HOPPER, "persistent"
            torch.set_num_threads(1)
        self.device = torch.device("cpu") if self.simulated else torch.device("cuda", self.rank)
        if not self.simulated:
            torch.cuda.set_device(self.device)
        dist.init_process_group("gloo" if self.simulated else "nccl")
        self.filler = torch.empty(1 << (12 if self.simulated else 28), device=self.device, dtype=torch.uint8)
        self.wait_for_all()

    def wait_for_all(self) -> None:
        self.dist.barrier()
        if not self.simulated:
            self.torch.cuda.synchronize()

    def context(self) -> dict[str, str]:
        torch = self.torch
        nccl = "" if self.simulated else ".".join(map(str, torch.cuda.nccl.version()))
        return {"pytorch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "nccl_of_pytorch": nccl}

    def cell(self, heads: int, kv_heads: int, head_dim: int, seqlen: int, causal: bool) -> None:
        """Draws a cell: all ranks draw the same whole tensors, and keep only their tokens."""
        torch = self.torch
        self.causal, self.own, self.wanted = causal, [], None
        generator = torch.Generator(self.device).manual_seed(seqlen)
        whole = [torch.randn(1, seqlen, count, head_dim, device=self.device, dtype=torch.bfloat16, generator=generator)
                 for count in (heads, kv_heads, kv_heads, heads)]
        self.own = [self.flashbook.shard(tensor) for tensor in whole]
        # PyTorch's contestants use their own layout, without zigzag if there is no mask
        self.theirs = [tensor.transpose(1, 2).contiguous() for tensor in self.own]
        if seqlen <= MAX_CHECKED:
            q, k, v, _ = whole
            self.wanted = self.flashbook.shard(self.flashbook.flash_attn_func(q, k, v, causal=causal))
            del q, k, v
        del whole
        if not self.simulated:
            torch.cuda.empty_cache()

    @contextlib.contextmanager
    def contestant(self, who: str) -> Any:
        """Yields a function that launches the contestant once and returns O or a gradient, [1, tokens, heads,
        head_dim]."""
        torch, gradient, causal = self.torch, who.endswith("_gradient"), self.causal
        who = who.removesuffix("_gradient")
        if who == "python":
            inputs = [tensor.requires_grad_(gradient) for tensor in self.own[:3]]
            call = lambda: self.flashbook.context_parallel(*inputs, causal=causal)
            yield self.backward(call, inputs, self.own[3]) if gradient else call
            return
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.experimental import _attention, context_parallel
        from torch.nn.attention import SDPBackend, sdpa_kernel

        _, backend, rotation = who.split("_")
        _attention.set_rotate_method(rotation)
        _attention._cp_options.enable_load_balance = causal  # not supported without a mask
        mesh = init_device_mesh(self.device.type, (self.ranks,))
        inputs = [tensor.requires_grad_(gradient) for tensor in self.theirs[:3]]
        more = {"enable_gqa": True} if inputs[0].shape[1] != inputs[1].shape[1] else {}
        call = lambda: torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal, **more)
        stand_in = torch.zeros(4 * self.ranks, device=self.device)  # the tensors are already split
        kind = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[backend]
        with sdpa_kernel(kind), context_parallel(mesh, buffers=[stand_in], buffer_seq_dims=[0]):
            run = self.backward(call, inputs, self.theirs[3]) if gradient else call
            yield lambda: run().transpose(1, 2)

    def backward(self, call: Any, inputs: list[Any], d_o: Any) -> Any:
        o = call()
        return lambda: self.torch.autograd.grad(o, inputs, d_o, retain_graph=True)[0]

    def check(self, who: str) -> float:
        """Returns the RMS of the error over that of the result; 0 if there is nothing to compare with."""
        with self.contestant(who) as run:
            o = run()
        if who.endswith("_gradient") or self.wanted is None:
            return 0.0 if bool(o.isfinite().all()) else math.nan
        return float((o.float() - self.wanted.float()).norm() / self.wanted.float().norm())

    def time(self, who: str, launches: int) -> list[float]:
        torch, found = self.torch, []
        with self.contestant(who) as run:
            for _ in range(launches):
                self.filler.zero_()
                self.wait_for_all()
                if self.simulated:
                    begin = time.perf_counter()
                    run()
                    found.append((time.perf_counter() - begin) * 1e3)
                    continue
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                run()
                end.record()
                torch.cuda.synchronize()
                found.append(begin.elapsed_time(end))
        return found

    def serve(self) -> None:
        for line in sys.stdin:
            verb, *arguments = json.loads(line)
            try:
                answer = {"is": getattr(self, verb)(*arguments)}
            except Exception as error:  # any exception of PyTorch
                answer = {"error": (str(error).splitlines() or [type(error).__name__])[0]}
            print("@" + json.dumps(answer), flush=True)


# ---- the contestants' processes ----------------------------------------------------------------------------------------------------


class Failed(Exception):
    """A contestant did not answer, or reported an error."""


class Silent(Failed):
    """A contestant did not answer, and its process has ended."""


class Asked:
    """A process that answers requests, line by line."""

    def __init__(self, command: list[Any], env: dict[str, str], mark: str = "") -> None:
        self.process = subprocess.Popen(list(map(str, command)), env=os.environ | NO_MULTICAST | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.mark = mark
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(self.mark):
                self.lines.put(line.removeprefix(self.mark).rstrip("\n"))
        self.lines.put(None)

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            raise self.silent("its process has ended") from None

    def answer(self) -> str:
        try:
            found = self.lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise self.silent(f"no answer in {PATIENCE} s") from None
        if found is None:
            raise self.silent("its process has ended")
        return found

    def silent(self, reason: str) -> Silent:
        """Ends the process, since a late answer would be mistaken for the next one."""
        self.end()
        return Silent(reason)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Place(abc.ABC):
    """Processes that get the same requests. If one has ended, the next request restarts them all and sends the cell again."""

    def __init__(self) -> None:
        self.all: list[Asked] = []
        self.cell: tuple[object, ...] = ()
        self.checked: set[object] = set()  # contestants that have run since the start

    @abc.abstractmethod
    def begin(self) -> list[Asked]:
        """Starts and returns the processes."""

    @abc.abstractmethod
    def exchange(self, *words: object) -> Any:
        """Sends a request and returns the answers."""

    def is_over(self) -> bool:
        return not self.all or any(asked.process.poll() is not None for asked in self.all)

    def ask(self, *words: object) -> Any:
        verb, *arguments = words
        if verb == "cell":
            self.cell = words
        if self.is_over():
            self.end()
            self.checked.clear()
            self.all = self.begin()
            if self.cell and verb != "cell":
                self.exchange(*self.cell)
        if verb == "time" and arguments[0] not in self.checked:
            self.ask("check", arguments[0])  # loads its kernels
        found = self.exchange(*words)
        if verb == "check":
            self.checked.add(arguments[0])
        return found

    def end(self) -> None:
        for asked in self.all:
            asked.end()


class OneProcess(Place):
    """bench/many."""

    def __init__(self, program: pathlib.Path) -> None:
        super().__init__()
        self.program = program

    def begin(self) -> list[Asked]:
        return [Asked([self.program], {})]

    def exchange(self, *words: object) -> str:
        self.all[0].tell(" ".join(map(str, words)))
        found = self.all[0].answer()
        if found.startswith("error"):
            raise Failed(found.removeprefix("error: "))
        return found

    def context(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.ask("context").split("\t") if word)

    def check(self, who: str) -> tuple[float, float]:
        error, bound = map(float, self.ask("check", who).split())
        return error, bound

    def time(self, who: str, launches: int) -> list[float]:
        return list(map(float, self.ask("time", who, launches).split()))

    def drop(self) -> None:
        if not self.is_over():
            self.ask("drop")


class RankProcesses(Place):
    """One process per GPU. All get the same requests, and the slowest determines the time."""

    def __init__(self, ranks: int, library: pathlib.Path) -> None:
        super().__init__()
        self.ranks, self.library = ranks, library

    def begin(self) -> list[Asked]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        env = {"WORLD_SIZE": str(self.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "FLASHBOOK_LIBRARY": str(self.library.resolve()),
               "PYTHONPATH": os.pathsep.join([str(results.ROOT / "python"), os.environ.get("PYTHONPATH", "")])}
        return [Asked([sys.executable, __file__, "--as-rank"], env | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, "@") for rank in range(self.ranks)]

    def exchange(self, *words: object) -> list[Any]:
        for asked in self.all:
            asked.tell(json.dumps(words))
        found = [json.loads(asked.answer()) for asked in self.all]
        for answer in found:
            if "error" in answer:
                raise Failed(answer["error"])
        return [answer["is"] for answer in found]

    def context(self) -> dict[str, str]:
        return dict(self.ask("context")[0])

    def check(self, who: str) -> tuple[float, float]:
        errors = list(map(float, self.ask("check", who)))
        return math.nan if any(map(math.isnan, errors)) else max(errors), 0.01

    def time(self, who: str, launches: int) -> list[float]:
        return [max(times) for times in zip(*self.ask("time", who, launches))]


# ---- a cell ------------------------------------------------------------------------------------------------------------------------


class Cell:
    """Tensors of one shape, and the contestants timed with them."""

    def __init__(self, options: Any, kind: str, seqlen: int) -> None:
        self.options, self.kind, self.seqlen = options, kind, seqlen
        self.mask = "causal" if kind == "gradient" else kind
        self.alone = ALONE[kind]

    def contestants(self) -> dict[str, tuple[str, str]]:
        """Returns {name of the result: (place, the contestant's name there)}"""
        who, steps = self.options.who, STEPS[self.kind]
        behind = "_gradient" if self.kind == "gradient" else ""
        found = {self.alone: ("one", self.alone)}
        if "ch10" in who:
            found |= {f"ch10/{step}": ("one", f"ch10/{step}/copies/0") for step in steps}
            found |= {f"ch10/{step}_striped": ("one", f"ch10/{step}/copies/0/striped") for step in STRIPED.get(self.kind, ())}
            found |= {f"ch10/{step}_nccl": ("one", f"ch10/{step}/nccl/{MARGIN}") for step in steps if step != "ring"}
            found |= {f"ch10/{step}_nccl_no_margin": ("one", f"ch10/{step}/nccl/0") for step in steps if step in NO_MARGIN}
        if self.kind in ("documents", "decode"):  # PyTorch's result has nothing to be compared with
            return found
        if "python" in who:
            found["python" + behind] = ("ranks", "python" + behind)
        if "peers" in who:
            found |= {f"cp_cudnn_{rotation}{behind}": ("ranks", f"cp_cudnn_{rotation}{behind}") for rotation in ROTATIONS}
        return found

    def name(self, contestant: str) -> str:
        options = self.options
        suffix = f"_p{options.ranks}" if options.ranks != 2 else ""
        if (options.heads, options.kv_heads) != (16, 16):
            suffix = f"_p{options.ranks}h{options.heads}" + (f"k{options.kv_heads}" if options.kv_heads != options.heads else "")
        return str(Name("many", contestant, "bf16", options.head_dim, self.mask + suffix, self.seqlen))

    def seconds(self) -> float:
        """Returns an estimate of the cell's time: launches at 400 TFLOP/s per GPU, plus overhead."""
        options = self.options
        pairs = self.seqlen if self.kind == "decode" else self.seqlen**2 / (1 if self.mask == "full" else 2)
        flops = 4 * options.head_dim * options.heads * pairs * (2.5 if self.kind == "gradient" else 1)
        launches = (self.rounds() * self.launches() + 3) * len(self.contestants())
        return float(3 + launches * (flops / (4e14 * options.ranks) + 0.03))

    def rounds(self) -> int:
        return self.options.rounds if self.seqlen < 128 * 1024 else min(self.options.rounds, 3) if self.seqlen < 512 * 1024 else 1

    def launches(self) -> int:
        if self.kind == "decode":
            return DECODE_LAUNCHES + 1
        return LAUNCHES + 1 if self.seqlen < 128 * 1024 else 2 if self.seqlen < 512 * 1024 else 1  # the first launch is a warm-up


def measure(cell: Cell, places: dict[str, Any], shuffle: Any, wrong: list[str]) -> list[dict[str, Any]]:
    """Returns the entries of a cell's results. Wrong results of ours are added to `wrong` and get no entry."""
    options = cell.options
    shape = (options.heads, options.kv_heads, options.head_dim, cell.seqlen)
    contestants = cell.contestants()
    skipped: dict[str, str] = {}
    values: dict[str, dict[str, float]] = {who: {} for who in contestants}
    times: dict[str, list[float]] = {who: [] for who in contestants}
    flops = math.nan
    try:
        flops = list(map(float, places["one"].ask("cell", options.ranks, *shape, cell.mask).split()))[cell.kind == "gradient"]
    except Silent as reason:
        skipped = dict.fromkeys(contestants, f"the tensors could not be created: {reason}")
    on_ranks = [who for who, (place, _) in contestants.items() if place == "ranks" and who not in skipped]
    if on_ranks and "ranks" in places:
        try:
            places["ranks"].ask("cell", *shape, cell.mask == "causal")
        except Failed as reason:
            skipped |= dict.fromkeys(on_ranks, f"the tensors could not be created: {reason}")
    else:
        skipped |= dict.fromkeys(on_ranks, "not here")

    def ask(who: str, verb: str, *more: int) -> Any:
        """Returns the answer for a contestant. Without an answer the contestant is skipped."""
        place, called = contestants[who]
        found = None
        try:
            found = getattr(places[place], verb)(called, *more)
        except Failed as reason:
            skipped[who] = str(reason)
        if cell.seqlen > KEPT and place == "one":
            try:
                places["one"].drop()
            except Failed as reason:
                skipped.setdefault(who, str(reason))
        return found

    for who in contestants:
        if who in skipped:
            continue
        answer = ask(who, "check")
        if who in skipped:
            continue
        error, bound = answer
        values[who] = {"error": error, "error_bound": bound}
        if not error <= bound:
            skipped[who] = f"error {error:.1e}, bound {bound:.1e}"
            if who.startswith(("ch", "python")):
                wrong.append(f"{cell.name(who)}: {skipped[who]}")
    runners = [who for who in contestants if who not in skipped]
    for _ in range(cell.rounds()):
        shuffle(runners)
        for who in list(runners):
            if who in skipped:
                continue
            time.sleep(race.NAP)
            found = ask(who, "time", cell.launches())
            if who not in skipped:
                times[who].append(statistics.median(found[len(found) > 1:]))
    alone = times[cell.alone]
    peers = [times[who] for who in contestants if who.startswith("cp_") and who not in skipped]
    entries = []
    for who in contestants:
        name = cell.name(who)
        entry: dict[str, Any] = {"name": name, "run_name": name, "run_type": "iteration", "iterations": 1, "real_time": 0.0, "cpu_time": 0.0,
                                 "time_unit": "ms", "label": f"{options.ranks} GPUs" if who != cell.alone else "1 GPU"}
        if any(text.startswith(name + ":") for text in wrong):
            continue
        if who in skipped:
            entries.append(entry | {"error_occurred": True, "error_message": skipped[who], "label": "skipped"})
            continue
        mine = times[who]
        middle = statistics.median(mine)
        entry |= {"real_time": middle, "FLOPS": flops / (middle * 1e-3), "rounds": len(mine), "launches": cell.launches(),
                  "ranks": 1 if who == cell.alone else options.ranks, "heads": options.heads, "spread": (max(mine) - min(mine)) / middle}
        if who != cell.alone and cell.alone not in skipped:
            entry["share"] = statistics.median(one / (options.ranks * all_) for one, all_ in zip(alone, mine))
        if who.startswith(("ch10", "python")) and peers:
            entry["vs_context_parallel"] = statistics.median(min(theirs) / ours for *theirs, ours in zip(*peers, mine))
        entries.append(entry | values[who])
    return entries


def hops(one: Any, ranks: int) -> list[dict[str, Any]]:
    """Returns the time to send messages to the next rank while receiving as many, on all ranks at once: machine/hop/copies_64mb."""
    entries = []
    for how in ("copies", "nccl"):
        for messages, megabytes in HOPS:
            name = f"machine/hop/{how}_{f'{messages}x' if messages > 1 else ''}{megabytes}mb"
            entry = {"name": name, "run_name": name, "run_type": "iteration", "iterations": 1, "real_time": 0.0, "cpu_time": 0.0, "time_unit": "ms",
                     "label": "each way, all ranks at once"}
            try:
                middle = statistics.median(list(map(float, one.ask("ring", ranks, how, messages, megabytes << 20, 7).split()))[2:])
                entries.append(entry | {"real_time": middle, "bytes_per_second": messages * (megabytes << 20) / (middle * 1e-3), "ranks": ranks})
            except Failed as reason:
                entries.append(entry | {"error_occurred": True, "error_message": str(reason), "label": "skipped"})
    return entries


# ---- the program -------------------------------------------------------------------------------------------------------------------


def parse() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, help="default: same as --heads")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--seqlen", type=race.whole_numbers, help="default: 8k to 1M, most important first")
    parser.add_argument("--mask", **race.some_of(tuple(ALONE), "documents have a causal mask"))
    parser.add_argument("--who", **race.some_of(("ch10", "python", "peers"), "contestants besides one GPU alone"))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--resume", action="store_true", help="accepted for bench/release; --out is always continued")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", type=pathlib.Path, default=results.ROOT / "build" / "gpu" / "bin" / "many")
    parser.add_argument("--library", type=pathlib.Path, default=results.ROOT / "build" / "gpu" / "lib" / "libflashbook.so")
    parser.add_argument("--out", type=pathlib.Path, help="write to this file instead of bench/results/<gpu>/, and continue it if it exists")
    options = parser.parse_args()
    options.is_left = False  # whether cells were left out
    options.kv_heads = options.kv_heads or options.heads
    if options.ranks < 1 or options.rounds < 1:
        parser.error("--ranks and --rounds must be at least 1")
    return options


def cells_of(options: Any) -> list[Cell]:
    if options.seqlen:
        return [Cell(options, kind, seqlen) for kind in options.mask for seqlen in options.seqlen]
    return [Cell(options, kind, thousands * 1024) for kind, thousands in CELLS if kind in options.mask]


def told_by_driver(*words: str) -> list[str]:
    """Returns nvidia-smi's output; empty if it is missing."""
    try:
        return subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=False).stdout.splitlines()
    except OSError:
        return []


def links() -> str:
    """Returns the link between the first two GPUs, such as NV18."""
    row = next((line.split() for line in told_by_driver("topo", "-m") if line.startswith("GPU0")), [])
    return row[2] if len(row) > 2 else "unknown"


def run(options):
    began = time.monotonic()
    places: dict[str, Any] = {"one": OneProcess(options.program)}
    whole: dict[str, Any] = {"context": {}, "benchmarks": []}
    wrong: list[str] = []
    try:
        context = places["one"].context() | {"commit": results.commit()}
        if options.out.exists():
            before = json.loads(options.out.read_text())
            if before["context"].get("commit") == context["commit"]:
                whole = before
        done = {entry["name"] for entry in whole["benchmarks"]}
        if not any(name.startswith("machine/hop") for name in done):
            whole["benchmarks"] += hops(places["one"], options.ranks)
        for cell in cells_of(options):
            if all(cell.name(who) in done for who in cell.contestants()):
                continue
            if time.monotonic() - began + cell.seconds() > options.seconds:
                options.is_left = True
                print(f"{cell.kind} {cell.seqlen}: not started, it would take about {cell.seconds():.0f} s", flush=True)
                continue
            if "ranks" not in places and set(options.who) & {"python", "peers"}:
                try:
                    places["ranks"] = RankProcesses(options.ranks, options.library)
                    context |= places["ranks"].context()
                except Failed as reason:
                    print(f"no processes for PyTorch: {reason}", file=sys.stderr)
                    options.who = [who for who in options.who if who == "ch10"]
                    places.pop("ranks").end()
            entries = measure(cell, places, random.Random(race.SEED).shuffle, wrong)
            context["date"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            whole["context"] |= context | {"cards": str(options.ranks), "links": links()}
            names = {entry["name"] for entry in entries}
            whole["benchmarks"] = [entry for entry in whole["benchmarks"] if entry["name"] not in names] + entries
            options.out.write_text(json.dumps(whole, indent=1) + "\n")
            for entry in entries:
                told = entry.get("error_message") or race.told(entry) + (f"  share {entry['share']:.3f}" if "share" in entry else "")
                print(f"{entry['name']:50} {told}", flush=True)
        if wrong:
            raise race.Wrong("; ".join(wrong))
    except Failed as reason:
        raise results.Refused(str(reason)) from None
    finally:
        for place in places.values():
            place.end()


def main():
    options = parse()
    if options.as_rank:
        OfRank().serve()
        return 0
    if not options.program.exists():
        print(f"{options.program} is missing: cmake --build --preset gpu --target many flashbook_shared", file=sys.stderr)
        return 2
    simulated = Asked([options.program], {})
    simulated.tell("context")
    is_simulated = "machine=simulator" in simulated.answer()
    simulated.end()
    if not is_simulated and len(told_by_driver("-L")) < options.ranks:
        print(f"many.py: {options.ranks} ranks need {options.ranks} GPUs; chapter 10's program runs any number of ranks on one", file=sys.stderr)
        return 77
    code = race.filed("many.py", options, lambda: run(options))
    return race.UNFINISHED if code == 0 and options.is_left else code


if __name__ == "__main__":
    sys.exit(main())
