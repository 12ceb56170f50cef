#!/usr/bin/env python3
"""Runs an untrusted command in a sandbox that needs no privileges: fence.py PLAN COMMAND..., where PLAN is JSON from sandbox.py.

Resource limits bound time, memory, files and processes. Landlock lets the command read the system's files and its own program, and write only its
own folder. seccomp allows just the system calls that a compiler and a simulated kernel make: no sockets, no links, no change of a file's owner or
mode, no new session or namespace, no signals to other processes. Mechanisms that this machine lacks are skipped; `probe` finds out what that
permits."""
import ctypes
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from typing import Any

CALLS = """
    read write readv writev pread64 pwrite64 lseek close stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat
    getdents64 getcwd dup dup2 dup3 pipe pipe2 ftruncate fsync fadvise64 unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir umask
    poll ppoll select pselect6 mmap munmap mprotect mremap madvise brk execve exit exit_group wait4 waitid fork vfork futex
    set_tid_address set_robust_list rseq arch_prctl getpid gettid getppid getpgrp getuid geteuid getgid getegid getrusage sysinfo uname getrlimit
    sched_getaffinity sched_yield getrandom getcpu rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall nanosleep clock_nanosleep
    clock_gettime clock_getres gettimeofday time times setitimer timer_create timer_settime timer_delete""".split()
CHECKED = ("open", "openat", "clone", "ioctl", "fcntl", "kill", "tgkill", "prlimit64")  # allowed for some arguments
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
NAMESPACES = 0x7E020000 | 0x8000  # CLONE_NEW* and CLONE_PARENT
FCNTL = (*range(8), 1030)  # duplicates, flags and locks, but not F_SETOWN
TCGETS, TRUNCATING = 0x5401, 0o1000  # isatty; O_TRUNC
EPERM, ENOSYS = 1, 38
# Access rights from linux/landlock.h.
EXECUTE, WRITE, READ, LIST, REMOVE_FOLDER, REMOVE, MAKE_FOLDER, MAKE, TRUNCATE = (1 << bit for bit in (0, 1, 2, 3, 4, 5, 7, 8, 14))
OF_FILES = EXECUTE | WRITE | READ | TRUNCATE
OWN = WRITE | READ | LIST | REMOVE_FOLDER | REMOVE | MAKE_FOLDER | MAKE | TRUNCATE

libc = ctypes.CDLL(None, use_errno=True)


def lock_files(own: str, readable: Sequence[str], devices: Sequence[str], newest: int) -> None:
    """Applies Landlock at the version that this kernel supports, at most `newest`."""
    version = min(newest, libc.syscall(444, None, 0, 1))
    if version < 1:
        return
    handled = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    attributes = struct.pack("=QQQ", handled, 3, 3)[:8 if version < 4 else 16 if version < 6 else 24]
    rules = libc.syscall(444, attributes, len(attributes), 0)
    for paths, rights in (([own], OWN), (readable, EXECUTE | READ | LIST), (devices, READ | WRITE)):
        for path in paths:
            place = os.open(path, os.O_PATH)
            of_kind = handled if os.path.isdir(path) else OF_FILES & handled
            if libc.syscall(445, rules, 1, struct.pack("=Qi", rights & of_kind, place), 0):
                raise OSError(ctypes.get_errno(), "landlock_add_rule", path)
            os.close(place)
    if libc.syscall(446, rules, 0):
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    os.close(rules)


