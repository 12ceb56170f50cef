"""One test of one exercise. The student's program runs it in a sandbox and leaves a record of what its code computed; then the book's own
program, in which there is no student's code, runs the same test on that record and says whether it is right (tests/exercises/observed.h).
So nothing that a student's program prints, writes or returns can be a verdict."""
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from regions import Fault
from sandbox import Limits

MODES = ("lazy", "eager", "random")
MOST_TEXT = 3000


@dataclass
class Verdict:
    passed: bool
    message: str = ""  # what a student should read; empty if it passed


def without_places(text):
    """A failure's text without the line of the test that it is from."""
    return re.sub(r"^(?:\S+:\d+|unknown file)\n(?:Failed\n)?", "", text.strip())


def failures(report):
    """The failures in GoogleTest's JSON of a run of one test; None if that test did not run."""
    tests = [test for suite in report.get("testsuites", []) for test in suite.get("testsuite", [])]
    if len(tests) != 1 or tests[0].get("status") != "RUN" or tests[0].get("result") == "SKIPPED":
        return None
    return [without_places(failure["failure"]) for failure in tests[0].get("failures", [])]


def take_record(source, target):
    """Copies a record, if it is one: a plain file of a size that a test may leave."""
    try:
        file = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with open(file, "rb") as stream, open(target, "wb") as copy:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return False
        shutil.copyfileobj(stream, copy)
    return True


class Judge:
    def __init__(self, build, sandbox, folder, limits=Limits()):
        """`build`: the book's own build. `sandbox`: for the student's programs. `folder`: an empty one that they may not see."""
        self.build, self.sandbox, self.folder, self.limits = build, sandbox, Path(folder), limits

    def run(self, program, exercise, test, mode, seed):
        """Runs a test of `program` in a mode of the simulator, with the inputs of `seed`."""
        environment = {"FLASHBOOK_SIM_THREADS": "1", "FLASHBOOK_SIM_ASYNC": mode, "FLASHBOOK_COURSE_SEED": str(seed),
                       "FLASHBOOK_SIM_SEED": str(seed if mode == "random" else 0)}
        with tempfile.TemporaryDirectory(dir=program.parent) as own, tempfile.TemporaryDirectory(dir=self.folder) as private:
            os.chmod(program.parent, 0o711)
            outcome = self.sandbox.run([program, f"--gtest_filter={test}", "--gtest_brief=1"], own, self.limits,
                                       {**environment, "FLASHBOOK_OBSERVED_WRITE": str(Path(own) / "record")})
            record = Path(private) / "record"
            if outcome.trouble:
                return Verdict(False, self.with_output(outcome.trouble, outcome.output))
            if outcome.code not in (0, 1):
                return Verdict(False, self.with_output(f"it ended with exit code {outcome.code}", outcome.output))
            if not take_record(Path(own) / "record", record):
                return Verdict(False, "it ended before the test had seen anything")
            return self.judge(exercise, test, environment, record, Path(private))

    def judge(self, exercise, test, environment, record, folder):
        report = folder / "report.json"
        command = [self.build / "bin" / exercise.program, f"--gtest_filter={test}", f"--gtest_output=json:{report}"]
        try:
            subprocess.run(command, cwd=folder, env={**os.environ, **environment, "FLASHBOOK_OBSERVED_READ": str(record)},
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10 * self.limits.seconds, check=False)
            found = failures(json.loads(report.read_text(encoding="utf-8")))
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            return Verdict(False, f"{test} could not be judged: {error}")
        if found is None:
            raise Fault(f"{command[0]} has no test {test}: exercises.json and the tests differ, or the build is old")
        return Verdict(not found, "\n".join(found)[:MOST_TEXT])

    @staticmethod
    def with_output(text, output):
        """What happened, and the last of what the program printed."""
        lines = [line for line in output.splitlines() if not line.startswith(("Running main()", "[")) and line.strip()]
        tail = "\n".join(lines[-12:])[-MOST_TEXT:]
        return text + (f"\nThe last that it printed:\n{tail}" if tail else "")
