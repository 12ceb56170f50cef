"""Ranks as processes: they give the same results as one process. If one is lost, the others report it, exit and leave no partial files.

processes_test.py PROGRAM: starts chapter 10's program several times, as torchrun and mpirun do, in the simulator.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv[1]
LONG = ["--seqlen", "6000", "--heads", "4", "--step", "3", "--check", "off", "--reps", "1000"]  # never finishes
ENDS = 60  # seconds within which a rank exits after losing another, even on a busy machine


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def torchrun(rank, ranks, port):
    return {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def mpirun(rank, ranks, port):
    return {f"OMPI_COMM_WORLD_{name}": value for name, value in (("RANK", rank), ("SIZE", ranks), ("LOCAL_RANK", rank), ("LOCAL_SIZE", ranks))
            } | {"MASTER_PORT": port}


def start(said, *options):
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("OMPI_", "TORCHELASTIC_")) and name not in torchrun(0, 0, 0)}
    return subprocess.Popen([PROGRAM, *options], env=clean | {name: str(value) for name, value in said.items()}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finished(processes, seconds=300):
    """Returns [(exit code, stdout, stderr)]"""
    deadline = time.monotonic() + seconds
    try:
        texts = [process.communicate(timeout=max(0.1, deadline - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    return [(process.returncode, *text) for process, text in zip(processes, texts)]


def wait_until_they_have_met(port, ranks):
    """Waits until rank 0 is connected to every other rank, then half a second for the connections between the others."""
    at_port = f":{port:04X}"
    for _ in range(10 * ENDS):
        connections = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        if sum(local.endswith(at_port) and state == "01" for _, local, _, state, *_ in connections) == ranks - 1:
            break
        time.sleep(0.1)
    else:
        expect(False, "the ranks are not connected", *connections)
    time.sleep(0.5)


def expect(condition, *seen):
    if not condition:
        print(*seen, sep="\n")
        sys.exit("processes_test.py: " + str(sys._getframe(1).f_code.co_name) + f", line {sys._getframe(1).f_lineno}")


def they_are_right_as_one_is():
    shape = ["--seqlen", "150", "--heads", "4", "--kv-heads", "2", "--causal"]
    with tempfile.TemporaryDirectory() as folder:
        one, all_ = pathlib.Path(folder, "one.npy"), pathlib.Path(folder, "all.npy")
        for launcher, ranks in ((torchrun, 2), (torchrun, 3), (mpirun, 2)):
            port = free_port()
            ends = finished([start({}, *shape, "--ranks", str(ranks), "--output", one)])
            ends += finished([start(launcher(rank, ranks, port), *shape, "--output", all_) for rank in range(ranks)])
            expect(all(code == 0 for code, _, _ in ends), ends)
            expect(f", {ranks} ranks" in ends[1][1] and "right" in ends[1][1], ends)
            expect(not any(out for _, out, _ in ends[2:]), ends)  # only one rank prints
            expect(one.read_bytes() == all_.read_bytes(), "other bits")
            for file in (one, all_):
                file.unlink()


def who_is_lost_is_named(signal_, reason, timeout):
    """Kills rank 1 of 3, and then rank 0, while the ranks work."""
    for lost in (1, 0):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder, "o.npy")
            port = free_port()
            processes = [start(torchrun(rank, 3, port), *LONG, "--timeout", str(timeout), "--output", output) for rank in range(3)]
            wait_until_they_have_met(port, 3)
            expect(all(process.poll() is None for process in processes), "they ended too early")
            processes[lost].send_signal(signal_)
            others = [process for rank, process in enumerate(processes) if rank != lost]
            ends = finished(others, timeout + ENDS)
            processes[lost].kill()
            processes[lost].communicate()
            expect(all(code == 1 for code, _, _ in ends), ends)
            expect(any(f"rank {lost}" in error and reason in error for _, _, error in ends), ends)
            expect(all(error.count("rank") >= 2 for _, _, error in ends), ends)
            expect(not os.listdir(folder), os.listdir(folder))


def a_killed_rank_is_named():
    who_is_lost_is_named(signal.SIGKILL, "ended before its work was done", 600)


def a_rank_that_hangs_is_named():
    who_is_lost_is_named(signal.SIGSTOP, "not responded for 3 s", 3)


def who_does_not_come_is_waited_for_so_long():
    for rank in (0, 1):
        (code, _, error), = finished([start(torchrun(rank, 2, free_port()), "--timeout", "1")], ENDS)
        expect(code == 1 and "has waited 1 s" in error and "--timeout" in error, code, error)


def ranks_of_two_launchers_do_not_mix():
    port = free_port()
    ends = finished([start(torchrun(0, 2, port), "--timeout", "5"), start(torchrun(1, 3, port), "--timeout", "5")], ENDS)
    expect(all(code == 1 for code, _, _ in ends) and "start all ranks with the same launcher" in ends[0][2], ends)


def a_stranger_is_passed_over():
    port = free_port()
    first = start(torchrun(0, 2, port))
    for _ in range(200):
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\nHost: flashbook\r\n\r\n" * 8)
                break
        except OSError:
            time.sleep(0.05)
    ends = finished([first, start(torchrun(1, 2, port))])
    expect(all(code == 0 for code, _, _ in ends), ends)


def what_cannot_be_is_refused():
    for said, options, cure in (({"WORLD_SIZE": 2}, [], "unset WORLD_SIZE"), ({"RANK": 1, "WORLD_SIZE": "two"}, [], "WORLD_SIZE is two"),
                                ({"RANK": 0, "WORLD_SIZE": 2}, [], "MASTER_ADDR is missing"), ({}, ["--transport", "sockets"], "torchrun"),
                                ({}, ["--transport", "nccl"], "NCCL"), ({}, ["--transport", "post"], "copies"), ({}, ["--timeout", "0"], "--timeout")):
        (code, _, error), = finished([start(said, *options)], ENDS)
        expect(code == 2 and cure in error, options, code, error)
    for options, cure in ((["--ranks", "3"], "leave it out"), (["--transport", "copies"], "sockets"), (["--transport", "nccl"], "NCCL")):
        port = free_port()
        for code, _, error in finished([start(torchrun(rank, 2, port), *options) for rank in range(2)], ENDS):
            expect(code == 2 and cure in error, options, code, error)
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        (code, _, error), = finished([start(torchrun(0, 2, port) | {"TORCHELASTIC_RUN_ID": "x"})], ENDS)
        expect(code == 2 and "--master-port" in error, code, error)  # torchrun's own server occupies the port


for test in (they_are_right_as_one_is, a_killed_rank_is_named, a_rank_that_hangs_is_named, who_does_not_come_is_waited_for_so_long,
             ranks_of_two_launchers_do_not_mix, a_stranger_is_passed_over, what_cannot_be_is_refused):
    begin = time.monotonic()
    test()
    print(f"{test.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
