"""Every function as the first CUDA graph of a process, after one call on a side stream."""

import pathlib
import subprocess
import sys

import graph_worker
import pytest

WORKER = pathlib.Path(__file__).with_name("graph_worker.py")


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*graph_worker.FORWARDS, *graph_worker.GRADIENTS])
def test_the_first_graph_of_a_process(name):
    """What a first call loads, allocates or asks for must not be left to the capture. torch.cuda.graph ends a capture that failed with
    "operation failed due to a previous error during capture", whatever the error was; the process prints that one first."""
    done = subprocess.run([sys.executable, WORKER, name], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "captured" in done.stdout, done.stderr
