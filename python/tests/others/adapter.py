"""A pytest plugin that runs FlashAttention's or FlashInfer's own tests on this package. run.py starts it.

The tests import `flash_attn`, FlashAttention-3's `flash_attn_interface`, or `flashinfer`. The plugin provides these as modules with the package's functions,
and takes the rest of `flash_attn` (padding and rotary embedding in Python) from FlashAttention's source. With the simulator, tensors that a test
puts on "cuda" are on the CPU. A test that raises an error of refusals.py counts as refused; any other error is a failure.
"""

import collections
import functools
import json
import os
import pathlib
import random
import re
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import flashinfer_names
import pytest
import torch
from refusals import refusal_of
from torch.overrides import TorchFunctionMode

import flashbook
from flashbook import _library, flash_attn_3, ops

ON_CPU = _library.is_simulated()
# Tests that do not apply to the package: they are skipped and listed in the report.
_OPERATORS = "tests FlashAttention's own operators, which the package does not have"
LEFT_OUT = {"test_flash3_bw_compatibility": _OPERATORS, "test_flash_attn_varlen_paged_kv_num_splits": _OPERATORS,
            "test_flash_attn_generator_arg_must_be_none": _OPERATORS,
            "test_batch_decode_rejects_unequal_kv_strides_nvfp4_contract": "expects an error where the package computes",
            "test_tensor_core_decode_rejects_mismatched_q_len": "expects FlashInfer's error message",
            "test_single_prefill_torch_compile_cuda_graph": _OPERATORS.replace("FlashAttention", "FlashInfer"),
            "test_single_decode_torch_compile_cuda_graph": _OPERATORS.replace("FlashAttention", "FlashInfer"),
            "test_flash_attn_kvcache_paged_block_table_bounds": "the values of a cache_seqlens tensor are not checked, since that would wait for the device"}
_PACKAGE = pathlib.Path(flashbook.__file__).parent
MAX_NAMED = 100  # failures in a report
BEGIN, OUTCOME, REFUSED = pytest.StashKey[float](), "outcome", "refused for"


# ---- FlashAttention's names --------------------------------------------------------------------------------------------------------


def _with_windows(function: Callable[..., Any]) -> Callable[..., Any]:
    """Converts a window, which FlashAttention's tests draw as a CPU tensor, to the two numbers that the package expects."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if isinstance(window := options.get("window_size"), torch.Tensor):
            options["window_size"] = tuple(window.tolist())
        return function(*arguments, **options)

    return call


def _module(name: str, source: types.ModuleType, names: list[str], **others: Any) -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
    for function in names:
        setattr(module, function, _with_windows(getattr(source, function)))
    for other, value in others.items():
        setattr(module, other, value)
    return module


def install(source: pathlib.Path) -> None:
    """Installs the package's functions under FlashAttention's and FlashInfer's names."""
    flashinfer_names.install()
    theirs = [name for name in dir(flashbook) if name.startswith("flash_attn_") and name != "flash_attn_3"]
    _module("flash_attn", flashbook, theirs, __path__=[str(source / "flash_attn")])
    _module("flash_attn.flash_attn_interface", flashbook, theirs, USE_TRITON_ROCM=False, _get_block_size_n=lambda *_: 128)
    _module("flash_attn_interface", flash_attn_3, [name for name in dir(flash_attn_3) if name.startswith(("flash_attn_", "get_"))])


# ---- "cuda" with the simulator -----------------------------------------------------------------------------------------------------


def _is_cuda(device: object) -> bool:
    return isinstance(device, (str, torch.device)) and torch.device(device).type == "cuda"


class OnCpu(TorchFunctionMode):
    """Replaces "cuda" by the CPU."""

    def __torch_function__(self, function: Any, kinds: Any, arguments: tuple[Any, ...] = (), options: dict[str, Any] | None = None) -> Any:
        if function is torch.Tensor.cuda:
            return arguments[0]
        if function is torch.Tensor.to:
            arguments = (arguments[0], *("cpu" if isinstance(of, int) or _is_cuda(of) else of for of in arguments[1:]))
        options = dict(options or {})
        if _is_cuda(options.get("device")):
            options["device"] = "cpu"
        return function(*arguments, **options)


def simulate() -> None:
    """Makes torch.cuda report a Hopper GPU, and CPU tensors use its kernels."""
    ops.ON_CPU = ops.HOPPER, "persistent"
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(total_memory=1 << 40, multi_processor_count=132)
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_: None