def program(numbers: dict[str, int]) -> bytes:
    """Returns the seccomp filter. `numbers`: this machine's system call numbers."""
    code = b""

    def instruction(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("=HBBI", operation, if_true, if_false, value)

    def load(offset: int) -> bytes:
        return instruction(0x20, offset)

    allow, refuse = instruction(0x06, 0x7FFF0000), instruction(0x06, 0x50000 | EPERM)

    def equal(values: Sequence[int]) -> bytes:
        return b"".join(instruction(0x15, value, 0, 1) + allow for value in values) + refuse

    def opening(flags: int) -> bytes:
        """Refuses O_RDONLY | O_TRUNC, which Landlock treats as a read, and access mode 3 (neither reading nor writing), for which it requires no
        right: versions 1 and 2 let both truncate."""
        return (load(flags) + instruction(0x54, 3) + instruction(0x15, 3, 4, 0) +
                load(flags) + instruction(0x54, TRUNCATING | 3) + instruction(0x15, TRUNCATING, 1, 0) + allow + refuse)

    arguments = {"open": opening(24), "openat": opening(32), "clone": load(16) + instruction(0x45, NAMESPACES, 1, 0) + allow + refuse,
                 "ioctl": load(24) + equal([TCGETS]), "fcntl": load(24) + equal(FCNTL),
                 **dict.fromkeys(("kill", "tgkill"), load(16) + equal([os.getpid()])), "prlimit64": load(16) + equal([0])}
    code += load(4) + instruction(0x15, ARCHITECTURES[os.uname().machine], 1, 0) + refuse + load(0)
    for name, number in numbers.items():
        body = arguments.get(name, allow)
        code += instruction(0x15, number, 0, len(body) // 8) + body
    return code + instruction(0x15, 435, 0, 1) + instruction(0x06, 0x50000 | ENOSYS) + refuse  # clone3: glibc then calls clone


def lock_calls(numbers: dict[str, int]) -> None:
    if not numbers or os.uname().machine not in ARCHITECTURES:
        return
    code = program(numbers)
    buffer = ctypes.create_string_buffer(code)
    libc.prctl(22, 2, ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))), 0, 0)


def probe(secret: str, program: str) -> list[str]:
    """Lists the forbidden operations that succeed. `secret`: another user's file with mode 0666; `program`: a file that the sandbox lets it
    read."""
    found: list[str] = []

    def attempt(what: str, do: Any) -> None:
        try:
            if do() != -1:
                found.append(what)
        except OSError:
            pass

    attempt("read outside its folder", lambda: os.open(secret, os.O_RDONLY))
    attempt("write outside its folder", lambda: os.open(secret, os.O_WRONLY))
    attempt("truncate a file outside its folder", lambda: os.truncate(secret, 0))
    attempt("truncate a file outside its folder by access mode 3", lambda: os.open(secret, 3 | os.O_TRUNC))
    attempt("truncate a file it may read", lambda: os.open(program, os.O_RDONLY | os.O_TRUNC))
    for place in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/usr"):
        mark = f"{place}/flashbook-{os.getpid()}"
        attempt(f"make a file in {place}", lambda mark=mark: os.open(mark, os.O_CREAT | os.O_WRONLY | os.O_EXCL))
        if os.path.exists(mark):
            os.unlink(mark)
    attempt("leave a symbolic link", lambda: os.symlink("/etc/passwd", "symbolic"))
    attempt("leave a hard link", lambda: os.link(secret, "hard"))
    attempt("change a file's mode", lambda: os.chmod(".", 0o777))
    attempt("go to another folder", lambda: os.chdir("/"))
    attempt("reach the network", lambda: libc.socket(2, 1, 0))
    attempt("signal another process", lambda: os.kill(os.getppid(), 0))
    attempt("make a namespace", lambda: libc.unshare(0x10000000))
    attempt("share memory with others", lambda: libc.shmget(0, 4096, 0o1666))
    attempt("trace another process", lambda: libc.ptrace(16, os.getppid(), 0, 0))
    return found


def main() -> None:
    plan, command = json.loads(sys.argv[1]), sys.argv[2:]
    for name, value in plan["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges
    if plan["is_fenced"]:
        lock_files(plan["own"], plan["readable"], plan["devices"], plan["landlock"])
    if plan["user"]:
        os.setgroups([])
        os.setresgid(*[plan["user"]] * 3)
        os.setresuid(*[plan["user"]] * 3)
    if plan["is_fenced"]:
        lock_calls(plan["calls"])
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these signals
        signal.signal(number, signal.SIG_DFL)
    if command[0] == "probe":
        print(*probe(*command[1:]), sep="\n", end="")
    else:
        os.execvp(command[0], command)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        print(f"{error.filename or ''}: {error.strerror}")
        sys.exit(127)
