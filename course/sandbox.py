"""Runs a program that nobody has to trust, a compiler with a student's text or what it made of it: within limits of time, memory and
output, and, as far as this machine allows it, in a world that holds nothing but the system, the program and a folder of its own, without
a network and without other processes in sight.

It is a fence, not a vault: a program that breaks the kernel of Linux gets out of it. The fence tries itself (`Sandbox.prove`), and what it
does not hold on a machine is in `missing`."""
import os
import random
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from course import gtest
from course.regions import Broken

# A world of its own: what is named can be read at its usual place, the folder of the program can be written, and nothing else is there.
# The program is no init of its namespace, since an init ignores the signals by which a crash is told.
FENCE = """\
PATH=$PATH:/usr/sbin:/sbin world=$1 own=$2; shift 2
put() {
  if [ -L "$1" ]; then mkdir -p "$world${1%/*}" && cp -P "$1" "$world$1"; return; fi
  if [ -d "$1" ]; then mkdir -p "$world$1"; else mkdir -p "$world${1%/*}" && : >"$world$1"; fi
  mount --bind "$1" "$world$1" && mount -o "remount,bind,$2" "$world$1"
}
mount -t tmpfs -o size=4m,mode=755 none "$world" || exit 125
while [ "$1" != -- ]; do put "$1" ro || exit 125; shift; done; shift
put "$own" rw,nosuid,nodev && mkdir "$world/proc" && mount -t proc proc "$world/proc" && mkdir -p "$world/tmp" || exit 125
mount -o remount,bind,ro "$world" || exit 125
chroot "$world" sh -c 'cd "$0" && exec "$@"' "$own" "$@"
exit $?
"""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf",
          "/etc/ld.so.conf.d", *(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")))
POWERLESS = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
SPACES = ["--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
PAGE = os.sysconf("SC_PAGESIZE")
LOOK = 0.1  # seconds between two looks at a program's memory: each goes through all processes of the machine
NOBODIES = range(61000, 65000)  # user ids that belong to nobody; a grader that is root lends one to each program


@dataclass(frozen=True)
class Limits:
    seconds: float = 10
    memory: int = 2 << 30  # bytes of it that are in use. Address space is no measure: the simulator reserves more than there is
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


def one_line(name: str) -> str:
    """A name that somebody else gave, as it can be shown."""
    return " ".join(printable(name).split())


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


def system() -> list[str]:
    """What every program sees: tools and libraries."""
    return [path for path in SYSTEM if os.path.lexists(path)]


def gpu_devices() -> list[Path]:
    """What a program of CUDA sees beside; nothing without a GPU."""
    found = sorted(path for pattern in ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm*") for path in Path("/dev").glob(pattern))
    return [*found, Path("/sys")] if found else []


@contextmanager
def own_folder(parent: str | Path | None = None) -> Iterator[Path]:
    """A new folder that goes away with whatever a program has left in it."""
    folder = Path(tempfile.mkdtemp(prefix="own-", dir=parent))
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: str | Path) -> None:
    """Removes a folder, however deep what is in it: Python's own functions give up at a thousand folders in each other."""
    for command in (["rm", "-rf", "--", folder], ["chmod", "-R", "u+rwx", "--", folder], ["rm", "-rf", "--", folder]):
        if os.path.lexists(folder):
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


class Sandbox:
    lent: ClassVar[set[int]] = set()  # the users that programs run as at the moment, of all sandboxes
    lock = threading.Lock()

    def __init__(self) -> None:
        self.root = os.geteuid() == 0
        self.missing: list[str] = []
        self.others = 0 if self.root else processes_of_this_user()
        self.lends = self.root and succeeds("setpriv", f"--reuid={NOBODIES[0]}", "--clear-groups", "true")
        if self.root and not self.lends:
            raise Broken("a submission would run as root, which no limit binds: setpriv (package util-linux) does not work here. "
                        "Grade as another user")
        user = [] if self.root else ["--user", "--map-root-user"]
        for self.spaces, self.mounts in ((["unshare", *user, *SPACES], True), (["unshare", *user, "--net"], False), ([], False)):
            with own_folder() as folder:
                if self.run(["true"], folder).code == 0:
                    break

    def prove(self) -> None:
        """Tries what a hostile program would, and notes in `missing` what it could do."""
        with own_folder() as top:
            top.chmod(0o755)
            own, other, secret = top / "own", top / "other", top / "other" / "answer"
            own.mkdir()
            other.mkdir()
            other.chmod(0o777)
            secret.write_text("42\n")
            secret.chmod(0o644)
            everywhere = " ".join(map(str, (other, "/tmp", "/var/tmp", "/dev/shm", "/run", "/usr")))
            mark = f"flashbook-{os.getpid()}"
            quick = Limits(seconds=5, memory=64 << 20, processes=16)

            def says(script: str, limits: Limits = quick) -> Outcome:
                return self.run(["sh", "-c", script], own, limits)

            if "42" in says(f"cat {secret}").output:
                self.missing.append("a submission may read what everybody may, also outside its folder: unshare does not work here")
            if "yes" in says(f"for d in {everywhere}; do (: >$d/{mark}) 2>/dev/null && echo yes && rm $d/{mark}; done").output:
                self.missing.append("a submission may write what everybody may, also outside its folder")
            if says("cat /proc/net/dev").output.count(":") != 1:
                self.missing.append("the network is within reach")
            if not says("(head -c 300m /dev/zero | tail -c 300m >/dev/null) & wait").stopped:
                self.missing.append("a submission may take more memory than its limit")
            if "done" in says("for i in $(seq 100); do sleep 2 & done; echo done", Limits(seconds=1, processes=16)).output:
                self.missing.append("a submission may start more processes than its limit")
            if not says("while :; do :; done", Limits(seconds=0.3)).stopped:
                self.missing.append("a submission may run for longer than its limit")
            says(f"(setsid sleep 4321.{os.getpid()} &) ; true")
            if any(f"4321.{os.getpid()}".encode() in line.split(b"\0") for line in command_lines()):
                self.missing.append("a submission may leave processes behind")

    def command(self, command: Sequence[object], folder: Path, user: int, limits: Limits, world: Path, visible: Iterable[object]) -> list[str]:
        """`command` behind the fence."""
        bounds = {"core": 0, "fsize": limits.file, "nofile": 256, "cpu": int(limits.seconds) + 2, "nproc": self.others + limits.processes}
        words = [str(word) for word in command]
        if self.lends:
            words = [*POWERLESS, f"--reuid={user}", f"--regid={user}", "--clear-groups", *words]
        elif self.mounts:
            words = [*POWERLESS, *words]
        if self.mounts:
            words = ["sh", "-c", FENCE, "sh", str(world), str(folder), *system(), *map(str, visible), "--", *words]
        return ["prlimit", *(f"--{name}={value}" for name, value in bounds.items()), *self.spaces, *words]

    @contextmanager
    def user(self) -> Iterator[int]:
        """A user that no other program runs as."""
        with self.lock:
            user = random.choice([user for user in NOBODIES if user not in self.lent])
            self.lent.add(user)
        try:
            yield user
        finally:
            if self.lends:
                end_processes_of(user)  # with namespaces they ended with the first of them
            with self.lock:
                self.lent.remove(user)

    def run(self, command: Sequence[object], folder: str | Path, limits: Limits = Limits(), environment: Mapping[str, str] | None = None,
            visible: Iterable[object] = ()) -> Outcome:
        """Runs `command` in `folder`, which is all that it may write. `visible`: what it may read, beside the system."""
        folder = Path(folder).resolve()
        variables = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder), "LC_ALL": "C.UTF-8", **(environment or {})}
        start = time.monotonic()
        with self.user() as user, own_folder() as world:
            if self.lends:
                os.chown(folder, user, user)
            try:
                process = subprocess.Popen(self.command(command, folder, user, limits, world, visible), cwd=folder, env=variables,
                                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                           umask=0o022)
            except OSError as error:
                return Outcome(127, f"{error.filename}: {error.strerror}", 0)
            with process:
                output, stopped = watch(process, start, limits, user if self.lends else None)
        code = process.returncode
        return Outcome(128 - code if code > 128 else code, printable(output.decode(errors="replace")), time.monotonic() - start, stopped)