# ---- the plugin --------------------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("others")
    group.addoption("--source", help="the source of the tests' package")
    group.addoption("--commit", help="its commit, for the report")
    group.addoption("--longest", type=int, help="leave out cases whose seqlen, seqlen_q or seqlen_k is larger")
    group.addoption("--sample", type=int, help="run only N cases of each test, drawn with a fixed seed")
    group.addoption("--seconds", type=float, help="start no test after N seconds; cases run in an order drawn with a fixed seed")
    group.addoption("--report", help="write the counts to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    install(pathlib.Path(config.getoption("--source")))
    if ON_CPU:
        simulate()
    config.pluginmanager.register(Counts(config), "results of other packages' tests")


def _wants_gpu(item: pytest.Item) -> bool:
    """Returns whether a test needs a GPU: FlashAttention's rotary embedding is a Triton kernel, and its race test fills
    70 GB."""
    return bool(_parameters(item).get("rotary_fraction")) or "race_condition" in item.nodeid


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def _lengths(parameters: dict[str, Any]) -> list[int]:
    return [value for name, value in parameters.items() if re.match(r"seqlen|seq_len$|\w+_len$", name) and isinstance(value, int)]


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Draws the sample before tests are created: FlashAttention has hundreds of thousands, and creating them takes minutes."""
    longest, sample = metafunc.config.getoption("--longest"), metafunc.config.getoption("--sample")
    cases = getattr(metafunc, "_calls", None)  # private to pytest; without it the sample is drawn from the tests
    if not sample or not cases:
        return
    short = [case for case in cases if not longest or max(_lengths(case.params), default=0) <= longest]
    chosen = short if len(short) <= 4 * sample else random.Random(metafunc.function.__name__).sample(short, 4 * sample)  # some are dropped later
    cases[:] = chosen or cases[:1]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    longest, sample = config.getoption("--longest"), config.getoption("--sample")
    items[:] = [item for item in items if item.originalname not in LEFT_OUT]  # type: ignore[attr-defined]
    if ON_CPU:
        items[:] = [item for item in items if not _wants_gpu(item)]
    if longest:
        items[:] = [item for item in items if max(_lengths(_parameters(item)), default=0) <= longest]
    if sample:
        by_test: dict[str, list[pytest.Item]] = collections.defaultdict(list)
        for item in items:
            by_test[item.nodeid.partition("[")[0]].append(item)
        drawn = random.Random(1)
        items[:] = [item for cases in by_test.values() for item in drawn.sample(cases, min(sample, len(cases)))]
    if config.getoption("--seconds"):
        random.Random(2).shuffle(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[BEGIN] = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    seconds = item.config.getoption("--seconds")
    if seconds and time.monotonic() - item.config.stash[BEGIN] > seconds:
        item.session.shouldstop = "out of time"  # skipping the rest, hundreds of thousands, would take minutes
        item.user_properties.append((OUTCOME, "out of time"))
        pytest.skip("out of time")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    if not ON_CPU:
        yield
        return
    with OnCpu():
        yield


def pytest_runtest_teardown() -> None:
    if not ON_CPU:  # other processes of pytest-xdist need the memory
        torch.cuda.empty_cache()


class Counts:
    """Counts tests that passed, failed or were refused, with the reasons. They are stored in the reports, which may come from pytest-xdist's workers."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.counts: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()
        self.failed: list[str] = []

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = (yield).get_result()  # type: ignore[misc]
        if call.excinfo is not None and report.failed:
            raised_at = pathlib.Path(str(call.excinfo.traceback[-1].path))
            refusal = refusal_of(call.excinfo.value)
            if refusal is not None and (raised_at.is_relative_to(_PACKAGE) or raised_at.parent == pathlib.Path(__file__).parent):
                report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"refused: {refusal.name}")
                report.user_properties += [(OUTCOME, "refused"), (REFUSED, refusal.name)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        if report.skipped and OUTCOME in properties:
            self.counts[str(properties[OUTCOME])] += 1
            if REFUSED in properties:
                self.refused[str(properties[REFUSED])] += 1
        elif report.failed:
            self.counts["failed"] += 1
            self.failed.append(report.nodeid.rpartition("::")[2])
        elif report.skipped:
            self.counts["skipped by the test"] += 1
        elif report.when == "call":
            self.counts["passed"] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        machine = "simulator" if ON_CPU else torch.cuda.get_device_name()
        option = self.config.getoption
        found = {"machine": machine, "source": option("--commit"), "cases of each test": option("--sample") or "all", **{name: self.counts[name] for name in ("passed", "refused", "failed", "skipped by the test", "out of time")},
                 "refused for": dict(self.refused.most_common()), "which failed": self.failed[:MAX_NAMED],
                 "left out": LEFT_OUT}
        terminalreporter.write_line(json.dumps(found, indent=2))
        if path := self.config.getoption("--report"):
            pathlib.Path(path).write_text(json.dumps(found, indent=2) + os.linesep)
