"""Chooses where the tests run: on a GPU, if there is one and the library is built for it; otherwise on CPU tensors and smaller shapes, in the
simulator if the library is built for that, and else only with chapter 2.
"""

import os

import pytest
import torch

from flashbook import _library, interface, ops

GPU = torch.cuda.is_available() and not _library.is_simulated()
if os.environ.get("FLASHBOOK_REQUIRE_GPU") and not GPU:
    raise RuntimeError("FLASHBOOK_REQUIRE_GPU is set, but no GPU was found, or libflashbook.so is the simulator's")
DEVICE = "cuda" if GPU else "cpu"


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a GPU")
    config.addinivalue_line("markers", "kernels: needs a GPU or the simulator")


def pytest_collection_modifyitems(items):
    for item in items:
        if not GPU and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no GPU"))
        if not GPU and not _library.is_simulated() and item.get_closest_marker("kernels"):
            item.add_marker(pytest.mark.skip(reason="no GPU, and the library was built without the simulator"))


@pytest.fixture(autouse=True)
def seed(request, monkeypatch):
    """Seeds every test alike. In the simulator, CPU tensors use the GPU's kernels and not those of chapter 2."""
    torch.manual_seed(0)
    if not request.node.get_closest_marker("kernels"):
        return
    monkeypatch.setattr(ops, "_plans", {})
    monkeypatch.setattr(interface, "_cached_calls", {})
    if not GPU:
        choose = ops.choose
        monkeypatch.setattr(ops, "choose", lambda on_cpu, *others: choose(False, *others))