def command_lines() -> Iterator[bytes]:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield process.read_bytes()
        except OSError:
            pass


def end_processes_of(user: int) -> None:
    """Ends all that a lent user still runs, and what that starts meanwhile."""
    for _ in range(500):
        left = [process for process in Path("/proc").glob("[0-9]*") if owner(process) == user and pages_of(process)]  # no zombies
        if not left:
            return
        for process in left:
            try:
                os.kill(int(process.name), signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


def pages_of(process: Path) -> int:
    """Of memory that a process has in use; 0 if it has ended."""
    try:
        return int((process / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def descendants(pid: int | str) -> Iterator[Path]:
    """A process and all that its threads started, and theirs."""
    yield Path(f"/proc/{pid}")
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            listed = children.read_text().split()
        except OSError:
            continue
        for child in listed:
            yield from descendants(child)


def resident(pid: int, user: int | None) -> int:
    """Bytes of memory that a program has in use: all processes of the user that it was lent, or all that it started."""
    processes = [p for p in Path("/proc").glob("[0-9]*") if owner(p) == user] if user is not None else list(descendants(pid))
    return PAGE * sum(map(pages_of, processes))


def watch(process: "subprocess.Popen[bytes]", start: float, limits: Limits, user: int | None) -> tuple[bytes, str]:
    """Reads what a process prints until it ends or breaks a limit. (the first bytes of it, why it was stopped)"""
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
                if resident(process.pid, user) > limits.memory:
                    stopped = f"it took more than {limits.memory >> 20} MB of memory and was stopped"
    try:
        os.killpg(process.pid, signal.SIGKILL)  # all that it started, and itself
    except ProcessLookupError:
        pass
    process.wait()
    output += pipe.read(limits.output) or b""  # what was left in the pipe
    return output[:limits.output], stopped
