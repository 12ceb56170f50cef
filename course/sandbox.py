"""Runs an untrusted program, a compiler reading a student's code or the compiled result, under fence.py and within limits of time, memory and
output. If the grader is root, each program runs under its own user id.

It is no vault: a program that exploits the Linux kernel gets out. `Sandbox.prove` tests the sandbox and lists in `missing` what it
fails
to stop on this machine."""
import functools
import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from course import fence, gtest
from course.regions import Broken

# Tools and libraries that every program may read, and devices that it may also write.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf",
          "/etc/ld.so.conf.d")
DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
LOOK = 0.1  # number of seconds between checks of a program's memory: each check scans all processes of the machine
NOBODIES = range(61000, 65000)  # range of unused user ids


@dataclass(frozen=True)
class Limits:
    seconds: float = 10
    memory: int = 2 << 30  # resident bytes, not address space: the simulator reserves more than the machine has
    file: int = 64 << 20  # limit per file
    output: int = 32 << 10  # number of bytes of output that are kept
    processes: int = 64


@dataclass(frozen=True)
class Outcome:
    code: int  # exit code; negative: the signal that ended it
    output: str
    seconds: float
    stopped: str = ""  # the reason why the program was stopped, if it was

    @property
    def trouble(self) -> str:
        """Why the program was stopped, or how it crashed; empty if it exited."""
        if self.stopped:
            return self.stopped
        return gtest.crash(self.code) if self.code < 0 else ""


def printable(text: str) -> str:
    """Returns text without control characters, which could overwrite earlier text on a terminal."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


def one_line(name: str) -> str:
    """Returns an untrusted name, safe to display."""
    return " ".join(printable(name).split())


def processes() -> list[Path]:
    """Returns the folders of all processes, any of which may be gone before it is read."""
    return [Path("/proc", name) for name in os.listdir("/proc") if name.isdigit()]


def threads(process: Path) -> list[str]:
    try:
        return os.listdir(process / "task")
    except OSError:
        return []  # the process has just ended


def threads_of_this_user() -> int:
    """Returns how many threads count towards RLIMIT_NPROC already."""
    return sum(len(threads(process)) for process in processes() if owner(process) == os.getuid())


def owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


@contextmanager
def own_folder(parent: str | Path | None = None) -> Iterator[Path]:
    """Yields a new folder that is removed with everything a program left in it."""
    folder = Path(tempfile.mkdtemp(prefix="own-", dir=parent))
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: str | Path) -> None:
    """Removes a folder of any depth: Python's own functions give up at a thousand nested folders."""
    for command in (["rm", "-rf", "--", folder], ["chmod", "-R", "u+rwx", "--", folder], ["rm", "-rf", "--", folder]):
        if os.path.lexists(folder):
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


@functools.cache
def calls() -> dict[str, int]:
    """Returns the numbers of the system calls that the sandbox allows, from this machine's compiler; empty if there is none."""
    text = "#include <sys/syscall.h>\n" + "\n".join(f"flashbook_{name} __NR_{name}" for name in (*fence.CALLS, *fence.CHECKED))
    for compiler in ("c++", "g++", "clang++"):
        try:
            said = subprocess.run([compiler, "-E", "-P", "-x", "c++", "-"], input=text, capture_output=True, text=True, check=True).stdout
            return {name: int(number) for name, number in re.findall(r"^flashbook_(\w+) (\d+)$", said, re.MULTILINE)}
        except (OSError, subprocess.CalledProcessError):
            pass
    return {}


