"""Runs a program that nobody has to trust: within limits of time, memory and output, in a folder of its own, and, as far as this machine
allows it, without a network, without other processes in sight, and without being able to write anywhere else or to read what is hidden.

It is a fence, not a vault: a program that breaks the kernel of Linux gets out of it. What a machine does not allow is in `missing`."""
import os
import random
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course import gtest
from course.regions import Broken

# Mounts: the folder of the program stays writable, everything else is read-only, and the hidden folders are empty. The program is no
# init of its namespace, since an init ignores the signals by which a crash is told.
FENCE = """\
mount --bind "$1" "$1" && mount -o remount,bind,ro / || exit 125
for shared in /tmp /dev/shm /var/tmp /run; do
  mountpoint -q "$shared" && { mount -o remount,bind,ro "$shared" || exit 125; }
done
cd "$1"; shift
while [ "$1" != -- ]; do mount -t tmpfs -o ro,size=4k none "$1" || exit 125; shift; done
shift
"$@"
"""
POWERLESS = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
SPACES = ["--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
PAGE = os.sysconf("SC_PAGESIZE")
NOBODIES = range(61000, 65000)  # user ids that belong to nobody; a grader that is root lends one to each program


@dataclass(frozen=True)
class Limits:
    seconds: float = 10
    memory: int = 2 << 30  # bytes of it that are in use. Address space is no measure: simulator and CUDA reserve more than there is
    file: int = 64 << 20  # bytes of a file
    output: int = 32 << 10  # bytes of output that are kept
    processes: int = 64


@dataclass(frozen=True)
class Outcome:
    code: int  # exit code; negative: the signal that ended it
    output: str
    seconds: float
    stopped: str = ""  # why it was ended, if it was

    @property
    def trouble(self) -> str:
        """How the program ended, if it did not end by itself; empty if it did."""
        if self.stopped:
            return self.stopped
        return gtest.crash(self.code) if self.code < 0 else ""


def printable(text: str) -> str:
    """Text without control characters, which could rewrite what stands before them on a terminal."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


def succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def processes_of_this_user() -> int:
    return sum(1 for p in Path("/proc").glob("[0-9]*") if owner(p) == os.getuid())


def owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


class Sandbox:
    def __init__(self, hidden: Iterable[str | Path] = (), lend: bool = True) -> None:
        """`hidden`: folders that no program may see. `lend`: whether a grader that is root lends programs another user's id."""
        self.root = os.geteuid() == 0
        self.hidden = [str(Path(folder).resolve()) for folder in hidden]
        self.missing = []
        self.others = 0 if self.root else processes_of_this_user()
        self.lends = lend and self.root and succeeds("setpriv", f"--reuid={NOBODIES[0]}", "--clear-groups", "true")
        if lend and self.root and not self.lends:
            raise Broken("a submission would run as root, which no limit binds: setpriv (package util-linux) does not work here. "
                        "Grade as another user")
        user = [] if self.root else ["--user", "--map-root-user"]
        for self.spaces, self.mounts in ((["unshare", *user, *SPACES], True), (["unshare", *user, "--net"], False), ([], False)):
            with tempfile.TemporaryDirectory() as folder:
                if self.run(["true"], folder).code == 0:
                    break
        if not self.spaces:
            self.missing.append("the network is within reach (unshare does not work here)")
        if not self.mounts:
            what = "what everybody may" if self.root else "what you may"
            self.missing.append(f"a submission may read and write {what}, also outside its folder")

    def command(self, command: Sequence[object], folder: Path, user: int, limits: Limits) -> list[str]:
        """`command` behind the fence."""
        bounds = {"core": 0, "fsize": limits.file, "nofile": 256, "cpu": int(limits.seconds) + 2, "nproc": self.others + limits.processes}
        words = [str(word) for word in command]
        if self.lends:
            words = [*POWERLESS, f"--reuid={user}", f"--regid={user}", "--clear-groups", *words]
        elif self.mounts:
            words = [*POWERLESS, *words]
        if self.mounts:
            inside = [str(folder), *(h for h in self.hidden if os.path.isdir(h) and not str(folder).startswith(h + "/")), "--"]
            words = ["sh", "-c", FENCE, "sh", *inside, *words]
        return ["prlimit", *(f"--{name}={value}" for name, value in bounds.items()), *self.spaces, *words]

    def run(self, command: Sequence[object], folder: str | Path, limits: Limits = Limits(), environment: Mapping[str, str] | None = None) -> Outcome:
        """Runs `command` in `folder`, which is all that it may write."""
        folder = Path(folder).resolve()
        user = random.choice(NOBODIES)
        if self.lends:
            os.chown(folder, user, user)

        variables = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder), "LC_ALL": "C.UTF-8", **(environment or {})}
        start = time.monotonic()
        try:
            process = subprocess.Popen(self.command(command, folder, user, limits), cwd=folder, env=variables, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            return Outcome(127, f"{error.filename}: {error.strerror}", 0)
        with process:
            output, stopped = watch(process, start, limits)
        if self.lends and not self.mounts:
            end_processes_of(user)  # with namespaces they ended with the first of them
        code = process.returncode
        return Outcome(128 - code if code > 128 else code, printable(output.decode(errors="replace")), time.monotonic() - start, stopped)


def end_processes_of(user: int) -> None:
    """Ends all that a lent user still runs."""
    for process in Path("/proc").glob("[0-9]*"):
        if owner(process) == user:
            try:
                os.kill(int(process.name), signal.SIGKILL)
            except ProcessLookupError:
                pass


def resident(pid: int | str) -> int:
    """Bytes of memory that a process and all that it started have in use."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError, ValueError):
        return 0
    return pages * PAGE + sum(resident(child) for child in children)


def watch(process: "subprocess.Popen[bytes]", start: float, limits: Limits) -> tuple[bytes, str]:
    """Reads what a process prints until it ends or breaks a limit. (the first bytes of it, why it was stopped)"""
    output, pipe = b"", process.stdout
    assert pipe
    os.set_blocking(pipe.fileno(), False)
    stopped = ""
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
            elif resident(process.pid) > limits.memory:
                stopped = f"it took more than {limits.memory >> 20} MB of memory and was stopped"
    try:
        os.killpg(process.pid, signal.SIGKILL)  # all that it started, and itself
    except ProcessLookupError:
        pass
    process.wait()
    output += pipe.read(limits.output) or b""  # what was left in the pipe
    return output[:limits.output], stopped
