"""Captures every function as the first CUDA graph of a process."""

import concurrent.futures
import pathlib
import subprocess
import sys

import graph_worker
import pytest

WORKER = pathlib.Path(__file__).with_name("graph_worker.py")
NAMES = [*graph_worker.FORWARDS, *graph_worker.GRADIENTS, "flash_attn_func after_default", "varlen after_default"]


@pytest.fixture(scope="module")
def processes(request):
    """Yields {name: its process, a future}, for the tests that were selected. Eight run at a time, since a process mostly loads
    PyTorch."""
    names = [item.callspec.params["name"] for item in request.session.items if item.path == pathlib.Path(__file__)]
    run = lambda name: subprocess.run([sys.executable, WORKER, *name.split()], capture_output=True, text=True, timeout=300)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        yield {name: pool.submit(run, name) for name in names}


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_the_first_graph_of_a_process(name, processes):
    """Whatever a first call loads, allocates or requests must be done before a capture. After any error
    torch.cuda.graph ends a capture with "operation failed due to a previous error during capture"; the process prints
    the original error first."""
    done = processes[name].result()
    assert done.returncode == 0 and "captured" in done.stdout, done.stderr


@pytest.mark.kernels
@pytest.mark.parametrize("name", graph_worker.FORWARDS)
def test_the_calls_run(name):
    graph_worker.call_of(name)()
