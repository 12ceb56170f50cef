"""Tests context_parallel in processes started by torchrun: over Gloo in the simulator, over NCCL on GPUs."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
from conftest import GPU

import flashbook

WORKER = pathlib.Path(__file__).with_name("ranks_worker.py")


def torchrun(ranks, *arguments):
    return subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", WORKER, *arguments],
                          env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=600)


@pytest.mark.kernels
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_are_right_together(ranks):
    if GPU and torch.cuda.device_count() < ranks:
        pytest.skip(f"{ranks} ranks need a GPU each")
    done = torchrun(ranks)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("right") == ranks


@pytest.mark.kernels
def test_who_is_lost_ends_the_others():
    if GPU and torch.cuda.device_count() < 2:
        pytest.skip("2 ranks need a GPU each")
    done = torchrun(2, "lose one")
    assert done.returncode != 0 and "right" not in done.stdout


def test_without_processes_it_says_how_to_start_them():
    q = torch.randn(1, 4, 2, 64, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="torchrun"):
        flashbook.context_parallel(q, q, q)