class Sandbox:
    is_fenced: ClassVar[bool] = True  # tests change this and the next one, to run unfenced or as on older systems
    landlock: ClassVar[int] = 6  # the newest version that fence.py supports

    def __init__(self) -> None:
        self.lends = os.geteuid() == 0
        self.missing: list[str] = []
        with own_folder() as folder:
            done = self.run(["true"], folder)
        if done.code:
            raise Broken(f"a submission cannot be run{' as a user other than root' if self.lends else ''} here: {one_line(done.output)}")

    def prove(self) -> None:
        """Tries what a hostile program would try, and adds to `missing` whatever succeeds."""
        with own_folder() as top:
            top.chmod(0o755)
            own, other = top / "own", top / "other"
            own.mkdir()
            other.mkdir()
            other.chmod(0o777)
            secret, program = other / "secret", other / "program"
            for file in (secret, program):
                file.write_text("42\n")
                file.chmod(0o666)
            self.missing += self.run(["probe", secret, program], own, visible=[program]).output.splitlines()

            def says(script: str, limits: Limits = Limits()) -> Outcome:
                return self.run(["sh", "-c", script], own, limits)

            held = "((head -c 300m /dev/zero; sleep 9) | tail -c 300m >/dev/null) & wait"  # tail keeps all of it until head and sleep end
            if "MB of memory" not in says(held, Limits(seconds=60, memory=64 << 20)).stopped:
                self.missing.append("take more memory than its limit")
            if "done" in says("for i in $(seq 100); do sleep 2 & done; echo done", Limits(seconds=1, processes=16)).output:
                self.missing.append("start more processes than its limit")
            if not says("while :; do :; done", Limits(seconds=0.3)).stopped:
                self.missing.append("run for longer than its limit")
            says(f"(setsid sleep 60.{os.getpid()} &) ; true")
            if any(f"60.{os.getpid()}".encode() in line.split(b"\0") for line in command_lines()):
                self.missing.append("leave processes behind")

    @property
    def lack(self) -> str:
        """A clause listing what a submission can do here and should not; empty if nothing."""
        return f"a submission can {', '.join(self.missing)}" if self.missing else ""

    def command(self, command: Sequence[object], folder: Path, user: int, limits: Limits, visible: Iterable[object]) -> list[str]:
        """Returns `command` under fence.py."""
        others = 0 if self.lends else threads_of_this_user()
        bounds = {"CORE": 0, "FSIZE": limits.file, "NOFILE": 256, "CPU": int(limits.seconds) + 2, "NPROC": others + limits.processes}
        plan = {"limits": bounds, "own": str(folder), "readable": [path for path in (*SYSTEM, *map(str, visible)) if os.path.exists(path)],
                "devices": DEVICES, "user": user if self.lends else 0, "is_fenced": self.is_fenced, "landlock": self.landlock, "calls": calls()}
        return [sys.executable, "-I", "-S", fence.__file__, json.dumps(plan), *map(str, command)]

    @contextmanager
    def user(self) -> Iterator[int]:
        """Yields a user id that no other program runs as, not even one of another grader on this machine."""
        for user in random.sample(NOBODIES, len(NOBODIES)):
            with socket.socket(socket.AF_UNIX) as lent:
                try:
                    lent.bind(f"\0flashbook-user-{user}")  # an abstract address, which is free again once the socket is closed
                except OSError:
                    continue
                yield user
                return
        raise Broken("all user ids for submissions are in use: wait until other graders have ended")

    def run(self, command: Sequence[object], folder: str | Path, limits: Limits = Limits(), environment: Mapping[str, str] | None = None,
            visible: Iterable[object] = ()) -> Outcome:
        """Runs `command` in `folder`, the only place it may write. `visible`: what it may read in addition to SYSTEM."""
        folder = Path(folder).resolve()
        variables = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder), "LC_ALL": "C.UTF-8", **(environment or {})}
        start = time.monotonic()
        with self.user() as user:
            if self.lends:
                os.chown(folder, user, user)
            process = subprocess.Popen(self.command(command, folder, user, limits, visible), cwd=folder, env=variables, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, umask=0o022)
            with process:
                output, stopped = watch(process, start, limits, user if self.lends else -1)
        code = process.returncode
        return Outcome(128 - code if code > 128 else code, printable(output.decode(errors="replace")), time.monotonic() - start, stopped)


def command_lines() -> Iterator[bytes]:
    for process in processes():
        try:
            yield (process / "cmdline").read_bytes()
        except OSError:
            pass


def memory_of(process: Path) -> int:
    """Returns the bytes of memory that a process uses, including its page tables; -1 if it has ended. Asks each thread: if the main thread exits
    first, the process itself looks like a zombie without memory, while its other threads go on."""
    most = -1
    for thread in threads(process):
        try:
            text = (process / "task" / thread / "status").read_text(errors="replace")
        except OSError:
            continue  # the thread has just ended
        if not re.search(r"^State:\s*[ZX]", text, re.MULTILINE):
            most = max(most, sum(map(int, re.findall(r"^Vm(?:RSS|Swap|PTE):\s*(\d+) kB$", text, re.MULTILINE))) << 10)
    return most


def in_use(group: int, user: int) -> dict[int, int]:
    """Returns the bytes of memory that a program and its descendants use, by process: its process group, which nothing in the sandbox can
    leave, and all processes of `user` (-1: no user id was lent)."""
    found = {}
    for process in processes():
        try:
            is_its = int((process / "stat").read_bytes().rpartition(b")")[2].split()[2]) == group or owner(process) == user
        except (OSError, IndexError, ValueError):
            continue
        memory = memory_of(process) if is_its else -1
        if memory >= 0:
            found[int(process.name)] = memory
    return found


def end(group: int, user: int) -> None:
    """Kills the processes of the group and of the user, and returns when they are gone."""
    for _ in range(500):
        left = in_use(group, user)
        if not left:
            return
        for kill, target in ((os.killpg, group), *((os.kill, process) for process in left)):  # kills a whole group, even if it forks meanwhile
            try:
                kill(target, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.01)


def watch(process: "subprocess.Popen[bytes]", start: float, limits: Limits, user: int) -> tuple[bytes, str]:
    """Reads what a process prints until it ends or breaks a limit: (the first bytes of it, why it was stopped)."""
    output, pipe = b"", process.stdout
    assert pipe
    os.set_blocking(pipe.fileno(), False)
    stopped, looked = "", start
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while not stopped and process.poll() is None:
            if selector.get_map() and selector.select(0.02):
                chunk = pipe.read(1 << 16)
                output += chunk[:max(0, limits.output - len(output))]
                if not chunk:
                    selector.unregister(pipe)
            elif not selector.get_map():
                time.sleep(0.005)
            if time.monotonic() - start > limits.seconds:
                stopped = gtest.endless(limits.seconds)
            elif time.monotonic() - looked > LOOK:
                looked = time.monotonic()
                if sum(in_use(process.pid, user).values()) > limits.memory:
                    stopped = f"it was stopped: it used more than {limits.memory >> 20} MB of memory"
    end(process.pid, user)
    process.wait()
    output += pipe.read(limits.output) or b""  # what was left in the pipe
    return output[:limits.output], stopped
