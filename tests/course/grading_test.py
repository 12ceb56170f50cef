#!/usr/bin/env python3
"""Tests the parts of grading separately: gate, sandbox, submissions, points, reports, package."""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
import unittest
import zipfile
from pathlib import Path
from unittest import mock

COURSE = Path(__file__).resolve().parents[2] / "course"
sys.path.insert(0, str(COURSE.parent))

from course import (
    classroom,
    gate,
    grade,
    gtest,
    judge,
    manifest,
    modes,
    package,
    regions,
    report,
    similar,
    solution,
    submission,
    variant,
)
from course.attempt import Attempt
from course.classroom import HandedIn
from course.regions import Broken, Fault, Written
from course.sandbox import Limits, Outcome, Sandbox, command_lines, memory_of, own_folder, printable, remove
from course.score import Grade, Score, earned, possible


def exercise(**change):
    tests = [manifest.Test("A.Worked", "worked before", 0), manifest.Test("A.One", "one", 6), manifest.Test("A.Two", "two", 4, hidden=True)]
    return manifest.Exercise(**{"id": "ch01-a", "title": "a", "kind": "write", "file": "chapters/01_one/a.cuh", "hint": "Think.",
                                "chapter": "01_one", "tests": tests, **change})


def result(*passed, **change):
    """Returns a result of exercise() in which the named tests pass."""
    e = exercise(**change)
    verdicts = {t.name: gtest.Verdict(True) if t.name in passed else gtest.Verdict(False, f"{t.name} is wrong") for t in e.tests}
    return Score(e, verdicts=verdicts)


def graded(*results):
    return Grade("ada", list(results), seed=5, lack="", seconds=12.3)


HOSTILE = """\
#include <fcntl.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

/// Ends the first thread of this process, which then looks as if it had ended. Another stays.
void hide(bool takes_memory) {
  std::thread([=] {
    if (takes_memory) memset(malloc(300 << 20), 1, 300 << 20);
    for (;;) usleep(10000);
  }).detach();
  syscall(SYS_exit, 0);
}

int main(int, char** words) {
  if (words[1] == std::string("hidden")) hide(false);
  if (words[1] == std::string("child")) {
    if (fork() == 0) hide(false);
    return usleep(500000);
  }
  if (words[1] == std::string("eater")) {
    if (fork() == 0) hide(true);
    return sleep(50);
  }
  if (words[1] == std::string("tables")) {  // a table of 4 KB for each page that is read, and the pages are one
    constexpr std::size_t kBytes = std::size_t(1) << 37, kOfATable = 2 << 20;
    auto* pages = static_cast<volatile char*>(
        mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    madvise(const_cast<char*>(pages), kBytes, MADV_NOHUGEPAGE);
    for (std::size_t i = 0; i < kBytes; i += kOfATable) (void)pages[i];
    return sleep(50);
  }
  if (words[1] == std::string("threads"))
    std::thread([] {
      if (fork() == 0) {
        memset(malloc(300 << 20), 1, 300 << 20);
        sleep(50);
      }
      sleep(50);
    }).join();
  for (int i = 0, folder = open(".", O_RDONLY); i < 3000; ++i) {
    const int before = folder;
    if (mkdirat(folder, "d", 0700) || (folder = openat(folder, "d", O_RDONLY)) < 0) return 1;
    close(before);
  }
}
"""


# Functions of the system's headers that an exercise may call.
HARMLESS = re.compile(r"""(?:ll?|il)?(?:a?(?:sin|cos|tan)h?|atan2|sincos|cbrt|ceil|copysign|drem|erfc?|exp(?:2|10|m1)?|fabs|fdim|floor|fma|fmax|fmin|fmod|
    frexp|gamma|hypot|ilogb|[jy][01n]|ldexp|lgamma|logb?|log(?:1p|2|10)|modf|nan|nearbyint|next(?:after|down|up|toward)|pow|remainder|remquo|rint|
    round(?:even)?|scalbl?n?|significand|sqrt|tgamma|trunc|abs|div|totalorder(?:mag)?|canonicalize|u?fromfpx?|[gs]etpayload(?:sig)?|
    f(?:max|min)(?:imum\w*|mag)|f\d+x?(?:add|div|fma|mul|sqrt|sub)|[fd](?:add|div|fma|mul|sqrt|sub))(?:f|l|f\d+x?)?(?:_r)? |
    is\w+ | finite[fl]? | ffsl?l? | _?to(?:lower|upper|ascii)(?:_l)? | tow(?:lower|upper|ctrans)(?:_l)? | wc(?:type|trans)(?:_l)? | uint\d+_identity | iseqsig | ato[fil]l? | [al]64[al] |
    [dejlmn]?rand(?:48)?(?:_r)? | random(?:_r)? | s(?:rand|eed)\w* | lcong48(?:_r)? | (?:init|set)state(?:_r)? | arc4random\w* |
    (?:m|c|re)alloc(?:array)? | free | valloc | aligned_alloc | alloca | r?index | basename | rpmatch |
    v?fw?printf | v?w?printf | v?f?w?scanf | f?put[cs]?\w* | putw?c(?:har)?\w* | perror | f?getw?c\w* | feof\w* | ferror\w* | fflush\w* | f(?:try|un)?lock(?:file)? | fwide |
    (?:asc|c|gm|local)time(?:_r)? | mktime | time | time(?:gm|local) | timespec_get(?:res)? | difftime | dysize | clock | u?sleep | nanosleep | pause |
    access | close | sync | abort | signal | select | wait | cookie_\w+_function_t""", re.VERBOSE)


