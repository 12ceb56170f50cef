#!/usr/bin/env python3
"""Tests the commands of ./flashbook in a small tree whose cmake builds programs that print their arguments."""

import contextlib
import fcntl
import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from door import build, console

CMAKE = """#!/bin/sh
mkdir -p build/sim/bin
case $1 in
  --preset)
    printf 'build %s: phony\n' 02_second_quick 02_second_traced 02_second_traced_quick >build/sim/build.ninja
    printf 'CMAKE_HOME_DIRECTORY:INTERNAL=%s\\nCMAKE_CXX_COMPILER:STRING=%s\\n' "$PWD" "$(command -v g++)" \\
      >build/sim/CMakeCache.txt ;;
  --build)
    for name in 01_first 02_second 02_second_quick 02_second_traced 02_second_traced_quick ladder generate; do
      printf '#!/bin/sh\\necho "%s in $PWD:" "$@"\\ncase "$*" in *--refuse*) exit 2 ;; esac\\n' $name \\
        >build/sim/bin/$name
      chmod +x build/sim/bin/$name
    done ;;
esac
"""


class FrontDoor(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.tree = self.folder / "tree"
        for name in ("chapters/01_first", "chapters/02_second", "chapters/08_decoding", "tests/exercises", "tools",
                     "elsewhere"):
            (self.tree / name).mkdir(parents=True)
        shutil.copy(ROOT / "flashbook", self.tree)
        shutil.copytree(ROOT / "door", self.tree / "door", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "course", self.tree / "course", ignore=shutil.ignore_patterns("__pycache__"))
        (self.tree / "tests/exercises/ch01-scores.cu").touch()
        compiler = "#!/bin/sh\ncat >/dev/null\n"  # a compiler that finds every header
        for name, text in {
            "cmake": CMAKE,
            "g++": compiler,
            "clang++": compiler,
            "ctest": '#!/bin/sh\ncase "$*" in *"-N -R none"*) echo Total Tests: 0 ;; esac\n',
            "apt-get": "#!/bin/sh\necho installs >&2\nexit 1\n",
        }.items():
            (self.tree / "tools" / name).write_text(text)
            (self.tree / "tools" / name).chmod(0o755)
        (self.tree / "tools/python3").symlink_to(sys.executable)

    def call(self, *words, folder=None, door=None, **environment):
        path = f"{self.tree / 'tools'}:{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CXX", "CDPATH"))}
        return subprocess.run([door or self.tree / "flashbook", *words], cwd=folder or self.tree,
                              env={**kept, "PATH": path, **environment}, capture_output=True, text=True, check=False)

    def refused(self, *words, saying, **call):
        done = self.call(*words, **call)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(saying, done.stderr)
        self.assertNotIn("installs", done.stderr)

    def test_options_mean_the_caller_s_folder(self):
        elsewhere = self.tree / "elsewhere"
        done = self.call("run", "01", "--no-cuda", "--", "--q", "q.npy", folder=elsewhere)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"01_first in {elsewhere}: --json {self.tree}/build/sim/reports/01_first.json --q q.npy",
                      done.stdout)
        self.assertIn(f"generate in {elsewhere}: --tokens 8",
                      self.call("generate", "--tokens", "8", folder=elsewhere).stdout)

    def test_without_options_fewer_kernels_are_built(self):
        done = self.call("run", "01", "02", "--no-cuda")
        self.assertIn(f"01_first in {self.tree}: --json", done.stdout)
        self.assertIn(f"02_second_quick in {self.tree}: --json", done.stdout)
        of_its_own = self.call("run", "02", "--no-cuda", "--", "--causal").stdout
        self.assertRegex(of_its_own, r"02_second in .*: --json .+ --causal\n")

    def test_a_report_of_the_caller_s_own(self):
        done = self.call("run", "01", "--no-cuda", "--", "--json", "mine.json")
        self.assertIn(f"01_first in {self.tree}: --json mine.json\n", done.stdout)
        self.refused("run", "--no-cuda", "01", "02", "--", "--json=x",
                     saying="--json writes one file, but 2 chapters were given")

    def test_it_is_found_through_links(self):
        door = self.folder / "elsewhere" / "door"
        door.parent.mkdir()
        door.symlink_to(self.tree / "flashbook")
        (self.folder / "elsewhere/tree").mkdir()
        done = self.call("run", "01", "--no-cuda", door=door, folder=door.parent, CDPATH=str(self.folder))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"01_first in {door.parent}", done.stdout)

    def test_compilers_of_several_words(self):
        for compiler in ("g++ -m64", "env g++"):
            shutil.rmtree(self.tree / "build", ignore_errors=True)
            done = self.call("run", "01", "--no-cuda", CXX=compiler)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("installs", done.stderr)
        self.refused("run", "01", saying="g+++ was not found", CXX="g+++ -O2")

    def test_builds_that_are_not_this_one_s(self):
        self.assertEqual(self.call("run", "01", "--no-cuda").returncode, 0)
        self.refused("run", "01", "--no-cuda", saying="unset CXX, or rm -r build/sim", CXX="clang++")
        moved = self.folder / "moved"
        self.tree.rename(moved)
        self.tree = moved
        self.refused("run", "01", "--no-cuda", saying="a build cannot be moved: rm -r build/sim")

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_a_tree_that_cannot_be_written(self):
        self.tree.chmod(0o555)
        self.addCleanup(self.tree.chmod, 0o755)
        self.refused("run", "01", "--no-cuda", saying="cannot be written to: copy it")

    def test_two_tiers(self):
        for words, target, preset in (([], " --target standard_tests", "sim"), (["--all"], "", "sim-all")):
            done = self.call("test", "--no-cuda", *words, "--", "-R", "Npy")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"$ cmake --build --preset sim{target}\n", done.stderr)
            self.assertRegex(done.stderr, rf"\$ ctest --preset {preset} -j \d+ -R Npy\n")

    def test_a_silent_command_shows_signs_of_life(self):
        seen = self.folder / "seen"

        class Said(io.StringIO):
            def write(self, text):
                if "at work" in text:
                    seen.touch()
                return super().write(text)

        out, said = io.StringIO(), Said()
        silent = f"for i in $(seq 600); do [ -e {shlex.quote(str(seen))} ] && break; sleep 0.1; done; echo done; exit 3"
        with mock.patch.object(console, "SILENCE", 0.5), contextlib.redirect_stderr(said):
            code = console.watched("sh", "-c", silent, busy="at work", out=out)
        self.assertEqual((code, out.getvalue()), (3, "done\n"))
        self.assertRegex(said.getvalue(), r"(?m)^  \d+ s: at work$")

    def test_a_chapter_is_traced_by_its_twin(self):
        kernels = self.tree / "chapters/02_second/host/chapter.cu"
        kernels.parent.mkdir()
        kernels.touch()
        for words, twin in (([], "_quick"), (["--", "--seqlen", "9"], "_quick"), (["--", "--head-dim", "128"], ""),
                            (["--", "--dtype=f16"], "")):
            self.assertIn(f"$ cmake --build --preset sim --target 02_second_traced{twin}\n",
                          self.call("trace", "2", *words).stderr)

    def test_a_trace(self):
        reads = self.tree / "common/simulator/events/page.py"
        reads.parent.mkdir(parents=True)
        reads.write_text("import sys\nprint('page of', open(sys.argv[1]).read(), *sys.argv[2:])\n")
        program = self.tree / "elsewhere/mine"
        program.write_text(
            '#!/bin/sh\nprintf "%s in $PWD:$*" "$FLASHBOOK_SIM_EVENTS_BLOCKS" >"$FLASHBOOK_SIM_EVENTS"\nexit 3\n'
        )
        program.chmod(0o755)
        done = self.call("trace", "./mine", "--blocks", "2-3", "--", "--fast", folder=program.parent)
        self.assertIn(f"page of 2-3 in {program.parent}:--fast --html trace.html", done.stdout)
        self.assertEqual(done.returncode, 3)  # the program's exit code
        program.write_text("#!/bin/sh\n")
        done = self.call("trace", "elsewhere/mine")
        self.assertEqual((done.returncode, done.stderr.splitlines()[-1]),
                         (2, "flashbook: elsewhere/mine launched no kernel: there is nothing to trace"))
        self.refused("trace", "elsewhere/yours", saying="is not an executable program: build it first")
        self.refused("trace", "elsewhere/mine", "--blocks", "all", saying="as in 0-1")
        self.refused("trace", "elsewhere/mine", "--out", saying="argument --out: expected one argument")
        self.refused("trace", "01", "02", saying="'trace' does not take 02")
        self.refused("trace", "01", saying="chapter 01 has no kernel to trace")
        self.refused("trace", "77", saying="unknown chapter 77")

    def test_unknown_words(self):
        for word in ("runn", "rn"):
            self.refused(word, saying="did you mean ./flashbook run?")
        self.refused("xyz", saying="unknown command 'xyz': run ./flashbook --help for a list")
        self.refused("run", "second", saying="chapters are numbers such as 02")
        self.refused("run", "77", saying="unknown chapter 77: use one of 01_first 02_second")
        self.assertIn("unknown exercise ch01-*. The exercises are:", self.call("course", "try", "ch01-*").stderr)
        self.refused("course", "try", "score", saying="did you mean ch01-scores?")

    def test_options_that_the_first_chapter_refuses(self):
        done = self.call("run", "01", "02", "--no-cuda", "--", "--refuse")
        self.assertEqual(done.returncode, 2)
        self.assertNotIn("02_second", done.stdout)

    def test_a_chapter_runs_while_others_are_compiled(self):
        compiles = """--build)
    case "$*" in *ladder*)
      echo '[1/9] Linking CXX executable bin/01_first'
      for second in $(seq 60); do [ -e ran ] && { echo 'an error'; exit 1; }; sleep 1; done ;;
    esac"""
        ran = CMAKE.replace("bin/sh\\n", "bin/sh\\ntouch ran\\n")
        (self.tree / "tools/cmake").write_text(ran.replace("--build)", compiles))
        done = self.call("run", "--no-cuda")
        self.assertIn("01_first in", done.stdout)
        self.assertNotIn("02_second", done.stdout)
        self.assertIn("an error\nflashbook: build/sim did not compile, see above\n", done.stderr)
        self.assertEqual(done.returncode, 2)

    def test_what_is_left_to_build(self):
        for last, left in (("[0/2] Re-checking globbed directories...", 0), ("[3/63] Building CXX object x.o", 60), ("", 0)):
            self.assertEqual(build.Background.left.fget(mock.Mock(child=mock.Mock(last=last))), left)

    def test_nothing_is_built_for_a_submission_that_is_none(self):
        (self.tree / "course/grade.py").write_text("raise SystemExit(2)\n")
        self.assertEqual(self.call("course", "grade", "nobody").returncode, 2)
        self.assertFalse((self.tree / "build").exists())

    def test_a_flag_may_stand_between_the_words_of_a_list(self):
        (self.tree / "course/handout.py").write_text("import sys; print(sys.argv[1:])\n")
        for words in (("../new", "--solved", "01"), ("--solved", "../new", "01"), ("../new", "01", "--solved")):
            self.assertIn("new', '01', '--solved']", self.call("course", "handout", *words).stdout)

    def test_an_exercise_is_profiled_if_it_has_a_kernel(self):
        self.assertIn("build/sim/bin/exercise.ch01-scores", self.call("profile", "ch01-scores").stderr)
        (self.tree / "tests/exercises/ch01-numbers.cpp").touch()
        self.refused("profile", "ch01-numbers", saying="ch01-numbers launches no kernel: there is nothing to profile")
        self.refused("profile", "score", saying="did you mean ch01-scores?")

    def test_arguments_that_a_command_does_not_take(self):
        for *words, what in (("docs", "--no-cuda"), ("test", "03"), ("bench", "--solved"),
                             ("run", "--fast"), ("run", "--out")):
            self.refused(*words, what, saying=f"'{words[0]}' does not take {what}: ./flashbook {words[0]} --help")
        self.refused("test", "--al", saying="'test' does not take --al (did you mean --all?): ./flashbook test --help")
        self.refused("run", "01", "--causal", saying="; options of the programs follow --")
        self.refused("course", "watch", "01", "--solved", saying="'course watch' does not take --solved")
        self.refused("course", "check", "--solved", saying="'course check' does not take --solved")
        self.refused("course", "check", "--", "--x", saying="'course check' does not take --x")

    def test_a_filter_that_no_test_fits(self):
        self.assertEqual(self.call("test", "--", "-R", "some").returncode, 0)
        done = self.call("test", "--", "-R", "none")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no test matches -R none: ./flashbook test -- -N lists the tests, and test --all has more", done.stderr)

    def test_cuda_that_the_simulator_cannot_build(self):
        mine = self.tree / "chapters/01_first/mine.cu"
        mine.write_text("// a<<<1, 1>>>()\n")
        self.assertEqual(self.call("run", "01").returncode, 0)
        (self.tree / "tools/cmake").write_text(CMAKE.replace("--build)", "--build) exit 1"))
        for line, saying in (
            ("void f() { k<<<1, 32>>>(p); }", "launches with <<<...>>>: use device::launch("),
            ("extern __shared__ float s[];", "declares extern __shared__: use T* name = dynamic_shared<T>() "),
        ):
            mine.write_text(f"// a<<<1, 1>>>()\n{line}\n")
            said = self.call("run", "01").stderr
            self.assertIn(f"did not compile, see above. chapters/01_first/mine.cu:2 {saying}", said)

    def test_who_builds_at_the_same_time_waits(self):
        self.assertEqual(self.call("run", "01").returncode, 0)
        with (self.tree / "build/sim/.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            waiting = subprocess.Popen([self.tree / "flashbook", "run", "01"], cwd=self.tree, text=True,
                                       stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                       env={**os.environ, "PATH": f"{self.tree / 'tools'}:{os.environ['PATH']}"})
            said = waiting.stderr.readline()
            while "waiting" not in said and said:
                said = waiting.stderr.readline()
            self.assertIn("another ./flashbook is running in build/sim: waiting for it", said)
            self.assertIsNone(waiting.poll())
        waiting.communicate()
        self.assertEqual(waiting.returncode, 0)


if __name__ == "__main__":
    unittest.main()
