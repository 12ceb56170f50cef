"""Runs programs that measure, small and without a clock: python/examples/train_text.py, bench/in_triton.py, and the calls of
bench/as_called.py."""

import argparse
import os
import pathlib
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "python" / "examples")]

import train_text
from conftest import DEVICE

from bench import as_called


@pytest.fixture(autouse=True)
def pytorch(monkeypatch):
    monkeypatch.setattr(as_called, "torch", torch)


def options(**others):
    return argparse.Namespace(**{"steps": 2, "turn": 1, "batch": 1, "length": 64, "width": 128, "layers": 1, "eager": True, **others})


def test_eager_takes_turns_and_learns_the_same():
    models, found = train_text.train_all(options(), torch.device(DEVICE, 0))
    assert set(models) == {"flashbook", "sdpa", "eager"}
    for of in (found.seconds, found.peaks):
        assert all(len(turns) == 2 for turns in of.values())
    for kernel in ("flashbook", "sdpa"):
        assert found.losses[kernel] == pytest.approx(found.losses["eager"], abs=0.01)
    for weight, other in zip(models["sdpa"].parameters(), models["eager"].parameters()):
        assert torch.isfinite(weight).all() and (weight - other).abs().max() < 0.01


def test_written_out_is_attention():
    q, k, v = (torch.randn(2, 3, 40, 64, device=DEVICE) for _ in range(3))
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(train_text.written_out(q, k, v), exact, atol=1e-4)


@pytest.mark.kernels
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("shape", [{"lengths": (64, 64)}, {"lengths": (64, 64), "causal": False}, {"lengths": (100,), "window": 20},
                                   {"lengths": (50, 1, 49), "packed": "ragged"}], ids=str)


def test_calls_are_checked_before_they_are_timed(shape, backward):
    """Ours and PyTorch's pass the check, and a result that differs in the last head does not."""
    cell = as_called.Cell(4, 2, head_dim=64, backward=backward, **shape)
    problem, found, _ = as_called.contestants_of(argparse.Namespace(peers=["cudnn"]), cell, None, DEVICE)
    called = [contestant for contestant in found if contestant.called]
    assert [contestant.who[:2] for contestant in called] == ["ch"] + ["cu"] * (cell.window < 0 and not cell.packed)
    for contestant in called:
        error, bound = as_called.largest_error(problem, contestant.run())
        assert error <= bound, problem.name(contestant)
    results = called[0].run()
    results = results if backward else (results,)
    results[-1].view(-1)[-1] += 1
    error, bound = as_called.largest_error(problem, results)
    assert not error <= bound


IN_TRITON = """
import torch
from bench import in_triton
in_triton.torch = torch
torch.manual_seed(0)
q, k, v = (torch.randn(1, 2, 256, 64, dtype=torch.float16) for _ in range(3))
for causal in (False, True):
    run, lse = in_triton.launcher(q, k, v, causal, 0.125, (128, 64, 4, 2))
    scores = q.double() @ k.double().mT * 0.125
    if causal:
        scores = scores.masked_fill(torch.ones(256, 256, dtype=torch.bool).triu(1), -torch.inf)
    assert (run() - scores.softmax(-1) @ v.double()).abs().max() < 2e-3
    assert (lse - scores.logsumexp(-1)).abs().max() < 1e-4
"""


def test_triton_computes_attention():
    """Runs in Triton's interpreter, which must be selected before importing Triton and needs NumPy before 2.4."""
    pytest.importorskip("triton")
    numpy = pytest.importorskip("numpy")
    if tuple(map(int, numpy.__version__.split(".")[:2])) >= (2, 4):
        pytest.skip("Triton's interpreter does not support this NumPy")
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    told = subprocess.run([sys.executable, "-c", IN_TRITON], env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