class Gate(unittest.TestCase):
    def objection(self, text):
        return "; ".join(f"{line}: {why}" for line, why in gate.objections(text.split("\n")))

    def test_lets_ordinary_code_through(self):
        for text in ("for (int i = 0; i < n; ++i) { sum += a[i] % 7; }", "#pragma unroll\nfor (;;) {\n}", "  # pragma unroll 4", "#pragma unroll 1  // as it is", "int a = 1'000;",
                     "const char* s = \"} #include asm\";  // system(\"x\") }", "char c = '{'; char q = '\\'';", "/* } \n #define */ x = y;",
                     "auto f = [](float a) { return __expf(a); };", "external = device_id + opened;", ""):
            self.assertEqual(self.objection(text), "", text)

    def test_directives(self):
        for text in ("#include <x>", "  #  define X", "%:include <x>", "#pragma once", "#line 1", "/* */ #undef X", "x; # pragma unroll"):
            self.assertIn("directives are not allowed", self.objection(text), text)

    def test_the_end_of_the_region_is_not_left(self):
        self.assertEqual(self.objection("a;\n} int b() {"), "2: this '}' closes nothing that was opened between the markers")
        self.assertEqual(self.objection("if (a) {\n  b;"), "1: this '{' is not closed between the markers")
        self.assertEqual(self.objection("{\n  f(a;\n}"), "3: this '}' comes before the '(' of line 2 is closed")
        self.assertIn("write { and }", self.objection("%> int b() <%"))
        self.assertIn("this comment does not end", self.objection("/* a"))
        self.assertIn("may not end with a backslash", self.objection("a; // \\\nb;"))

    def test_words(self):
        for word in ("asm", "extern", "system", "exit", "fopen", "filesystem", "observed", "sim", "_Pragma", "testing", "fopen64", "open64",
                     "basic_ifstream", "clone", "__environ", "execvpe", "process_vm_readv", "memfd_create", "TEST", "EXPECT_EQ", "GTEST_SKIP",
                     "ADD_FAILURE", "memcpy", "copy_n", "wmemcpy", "__mempcpy", "__stpncpy", "strncpy", "wcscpy", "snprintf", "qsort", "__gnu_cxx"):
            self.assertIn(f"'{word}'", self.objection(f"  x = {word}(1);"), word)
        for word in ("make_reference", "TensorReference", "make_inputs", "keys_seen", "visible_pairs", "parallel_for", "Spec", "device", "async",
                     "RandomWarpOrder", "SUCCEED", "course_seed", "GTEST_FAIL", "__gnu_debug", "__detail", "__wrap_expf", "_Exit", "__builtin_memcpy"):
            self.assertNotEqual(gate.refused(word), "", word)
        for word in ("__half22float2", "__hfma2", "__ldg", "__shfl_xor_sync", "__float_as_int", "__nv_bfloat162", "__grid_constant__", "index", "wait", "stride"):
            self.assertEqual(gate.refused(word), "", word)
        self.assertIn("'extern __shared__' is not available here: dynamic_shared<float>()", self.objection("extern __shared__ float s[];"))

    def test_takes_the_cuda_that_the_simulator_takes(self):
        refused = re.compile(r"!!|#|\bextern\b|\basm\b|__builtin|_Pragma|memcpy|__FLT_MAX__")
        lines = (manifest.ROOT / "tests/simulator/dialect/snippets.txt").read_text().splitlines()
        snippets = [line.partition(": ")[2].rpartition(" -> ")[0] for line in lines if " -> " in line and not refused.search(line)]
        self.assertGreater(len(snippets), 100)
        for snippet in snippets:
            self.assertEqual(self.objection(snippet.replace("{{", "{").replace("}}", "}").replace("@", "\n")), "", snippet)

    @unittest.skipUnless(shutil.which("g++"), "the compiler knows what is declared")
    def test_what_the_system_declares_is_refused_or_harmless(self):
        """The gate rejects every function declared in a test's headers, except those that compute, allocate, print,
        sleep or read the time."""
        headers = ["tests/exercises/attention_kernel.h", *(f"{name}.h" for name in ("unistd", "fcntl", "signal", "dlfcn", "sys/stat", "sys/mman"))]
        text = "".join(f'#include "{header}"\n' for header in headers)
        done = subprocess.run(["g++", "-std=c++20", "-I", manifest.ROOT, "-E", "-x", "c++", "-"], input=text, capture_output=True, text=True, check=True)
        place, declared = "", ""
        for line in done.stdout.splitlines():
            if line.startswith("# "):
                place = line.split('"')[1]
            elif place.startswith("/usr/include/") and not re.search(r"/c\+\+/|/gtest/", place):
                declared += line + "\n"
        names = set(re.findall(r"\b(\w+)\s*\([^;{}]*?\)[^;{]*[;{]", declared)) - {"if", "while", "return", "void", "int", "sizeof", "decltype", "noexcept"}
        self.assertGreater(len(names), 1500)
        self.assertEqual({name for name in names if not gate.refused(name) and not HARMLESS.fullmatch(name.lstrip("_"))}, set())

    def test_of_the_standard_library_what_the_compiler_sees_through(self):
        for text in ("std::string(a, b)", "std /* */ ::\n  wstring_view(a, b)", "std::char_traits<char>::copy(a, b, c)", "std::pmr::string s;", "namespace s = std;",
                     "using namespace std;", "::std::thread t;", "std::ranges::copy(a, b)"):
            self.assertIn("std", self.objection(text), text)
        for text in ("std::max(a, b)", "using std::floor;", "std::vector<int> a; a.resize(std::size_t(b));", "stride(strip, members, offset, copy, standard, memory)"):
            self.assertEqual(self.objection(text), "", text)

    def test_what_only_looks_like_a_comment_or_a_text(self):
        hidden = ("/*\n#pragma unroll // */ asm(1); /*\n*/", "/*\n#pragma unroll // */\n#include <x>\n/*\n*/",
                  "u'a' \"'\" \"/*\";\n#include <x>\n// */", "1'\u00e9R\"(u8R\")\"\\\\1'", "1'0 \"'\" \"/*\";\n#include <x>\n// */", "*/ #pragma unroll", "/* */ #pragma unroll",
                  "// \\\0\n#include <x>", "// ??/\n#include <x>", "a\u200bb;", "x = \"\r\";", "/* \x1b[2J */", "\ufeff#include <x>",
                  "[[gnu::section(\".x\\n.incbin \\\"/etc/passwd\\\"\")]] int x;", "[ /* */ [gnu::section(\"x\")]] int x;",
                  "[[maybe_unused, gnu::section(\"x\")]] int x;", "a$R\"(\" asm", "<:<:gnu::cold:>:>", "__builtin_exit(0);", "__has_include(<x>)")
        for text in hidden:
            self.assertNotEqual(self.objection(text), "", text)
        for text in ("[[maybe_unused]] int a[2] = {u'a', 1'000};", "if (a <::b) {\n}", "/* Größe */ const char* s = \"µ\";", "x[y[0]] = '\"';"):
            self.assertEqual(self.objection(text), "", text)

    def test_takes_no_longer_than_the_text_is_long(self):
        start = time.process_time()
        for text in (";\n" * 200000, "'\\''\n" * 9000, ";\n" * 30000, "{" * 60000, '"\\' * 30000):
            self.objection(text)
        self.assertLess(time.process_time() - start, 5)
        self.assertIn("at most 65536 are allowed", self.objection(";\n" * 40000))

    def test_takes_every_solution_of_the_book(self):
        for e in manifest.load():
            stub = regions.written((manifest.ROOT / e.file).read_text(), e.file)[0][e.id]
            self.assertEqual((gate.objections(solution.answer(manifest.ROOT, e).lines), gate.objections(stub.lines)), ([], []), e.id)

    @unittest.skipUnless(shutil.which("g++"), "the fuzzer compares the gate with g++")
    def test_nothing_that_a_generator_makes_gets_through(self):
        done = subprocess.run([sys.executable, Path(__file__).parent / "gate_fuzz.py"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_other_ways_to_spell(self):
        self.assertIn("raw strings", self.objection('auto s = R"(})";'))
        self.assertNotEqual(self.objection("\\u0061sm(1);"), "")
        self.assertNotEqual(self.objection("sys\\\ntem(1);"), "")


@unittest.skipIf(os.name != "posix" or not Path("/proc/self").exists(), "the sandbox is Linux's")
class ASandbox(unittest.TestCase):
    def setUp(self):
        self.addCleanup(os.umask, os.umask(0o022))  # the sandbox's users read what these tests write
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "own"
        self.other = Path(folder.name) / "other"  # a folder of another user, with mode 0777
        Path(folder.name).chmod(0o755)
        self.folder.mkdir()
        self.other.mkdir()
        self.other.chmod(0o777)
        (self.other / "answer").write_text("the secret answer\n")
        self.mark = f"hostile-{os.getpid()}"
        self.sandbox = Sandbox()

    def run_shell(self, script, **limits):
        return self.sandbox.run(["sh", "-c", script], self.folder, Limits(**limits))

    def test_runs_in_its_folder_with_an_environment_of_its_own(self):
        with mock.patch.dict(os.environ, {"TOKEN": "secret"}):
            outcome = self.run_shell('pwd; echo "[$TOKEN]"; echo x > file; exit 3')
        self.assertEqual((outcome.code, outcome.output), (3, f"{self.folder.resolve()}\n[]\n"))
        self.assertEqual((self.folder / "file").read_text(), "x\n")

    def test_time(self):
        start = time.monotonic()
        outcome = self.run_shell("sleep 600 & sleep 600", seconds=0.5)
        self.assertLess(time.monotonic() - start, 300)  # on a busy machine
        self.assertIn("a loop that never ends?", outcome.trouble)

    def test_memory(self):
        script = "(head -c 300000000 /dev/zero; sleep 60) | tail -c 300000000 > /dev/null"  # tail keeps all of it until head and sleep end
        self.assertIn("more than 128 MB of memory", self.run_shell(script, memory=128 << 20, seconds=50).trouble)

    def test_a_file_that_grows(self):
        self.run_shell("head -c 100000 /dev/zero > big", file=1000)
        self.assertLessEqual((self.folder / "big").stat().st_size, 1000)

    def test_processes(self):
        outcome = self.run_shell("for i in $(seq 400); do sleep 60 & done; echo done", processes=20, seconds=50)
        self.assertNotEqual(outcome.output, "done\n")

    def test_a_crash_has_a_name(self):
        self.assertIn("it crashed (SIGSEGV", self.run_shell("kill -SEGV $$").trouble)
        self.assertEqual(self.run_shell("exit 1").trouble, "")

    def test_nothing_is_left_running(self):
        self.run_shell(f"(setsid sleep 60.{os.getpid()} &) ; true")
        self.assertFalse([line for line in command_lines() if f"60.{os.getpid()}".encode() in line.split(b"\0")])

    def test_nothing_of_others_can_be_read_and_nothing_else_be_written(self):
        answer, *places = (shlex.quote(str(path)) for path in (self.other / "answer", COURSE, self.other, self.folder.parent))
        outcome = self.run_shell(f"cat {answer} /etc/passwd; ls /root /home {places[0]}; for d in / /tmp /var/tmp /dev/shm /run /usr {' '.join(places)}; do "
                                 f'(: >"$d/flashbook-x") && echo WROTE $d; done; ln -s /etc/passwd link; ln {answer} hard; truncate -s 0 {answer}; '
                                 f"mv {answer} .; chmod 777 .; cat /proc/self/status")
        for word in ("the secret answer", "root:", "grade.py", "WROTE", "Uid"):
            self.assertNotIn(word, outcome.output)
        self.assertEqual((self.other / "answer").read_text(), "the secret answer\n")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_what_is_visible_can_be_read_and_not_written(self):
        answer = shlex.quote(str(self.other / "answer"))
        outcome = self.sandbox.run(["sh", "-c", f"cat {answer}; echo 43 >{answer}"], self.folder, visible=[self.other])
        self.assertTrue(outcome.output.startswith("the secret answer\n"))
        self.assertEqual((self.other / "answer").read_text(), "the secret answer\n")

    def hostile(self, what, seconds=40):
        """Runs the hostile program with `what`: "threads", "hidden", "child", "eater", "tables" or "deep"."""
        source, program = self.other / "hostile.cpp", self.other / self.mark
        source.write_text(HOSTILE)
        subprocess.run(["g++", "-pthread", "-o", program, source], check=True)
        return self.sandbox.run([program, what], self.folder, Limits(memory=128 << 20, seconds=seconds), visible=[program])

    def test_memory_of_children_of_a_second_thread(self):
        self.assertIn("more than 128 MB of memory", self.hostile("threads").trouble)

    def test_a_process_whose_first_thread_has_ended(self):
        """A thread that looks like the remains of one that has ended, without memory."""
        self.assertIn("a loop that never ends?", self.hostile("hidden", seconds=1).trouble)
        self.assertEqual(self.hostile("child").trouble, "")
        self.assertIn("more than 128 MB of memory", self.hostile("eater").trouble)
        threads = subprocess.run("cat /proc/[0-9]*/task/*/stat", shell=True, capture_output=True, text=True).stdout  # some end meanwhile
        self.assertFalse([thread for thread in threads.splitlines() if re.search(rf"\({self.mark}\) [^ZX]", thread)])

    def test_a_process_that_ends_while_it_is_watched(self):
        """A listing of /proc names it, and then its folder is gone."""
        ended = subprocess.Popen(["true"])
        ended.wait()
        self.assertEqual(memory_of(Path(f"/proc/{ended.pid}")), -1)

    def test_tables_of_pages_are_memory(self):
        self.assertIn("more than 128 MB of memory", self.hostile("tables").trouble)

    def test_folders_in_each_other_go_away(self):
        with own_folder(self.other) as self.folder:
            self.assertEqual(self.hostile("deep").code, 0)
        self.assertFalse(self.folder.exists())

    def test_it_tries_itself_also_as_on_older_systems(self):
        for version in (6, 3, 2, 1):
            with mock.patch.object(Sandbox, "landlock", version):
                sandbox = Sandbox()
                sandbox.prove()
                self.assertEqual(sandbox.lack, "")

    def test_without_its_locks_it_says_what_is_possible_and_nothing_is_graded(self):
        with mock.patch.object(Sandbox, "is_fenced", False):
            sandbox = Sandbox()
            sandbox.prove()
            for lack in ("read outside its folder", "truncate a file outside", "leave a symbolic link", "reach the network"):
                self.assertIn(lack, sandbox.lack)
            with self.assertRaisesRegex(Broken, "nothing was graded: on this machine, a submission can read outside its folder, .*--unfenced"):
                grade.Grader(manifest.ROOT, [], 1).__enter__()

    def test_it_needs_no_privilege(self):
        """Runs this class again without permission to mount, and as an ordinary user."""
        if os.geteuid() or "FLASHBOOK_AGAIN" in os.environ:
            self.skipTest("only root runs this test, once")
        for rights in (["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"], ["--reuid=65534", "--regid=65534", "--clear-groups"]):
            python = sys.executable if "--regid" not in str(rights) else "/usr/bin/python3"  # readable by that user
            done = subprocess.run(["setpriv", *rights, python, "-B", __file__, "ASandbox"], env={**os.environ, "FLASHBOOK_AGAIN": "1"},
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_grader_that_is_root_and_cannot_lend_refuses(self):
        with mock.patch("course.sandbox.Sandbox.run", return_value=Outcome(127, ": Operation not permitted\n", 0)):
            with self.assertRaisesRegex(Broken, "cannot be run.* here: : Operation not permitted"):
                Sandbox()

    def test_what_is_printed_cannot_rewrite_a_terminal(self):
        self.assertEqual(printable("a\x1b[2Jb\r\x00\n\tä"), "a[2Jb\n\tä")


class Submission(unittest.TestCase):
    TEXT = "// BEGIN EXERCISE ch01-a: a\nmine\n// END EXERCISE ch01-a\n"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "handed-in"

    def write(self, name, text=TEXT):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def answers(self):
        return submission.answers(self.folder, [exercise()])

    def test_a_tree_or_the_file_alone(self):
        for name in ("chapters/01_one/a.cuh", "my-course/chapters/01_one/a.cuh", "a.cuh", "stuff/a.cuh"):
            with self.subTest(name):
                path = self.write(name)
                found, missing = self.answers()
                self.assertEqual((found["ch01-a"].lines, missing), (["mine"], {}))
                path.unlink()

    def test_says_why_there_is_nothing(self):
        self.folder.mkdir()
        self.assertIn("a.cuh was not handed in", self.answers()[1]["ch01-a"])
        self.write("one/a.cuh")
        self.write("two/a.cuh", self.TEXT.replace("mine", "yours"))
        self.assertIn("more than once: one/a.cuh, two/a.cuh", self.answers()[1]["ch01-a"])
        (self.folder / "two/a.cuh").unlink()
        self.write("one/a.cuh", "nothing")
        self.assertIn("one/a.cuh lacks the lines '// BEGIN EXERCISE ch01-a'", self.answers()[1]["ch01-a"])
        self.write("chapters/01_one/a.cuh", "nothing")
        self.assertIn("has no lines '// BEGIN EXERCISE ch01-a'", self.answers()[1]["ch01-a"])
        (self.folder / "chapters/01_one/a.cuh").unlink()
        self.write("one/a.cuh", "// BEGIN EXERCISE ch01-a: a\n")
        self.assertIn("never ends", self.answers()[1]["ch01-a"])
        with self.assertRaisesRegex(Fault, "is neither a folder"):
            submission.answers(self.folder / "one/a.cuh", [exercise()])

    def zip(self, name, **files):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for inner, text in files.items():
                archive.writestr(inner, text)
        return path

    def test_a_zip_or_a_zip_in_a_folder(self):
        path = self.zip("ada.zip", **{"student/chapters/01_one/a.cuh": self.TEXT, "../../escaped.cuh": self.TEXT, "build/a.cuh": self.TEXT})
        for place in (path, self.folder):
            found, missing = submission.answers(place, [exercise()])
            self.assertEqual((found["ch01-a"].lines, missing), (["mine"], {}), place)
        self.assertEqual(list(self.folder.parent.rglob("*.cuh")), [])

    def test_a_zip_that_is_none_costs_itself_only(self):
        self.write("a.cuh")
        path = self.zip("bomb.zip", **{"a.cuh": " " * (submission.LARGEST + 1)})
        (self.folder / "damaged.zip").write_bytes(path.read_bytes()[:-9])
        (self.folder / "dir.zip!").mkdir()
        (self.folder / "dir.zip!" / "a.h").write_text("x")
        self.assertEqual(self.answers()[0]["ch01-a"].lines, ["mine"])
        with self.assertRaisesRegex(Fault, "ada.rar is neither a folder nor a zip: unpack it"):
            submission.answers(self.folder / "ada.rar", [exercise()])

    def test_a_zip_takes_little_memory_and_time(self):
        """Tests a zip file that claims to be small, and one with so many files that reading the whole list for each would take too long."""
        size, said = (64 << 20).to_bytes(4, "little"), (1000).to_bytes(4, "little")
        for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
            path = self.zip("ada.zip")
            with zipfile.ZipFile(path, "w", method) as archive:
                archive.writestr("a.cuh", bytes(64 << 20))
            path.write_bytes(path.read_bytes().replace(size, said))
            tracemalloc.start()
            self.answers()
            self.assertLess(tracemalloc.get_traced_memory()[1], 16 << 20)
            tracemalloc.stop()
        self.zip("ada.zip", **{f"{i}/a.cuh": "" for i in range(3000)})
        start = time.process_time()
        self.answers()
        self.assertLess(time.process_time() - start, 5)

    def handed_in(self, *words, **how):
        scratch = self.folder.parent / "scratch"
        return [(one.title, one.id, (one.place and list(submission.answers(one.place, [exercise()], one.files)[0])) or [])
                for one in classroom.handed_in([str(word) for word in words or [self.folder]], [exercise()], scratch, **how)]

    def test_a_class_in_folders_and_zips(self):
        self.write("ada/student/chapters/01_one/a.cuh")
        self.zip("bob.zip", **{"a.cuh": self.TEXT})
        (self.folder / "carl").mkdir()
        everybody = [("ada", "", ["ch01-a"]), ("bob", "", ["ch01-a"]), ("carl", "", [])]
        self.assertEqual(self.handed_in(), everybody)
        shutil.make_archive(str(self.folder.parent / "all"), "zip", self.folder)
        self.assertEqual(self.handed_in(self.folder.parent / "all.zip"), everybody)
        self.assertEqual([title for title, *_ in self.handed_in(single=True)], ["handed-in"])

    def test_a_class_as_platforms_export_it(self):
        """Tests exports of Moodle, with and without folders, and of Canvas."""
        moodle = [("Ada Lovelace", "123", ["ch01-a"]), ("Bob Noyce", "124", ["ch01-a"])]
        canvas = [("lovelaceada", "77", ["ch01-a"]), ("noycebob", "78", ["ch01-a"])]
        for ada, bob, found in (("Ada Lovelace_123_assignsubmission_file_/a.cuh", "Bob Noyce_124_assignsubmission_file_/hw.zip", moodle),
                                ("Ada Lovelace_123_assignsubmission_file_a.cuh", "Bob Noyce_124_assignsubmission_file_.zip", moodle),
                                ("lovelaceada_77_1001_a.cuh", "noycebob_LATE_78_1003_hw.zip", canvas)):
            self.write(ada)
            self.zip(bob, **{"chapters/01_one/a.cuh": self.TEXT})
            self.assertEqual(self.handed_in(), found)
            remove(self.folder)

    def test_a_roster_knows_who_is_missing(self):
        self.folder.mkdir()
        file = self.folder / "roster.csv"
        file.write_text("id,name,section\n7,Ada Lovelace,1\n8,Bob,\n9,Carl,1\n")
        found = [HandedIn("ada-lovelace", self.folder), HandedIn("Carl", self.folder)]
        everybody = classroom.with_roster(found, classroom.read_roster(file))
        self.assertEqual([(one.title, one.id, bool(one.place)) for one in everybody],
                         [("ada-lovelace", "7", True), ("Carl", "9", True), ("Bob", "8", False)])
        self.assertEqual(everybody[0].person, "Ada Lovelace")
        file.write_text("who\nada\n")
        with self.assertRaisesRegex(Fault, "the first line names the columns"):
            classroom.read_roster(file)

    def test_a_lost_marker_costs_its_own_exercise(self):
        other = exercise(id="ch01-b")
        self.write("a.cuh", "// BEGIN EXERCISE ch01-b: b\n" + self.TEXT)
        found, missing = submission.answers(self.folder, [exercise(), other])
        self.assertEqual(found["ch01-a"].lines, ["mine"])
        self.assertEqual(missing["ch01-b"], "a.cuh:1: ch01-b never ends: put the line '// END EXERCISE ch01-b' back")

    def test_links_pipes_and_large_files_are_not_opened(self):
        other = self.folder.parent / "other"
        other.mkdir()
        (other / "a.cuh").write_text(self.TEXT)
        self.folder.mkdir()
        (self.folder / "a.cuh").symlink_to(other / "a.cuh")
        (self.folder / "chapters").symlink_to(other)
        os.mkfifo(self.folder / "b.cuh")
        self.assertIn("was not handed in", self.answers()[1]["ch01-a"])
        (self.folder / "a.cuh").unlink()
        self.write("a.cuh", self.TEXT + " " * submission.LARGEST)
        self.assertIn("was not handed in", self.answers()[1]["ch01-a"])

    def test_folders_in_each_other_and_names_that_are_no_text(self):
        self.write("a.cuh")
        deep = self.folder
        for _ in range(1500):  # deeper than Python's own functions can handle
            deep = deep / "d"
            deep.mkdir()
        self.addCleanup(remove, self.folder)
        for name in (b"\xff\xfe.cuh", b"\x1b[2J.cuh", b"two\nlines.cuh"):
            with open(os.path.join(os.fsencode(self.folder), name), "w") as file:
                file.write(self.TEXT.replace("ch01-a", "ch01-b"))
        found, missing = submission.answers(self.folder, [exercise(), exercise(id="ch01-b")])
        self.assertEqual(found["ch01-a"].lines, ["mine"])
        self.assertIn("was not handed in", missing["ch01-b"])

    def test_what_is_read_has_an_end(self):
        for i in range(40):
            self.write(f"{i}.cuh", "\n" * submission.LARGEST)
        with self.assertRaisesRegex(Fault, "more than 8 MB of sources"):
            self.answers()


class Alike(unittest.TestCase):
    LOOP = "float sum = 0;  // of all\nfor (int i = 0; i < count; ++i) {\n  const float next = exp(values[i] - largest);\n  sum += next * weights[i];\n  if (next > 0) seen += 1;\n}\nreturn sum / seen;"

    def test_other_names_numbers_and_comments_are_alike(self):
        renamed = self.LOOP.replace("sum", "total").replace("next", "e").replace("// of all", "/* x */").replace("\n", "\n\n").replace("1", "2")
        one, other = (similar.runs(text.split("\n")) for text in (self.LOOP, renamed))
        self.assertEqual(similar.likeness(one, other), 1)

    def test_pairs_of_a_class_and_the_book_are_named(self):
        [loops] = [e for e in manifest.load() if e.id == "ch03-loops"]
        solved = solution.answer(manifest.ROOT, loops)
        copied, own = graded(), graded()
        copied.name, copied.answers = "copied", {"ch03-loops": regions.Written([line.replace("row_max", "m") for line in solved.lines])}
        own.name, own.answers = "own", {"ch03-loops": regions.Written(self.LOOP.split("\n"))}
        self.assertEqual(classroom.alike([copied, own], [loops], manifest.ROOT), [(1.0, "ch03-loops", "copied", "the book")])


class AClass(unittest.TestCase):
    """A faulty submission does not stop the grading of the others."""

    def grade(self, error):
        grader = mock.Mock(set_to=lambda _: [exercise()], seed=5, sandbox=mock.Mock(lack=""))
        with mock.patch("course.grade.grade", side_effect=error), mock.patch("traceback.print_exc"):
            return grade.grade_or_say_why(grader, HandedIn("ada", Path("/s/ada")), "ada", 1)

    def test_a_submission_costs_its_own_points_only(self):
        for error, why in ((Fault("ada is not a folder"), "ada is not a folder"), (RecursionError(), "the grader failed on it (RecursionError)"),
                           (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "no"), "UnicodeEncodeError")):
            graded = self.grade(error)
            self.assertEqual((graded.points, graded.most), (0, 10))
            self.assertIn(why, graded.results[0].trouble)
            is_there = not isinstance(error, Fault)
            self.assertRegex(report.table([graded]), "\nada,,ch01-a: it could not be tested,0,0," if is_there else "\nada,,not handed in,-,0,")
            self.assertEqual(report.line(graded), "ada: 0 of 10 points" + ("" if is_there else f" ({why})"))
        with self.assertRaises(Broken):
            self.grade(Broken("no build"))

    def test_a_class_that_was_interrupted_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            top, ran, seeds = Path(folder), [], set()
            for i in range(10):
                (top / "class" / f"s{i}").mkdir(parents=True)
                (top / "class" / f"s{i}" / "a.cuh").write_text(Submission.TEXT.replace("mine", f"mine{i}"))

            def grade_one(grader, one, title, _):
                ran.append(title)
                seeds.add(grader.seed)
                if len(ran) == 5:
                    raise KeyboardInterrupt
                return Grade(title, [result("A.Worked")], grader.seed, "", 1)

            def run(*options):
                words = ["grade.py", str(top / "class"), "ch01-a", "--out", str(top / "out"), *options]
                with mock.patch("sys.argv", words), mock.patch("course.manifest.load", return_value=[exercise()]), mock.patch("builtins.print"), \
                        mock.patch("course.grade.grade_or_say_why", grade_one), mock.patch("course.classroom.alike", return_value=[]), \
                        mock.patch.object(grade.Grader, "__init__", lambda self, root, exercises, seed, **_: self.__dict__.update(seed=seed, exercises=exercises)), \
                        mock.patch.object(grade.Grader, "__enter__", lambda self: self), mock.patch.object(grade.Grader, "__exit__", lambda *_: None), \
                        mock.patch.object(grade.Grader, "sandbox", mock.Mock(lack=""), create=True):
                    grade.main()

            with self.assertRaises(SystemExit):
                run()
            self.assertEqual(len((top / "out/grades-ch01-a.csv").read_text().splitlines()), 2 + 4)
            (top / "class/s2/a.cuh").write_text(Submission.TEXT.replace("mine", "mended"))  # a new submission is graded again
            run()
            self.assertEqual(ran, ["s0", "s1", "s2", "s3", "s4", "s2", *(f"s{i}" for i in range(4, 10))])
            self.assertEqual(len(seeds), 1)
            self.assertEqual(len((top / "out/grades-ch01-a.csv").read_text().splitlines()), 2 + 10)
            self.assertEqual(sorted(path.name for path in (top / "out").glob("*unfinished*")), [])
            run("--seed", "77")  # a new one
            self.assertEqual((len(ran), seeds), (22, {77, *seeds}))

    def test_a_name_cannot_rewrite_the_screen_or_another_s_line(self):
        names = grade.titles([HandedIn(name, None) for name in ("\x1b[2Jada", "bob\nada: 100 of 100 points", "\udcffada", "ada", "\u202eada")])
        self.assertEqual(names, ["[2Jada", "bob ada: 100 of 100 points", "ada", "ada-3", "ada-4"])
        names = grade.titles([HandedIn(name, Path(f"/s/{name}"), ("a",)) for name in ("ada", "ada-2", "ada", "ada")])
        self.assertEqual(names, ["ada", "ada-2", "ada-3", "ada-4"])  # a student called ada-2 overwrites no other's report

    def test_a_message_cannot_rewrite_the_screen(self):
        one = result("A.Worked")
        one.verdicts["A.One"].message = "\x1b[2Jwrong\u202e"
        for text in (report.text(graded(one)), report.markdown(graded(one)), json.dumps(report.gradescope(graded(one)), ensure_ascii=False)):
            self.assertIn("[2Jwrong", text)
            self.assertFalse([c for c in text if not c.isprintable() and c != "\n"])


class Points(unittest.TestCase):
    def test_of_each_test(self):
        self.assertEqual(result("A.Worked", "A.One", "A.Two").points, 10)
        self.assertEqual(result("A.Worked", "A.One").points, 6)
        self.assertTrue(result("A.Worked", "A.One", "A.Two").solved)
        self.assertFalse(result("A.Worked", "A.One").solved)

    def test_a_guard_that_fails_takes_all(self):
        self.assertEqual(result("A.One", "A.Two").points, 0)

    def test_nothing_is_right_that_could_not_be_tested(self):
        broken = Score(exercise(), "it does not compile")
        self.assertEqual((broken.points, broken.solved), (0, False))
        half = result("A.Worked", "A.One", "A.Two")  # its traced twin did not compile
        half.trouble = "it does not compile"
        self.assertEqual((half.points, half.solved), (0, False))

    def test_a_student_s_machine_counts_as_the_grader_does(self):
        for passed in (("A.Worked", "A.One"), ("A.Worked",), ("A.One",)):
            here, there = Attempt(exercise(), verdicts=result(*passed).verdicts), result(*passed)
            self.assertEqual((here.points, here.solved), (there.points, there.solved))
        del here.verdicts["A.Two"]  # a hidden test, missing from students' copies
        here.verdicts["A.Worked"] = gtest.Verdict(True)
        self.assertEqual((here.points, here.solved, possible([here]), earned([here])), (6, True, 6, 6))


class Several(unittest.TestCase):
    def test_what_is_graded_is_chosen_by_chapter_or_name(self):
        one, two, three = exercise(), exercise(id="ch01-b"), exercise(id="ch02-a", chapter="02_two")
        self.assertEqual(grade.chosen([one, two, three], []), [one, two, three])
        self.assertEqual(grade.chosen([one, two, three], ["02", "ch01-b"]), [two, three])
        with self.assertRaisesRegex(Fault, "unknown name ch03-a"):
            grade.chosen([one, two, three], ["ch03-a"])

    def test_what_a_student_named_begins_no_formula(self):
        for name in ('=HYPERLINK("http://a")', "+1", "-1", "@a", "\t=1"):
            one = graded(result("A.Worked"))
            one.name = name
            for text in (report.table([one]), report.canvas([one], "F"), report.moodle([one], "F")):
                self.assertIn("'" + name.replace('"', '""'), text)

    def test_what_learning_platforms_import(self):
        one = graded(result("A.Worked", "A.One"))
        one.student = "77"
        self.assertEqual(report.canvas([one], "Flashbook 03"), "Student,ID,SIS User ID,SIS Login ID,Section,Flashbook 03\n"
                                                               "    Points Possible,,,,,10\nada,77,,,,6\n")
        self.assertEqual(report.moodle([one], "Flashbook 03"), "ID number,Full name,Flashbook 03,Feedback\n77,ada,6,\n")
        one.person = "Ada Lovelace"  # from a roster, whatever the folder's name
        self.assertIn("\nAda Lovelace,77,", report.canvas([one], "Flashbook 03"))
        self.assertIn("\n77,Ada Lovelace,", report.moodle([one], "Flashbook 03"))


class Variants(unittest.TestCase):
    """capstone-variant gives students different variants."""
    ROOT = manifest.ROOT
    EXERCISE = next(e for e in manifest.load() if e.variant is not None)

    def drawn(self, seed, id):
        return variant.for_student(self.ROOT, self.EXERCISE, variant.Student(seed, id)).variant

    def test_the_same_student_of_the_same_class_has_the_same_variant(self):
        self.assertEqual(self.drawn("fall26", "Ada@school.edu "), self.drawn("Fall26", "ada@school.edu"))
        self.assertGreater(len({self.drawn(f"class {i}", "ada") for i in range(20)}), 8)  # each class draws again

    def test_a_copy_of_another_s_answer_does_not_pass(self):
        grader = grade.Grader.__new__(grade.Grader)
        grader.private = Path()
        grader.root, grader.exercises, grader.seed, grader.class_seed, grader.limits = self.ROOT, [self.EXERCISE], 1, "fall26", Limits()
        grader.toolchain = mock.Mock(knows=lambda _: False)
        ada = self.drawn("fall26", "77")

        def is_right_for_ada(_, exercise, __, mode, seed, ___):
            number = int(modes.environment(exercise, mode, seed)[variant.VARIABLE])
            return gtest.Verdict(number == ada, "" if number == ada else "wrong")

        grader.judge = mock.Mock(run=is_right_for_ada)
        other = next(str(id) for id in range(100) if self.drawn("fall26", str(id)) != ada)
        text = Written(["kernel"])
        with mock.patch.object(grader, "program", return_value=(Path("p"), "")), mock.patch.object(grader, "race", return_value=""):
            for one, points in ((HandedIn("ada", None, id="77"), 100), (HandedIn("77", None), 100), (HandedIn("ada", None, id=other), 0)):
                [found] = grader.answers(grader.set_to(one), {self.EXERCISE.id: text}, {}, 1)
                self.assertEqual(found.points, points)
        grades = graded(found)
        name = variant.name(self.ROOT, found.exercise)
        self.assertIn(f"capstone-variant: a variant of your own ({name})", report.text(grades))
        self.assertIn(f"{variant.VARIABLE}={found.exercise.variant} ./flashbook course try capstone-variant", report.markdown(grades))
        self.assertIn(f',variant of capstone-variant,seed\nthe most,,,100,100,,\nada,,,0,0,"{name}",5', report.table([grades]))

    def test_gradescope_s_grader_knows_the_class(self):
        with tempfile.TemporaryDirectory() as folder:
            package.write(self.ROOT, Path(folder) / "a.zip", [self.EXERCISE.id], "fall '26")
            with zipfile.ZipFile(Path(folder) / "a.zip") as archive:
                self.assertIn("""--class='fall '"'"'26' --student="$student" """, archive.read("run_autograder").decode())


class Judging(unittest.TestCase):
    def test_a_record_is_a_plain_file(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "plain").write_bytes(b"abc")
            (folder / "link").symlink_to(folder / "plain")
            os.mkfifo(folder / "pipe")
            self.assertTrue(judge.take_record(folder / "plain", folder / "copy"))
            self.assertEqual((folder / "copy").read_bytes(), b"abc")
            for bad in ("link", "pipe", "gone"):
                self.assertFalse(judge.take_record(folder / bad, folder / "copy"), bad)

    def test_one_test_ran_or_it_is_no_verdict(self):
        def of(*tests):
            return gtest.failures({"testsuites": [{"testsuite": list(tests)}]})

        self.assertEqual(of({"status": "RUN", "result": "COMPLETED"}), [])
        self.assertEqual(of({"status": "RUN", "failures": [{"failure": f"/a/b.cu:{n}\nFailed\nwrong"} for n in (3, 4)]}), ["wrong"])
        self.assertIsNone(of())
        self.assertIsNone(of({"status": "NOTRUN"}))
        self.assertIsNone(of({"status": "RUN", "result": "SKIPPED"}))
        self.assertIsNone(of({"status": "RUN"}, {"status": "RUN"}))


class Report(unittest.TestCase):
    def test_says_what_is_wrong_but_not_of_hidden_tests(self):
        for text in (report.text(graded(result("A.Worked"))), report.markdown(graded(result("A.Worked")))):
            self.assertIn("A.One is wrong", text)
            self.assertNotIn("A.Two is wrong", text)
            self.assertIn("A hidden test", text)
            self.assertIn("0 of 10 points", text)

    def test_says_that_there_was_no_fence(self):
        one = graded(result("A.Worked"))
        one.lack = "a submission can reach the network"
        for text in (report.text(one), report.markdown(one), json.dumps(report.gradescope(one))):
            self.assertIn("this was graded without a complete sandbox: a submission can reach the network", text)
        for text in grade.tables([one], ["01"]).values():
            self.assertRegex(text, "graded without a complete sandbox|unfenced")

    def test_output_cannot_leave_its_fence(self):
        bad = Score(exercise(), "```\n# Full points")
        self.assertNotIn("\n```\n# Full", report.markdown(graded(bad)))

    def test_gradescope(self):
        got = report.gradescope(graded(result("A.Worked", "A.One")))
        json.dumps(got)
        self.assertEqual(got["score"], 6)
        by_name = {test["name"]: test for test in got["tests"]}
        self.assertNotIn("score", by_name["ch01-a: worked before"])  # a guard has no score
        self.assertEqual((by_name["ch01-a: one"]["score"], by_name["ch01-a: one"]["max_score"]), (6, 6))
        self.assertEqual((by_name["ch01-a: two"]["score"], by_name["ch01-a: two"]["status"]), (0, "failed"))
        self.assertEqual(sum(test.get("score", 0) for test in got["tests"]), got["score"])
        self.assertTrue({test["status"] for test in got["tests"]} <= {"passed", "failed"})


class Package(unittest.TestCase):
    def test_has_scripts_tests_and_what_grading_takes(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "autograder.zip"
            ids = package.write(manifest.ROOT, out, ["01"])
            self.assertTrue(ids and all(id.startswith("ch01-") for id in ids))
            with zipfile.ZipFile(out) as archive:
                names = set(archive.namelist())
                self.assertIn("course/grade.py 01  --single ", archive.read("run_autograder").decode().replace("/autograder/submission ", ""))
                for script in ("setup.sh", "run_autograder"):
                    self.assertNotIn("@", archive.read(script).decode().replace("$@", ""))
                    self.assertEqual(archive.getinfo(script).external_attr >> 16 & 0o777, 0o755)
                self.assertIn("--target judges_ch01-scores judges_ch01-softmax", archive.read("setup.sh").decode())
        for name in ("course/grade.py", "course/student.md", "course/agents.md", "course/workflow.yml", "chapters/03_flash_attention_1/exercises/exercises.json",
                     "tests/exercises/hidden/ch01-scores.cu", "chapters/01_naive_attention/step1_textbook.cuh",
                     "course/solutions/01_naive_attention/ch01-traffic.h"):
            self.assertIn(f"flashbook/{name}", names)
        self.assertFalse([name for name in names if name.startswith(("flashbook/docs/pages", "flashbook/docs/figures", "flashbook/bench/"))])

    def test_unpacked_it_makes_a_handout(self):
        with tempfile.TemporaryDirectory() as folder:
            package.write(manifest.ROOT, Path(folder) / "a.zip", ["01"])
            with zipfile.ZipFile(Path(folder) / "a.zip") as archive:
                archive.extractall(folder)
            command = [sys.executable, f"{folder}/flashbook/course/handout.py", f"{folder}/solved", "--solved"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            e = next(e for e in manifest.load() if e.id == "ch01-scores")
            self.assertEqual((Path(folder) / "solved" / e.file).read_text(), solution.solved(manifest.ROOT, e))


if __name__ == "__main__":
    unittest.main()
