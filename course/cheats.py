"""Submissions that try to get points without solving the exercise. None may earn a point or leave a trace outside its folder. Most of them skip
the gate, since the walls behind it must hold without it. Each has bounded effects, so that a hole in a wall does not take down the
machine."""
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from course import gate, handout, submission
from course.grade import Grader
from course.manifest import Exercise
from course.regions import Written
from course.sandbox import Limits
from course.score import Score
from course.solution import solved

Cheat = TypeVar("Cheat")
EXERCISES = {"ch02-counts", "ch02-merge", "ch03-loops", "capstone-forward"}  # the exercises that are attacked
SEED = 7
LIMITS = Limits(seconds=2, memory=512 << 20)
TESTS = 2  # tests to run per exercise, since answers may never return
# Declares and calls system(), which is not declared in an exercise.
ORDER = ('static int order() {{ int system(const char*) __asm__("system"); return system("{}"); }}\n'
         'static inline const int ordered = order();\n')
# Operations that succeed outside the sandbox; each reports success. {open} is a file with mode 0666.
HOLES = {
    "reads it": 'open("{open}", 0) >= 0', "writes it": 'open("{open}", 1) >= 0', "truncates it": 'truncate("{open}", 0) == 0',
    "takes it away": 'rename("{open}", "mine") == 0', "unlinks it": 'unlink("{open}") == 0', "links it": 'link("{open}", "hard") == 0',
    "truncates its own program": "open(program, 01000) >= 0", "reads the reference's program": 'open("{judge}", 0) >= 0',
    "reads the reference's answer": 'open("{solution}", 0) >= 0', "lists the book": 'open("{root}", 0200000) >= 0',
    "looks through a folder's descriptor": 'openat(open("/", 010000000), "etc/passwd", 0) >= 0',
    "leaves a symbolic link": 'symlink("/etc/passwd", "soft") == 0',
    "leaves a pipe": 'mkfifo("pipe", 0666) == 0', "goes elsewhere": 'chdir("/") == 0', "lets everybody in": 'chmod(".", 0777) == 0',
    "gives its folder away": 'chown(".", 0, 0) == 0', "has its own root": 'chroot(".") == 0', "becomes root": "setuid(0) == 0",
    "leaves its group": "fork() == 0 && (setsid() > 0 || (_exit(0), false))", "reads another's environment": 'open("/proc/1/environ", 0) >= 0',
    "reads its own": 'open("/proc/self/environ", 0) >= 0', "signals its parent": "kill(getppid(), 0) == 0", "signals everybody": "kill(-1, 0) == 0",
    "directs signals to its parent": "fcntl(1, 8, getppid()) == 0", "traces its parent": "ptrace(16, getppid(), 0, 0) == 0",
    "limits its parent": "prlimit(getppid(), 7, 0, 0) == 0", "slows its parent": "setpriority(0, getppid(), 19) == 0",
    "has a socket": "socket(2, 1, 0) >= 0", "opens a local socket": "socketpair(1, 1, 0, sockets) == 0",
    "shares memory": "shmget(77, 4096, 01666) >= 0",
    "creates a file in memory": 'memfd_create("a", 0) >= 0', "queues calls": "syscall(425, 8, program) >= 0",
    "opens a file by the newer call": 'syscall(437, -100, "/etc/passwd", how, 24) >= 0',
    "has a namespace": "unshare(0x10000000) == 0", "mounts": 'mount("none", ".", "tmpfs", 0, 0) == 0', "loads a filter": "syscall(321, 0, 0, 0) >= 0",
    "types on the terminal": 'open("/dev/tty", 2) >= 0', "pushes into it": 'ioctl(1, 0x5412, "x") == 0',
}
FORMULAS = {"maximum": "first + (scores - 1) * step", "rises": "scores - 1", "rises_in_tiles": "scores / tile - 1",
            "sum": "(1 - std::exp(-scores * step)) / (1 - std::exp(-step))", "maxima": "std::log(scores) + 0.5772",
            "tiles_with_a_maximum": "std::log(scores / tile) + 0.5772", "multiplications_of_step3": "scores * head_dim",
            "multiplications_of_step4": "scores / tile * head_dim"}
# Computes attention without a kernel.
ON_THE_HOST = """
inline void on_the_host(const Forward& p) {
  for (int64_t row = 0; row < int64_t(p.batch) * p.heads * p.seqlen_q; ++row) {
    const int head = int(row / p.seqlen_q), query = int(row % p.seqlen_q);
    const int64_t keys = (int64_t(head / p.heads) * p.kv_heads + head % p.heads / (p.heads / p.kv_heads)) * p.seqlen_k;
    const int visible = p.causal ? min(p.seqlen_k, query + 1 + p.seqlen_k - p.seqlen_q) : p.seqlen_k;
    float top = -INFINITY, sum = 0, out[kHeadDim] = {};
    for (int key = 0; key < visible; ++key) {
      float score = 0;
      for (int c = 0; c < kHeadDim; ++c) score += to_float(p.q[row * kHeadDim + c]) * to_float(p.k[(keys + key) * kHeadDim + c]);
      const float next = fmaxf(top, score * p.scale), old = std::exp(top - next), weight = std::exp(score * p.scale - next);
      for (int c = 0; c < kHeadDim; ++c) out[c] = out[c] * old + weight * to_float(p.v[(keys + key) * kHeadDim + c]);
      sum = sum * old + weight, top = next;
    }
    for (int c = 0; c < kHeadDim; ++c) p.o[row * kHeadDim + c] = from_float<__half>(sum > 0 ? out[c] / sum : 0);
    p.lse[row] = sum > 0 ? top + std::log(sum) : -INFINITY;
  }
}
"""
# The test that calls a prediction has a pointer to the right formula in its frame, if its program has that formula.
ON_THE_STACK = """
double found() const {
  static int depth = 0;
  if (depth > 0) return 0;
  ++depth;
  unsigned long mark = 0;
  double (*near)(const void*) = [](const void*) { return 0.0; };
  const unsigned long here = reinterpret_cast<unsigned long>(near), end = reinterpret_cast<unsigned long>("");
  double right = 0;
  for (int i = 0; i < 120 && right == 0; ++i) {
    const unsigned long word = (&mark)[i];
    if (word >= end || word + (1 << 20) < here || word == here) continue;
    const unsigned char* code = reinterpret_cast<const unsigned char*>(word);
    if (code[0] != 0x55 || code[1] != 0x48 || code[2] != 0x89 || code[3] != 0xe5) continue;
    right = reinterpret_cast<double (*)(const void*)>(word)(this);
  }
  --depth;
  return right;
}
"""
PASS = "[==========] Running 1 test.\\n[       OK ] Merge.TheExampleOfTheText (0 ms)\\n[  PASSED  ] 1 test.\\n"


def counts(condition: str) -> str:
    """Returns an answer to ch02-counts that is right only if `condition` holds."""
    return "".join(f"double {name}() const {{ return {condition} ? {formula} : 0; }}\n" for name, formula in FORMULAS.items())


def answers(root: Path, traces: Path) -> Iterator[tuple[str, str, str]]:
    """Returns [(what it tries, the exercise, its text)]. `traces`: a folder that no submission may write."""
    yield "prints a fake result and leaves", "ch02-merge", f'__builtin_printf("{PASS}");\n__builtin_exit(0);'
    yield "leaves before the test has looked", "ch02-merge", "__builtin__exit(0);"
    yield "loops for ever", "ch02-merge", "for (volatile int i = 0;; i = i + 1) {\n}"
    yield "allocates more memory than there is", "ch02-merge", (
        "for (int i = 0; i < 128; ++i)\n  for (volatile char* p = new char[1 << 24], *q = p; q < p + (1 << 24); q += 4096) *q = 1;")
    yield "prints without end", "ch02-merge", 'for (;;) __builtin_puts("more");'
    yield "crashes", "ch02-merge", "*(volatile int*)nullptr = 1;"
    yield "leaves processes behind", "ch02-counts", ORDER.format("for i in $(seq 150); do sleep 9 & done") + counts("false")
    yield "writes outside its folder", "ch02-counts", ORDER.format(
        f"for d in {traces} {root} /tmp /var/tmp /dev/shm $HOME/..; do touch $d/flashbook-cheat; done") + counts("false")
    yield "replaces its record with a link", "ch02-counts", ORDER.format("ln -sf /dev/zero $FLASHBOOK_OBSERVED_WRITE") + counts("false")
    yield "looks for a hole in the sandbox", "ch02-counts", holes(root, traces / "open") + counts("did()")


def holes(root: Path, open_file: Path) -> str:
    """Returns a function that returns true if one of HOLES works."""
    places = {"open": open_file, "root": root, "solution": root / "course/solutions/02_online_softmax/ch02-counts.h",
              "judge": root / "build/sim/bin/exercise.ch02-counts_solved"}
    names = sorted({name for test in HOLES.values() for name in re.findall(r"([a-z_]+)\(", test)})
    lines = [f'int {name}(...) __asm__("{name}");' for name in names]
    lines += ['extern char* program __asm__("program_invocation_name");', "static int sockets[2];", "static unsigned long how[3];",
              "bool any = false;"]
    for what, test in HOLES.items():
        for name, place in places.items():
            test = test.replace("{" + name + "}", str(place))
        lines.append(f'if ({test}) any = true, __builtin_printf("it %s\\n", "{what}");')
    return "static bool did() {\n" + "\n".join(lines) + "\nreturn any;\n}\n"


def gated(root: Path) -> Iterator[tuple[str, str]]:
    """Returns [(what it tries, its text)], which the gate must refuse, since it takes effect during compilation."""
    yield "includes the reference's answer", f'#include "{root}/course/solutions/02_online_softmax/ch02-counts.h"'
    yield "includes it in digraphs", f'%:include "{root}/course/solutions/02_online_softmax/ch02-counts.h"'
    yield "lets the assembler read it", f'asm(".incbin \\"{root}/LICENSE\\"");'
    yield "leaves its function", "return {};\n}\ninline int more() {\n  return 1;"
    yield "hides a directive behind a comment", "/* \n */ #define TEST(a, b) void a##b()"
    solution = f'#include "{root}/course/solutions/02_online_softmax/ch02-counts.h"'
    yield "hides it behind a comment in a pragma", f"/*\n#pragma unroll // */ int harmless;\n{solution}\n/*\n*/"
    yield "hides it behind a string in a number", f"""int harmless = u'a' + *"'" + *"/*";\n{solution}\n// */"""
    yield "includes hidden tests", f'#include "{root}/tests/exercises/hidden/ch01-scores.cu"'


def around(exercises: Mapping[str, Exercise]) -> Iterator[tuple[str, Exercise, str, str]]:
    """Returns ways around an exercise's purpose: [(what it tries, the exercise, its text, the compiler error that must stop it, if one must)]."""
    no_code = "arguments are numbers, pointers, maps, or structs of the parameter's type without constructors"
    # Except in mode random, the simulator places allocations at known distances: the keys end a guard area and whole pages after the queries.
    yield "gives each query a thread, and finds keys by their distance from queries", exercises["ch03-loops"], """
if (first_key > 0) return;
const auto bytes = [&](int rows, std::size_t unit) { return (std::size_t(rows) * kHeadDim * sizeof(T) + unit - 1) / unit * unit; };
const int heads = gridDim.x, keys_of = heads / problem.group * problem.seqlen_k;
const std::size_t guard = std::size_t(64) << 20, pages = bytes(keys_of, 4096), all_keys = bytes(keys_of, 256);
const auto behind = [&](const T* array, std::size_t size) {
  return reinterpret_cast<const T*>(reinterpret_cast<std::uintptr_t>(array) + size + guard + pages - all_keys);
};
const T* const k = behind(q, bytes(heads * problem.seqlen_q, 256));
const T* const v = behind(k, all_keys);
const int query = first_query + threadIdx.x;
if (threadIdx.x < kBlock && query < problem.seqlen_q) {
  float out[kHeadDim] = {}, row_max = -INFINITY, row_sum = 0;
  for (int key = 0; key < problem.visible_keys(query); ++key) {
    float score = 0;
    for (int c = 0; c < kHeadDim; ++c)
      score += to_float(q[problem.q_row(head, query) * kHeadDim + c]) * to_float(k[problem.k_row(head, key) * kHeadDim + c]);
    score *= problem.scale_log2;
    const float next = fmaxf(row_max, score), old = exp2_approx(row_max - next), weight = exp2_approx(score - next);
    row_max = next, row_sum = row_sum * old + weight;
    for (int c = 0; c < kHeadDim; ++c) out[c] = out[c] * old + weight * to_float(v[problem.k_row(head, key) * kHeadDim + c]);
  }
  for (int c = 0; c < kHeadDim; ++c) o[problem.q_row(head, query) * kHeadDim + c] = from_float<T>(row_sum > 0 ? out[c] / row_sum : 0);
  lse[problem.q_row(head, query)] = row_sum > 0 ? (row_max + std::log2(row_sum)) * 0.69314718f : -INFINITY;
}""", ""
    yield "computes on the host, while it plans", exercises["capstone-forward"], ON_THE_HOST + """
__global__ void nothing() {}
inline void plan(Plan& plan, const Forward& p) {
  on_the_host(p);
  plan.launch(nothing, dim3(1), dim3(32), 0);
}""", ""
    yield "computes on the host, where an argument becomes a parameter", exercises["capstone-forward"], ON_THE_HOST + """
__global__ void nothing(int) {}
struct Argument {
  Forward p;
  operator int() const { on_the_host(p); return 0; }
};
inline void plan(Plan& plan, const Forward& p) { plan.launch(nothing, dim3(1), dim3(32), 0, Argument{p}); }""", no_code
    yield "computes on the host, where a parameter is copied", exercises["capstone-forward"], ON_THE_HOST + """
struct Parameter {
  Forward p;
  explicit Parameter(const Forward& p) : p(p) {}
  Parameter(const Parameter& other) : p(other.p) { on_the_host(p); }
};
__global__ void nothing(Parameter) {}
inline void plan(Plan& plan, const Forward& p) { plan.launch(nothing, dim3(1), dim3(32), 0, Parameter(p)); }""", no_code
    yield "calls the right formula through a pointer on the stack", exercises["ch02-counts"], ON_THE_STACK + "".join(
        f"double {name}() const {{ return found(); }}\n" for name in FORMULAS), ""


def submissions(root: Path, folder: Path, exercises: Sequence[Exercise]) -> Iterator[tuple[str, Path]]:
    """Returns [(what it tries, a folder to hand in)]: stubs plus tampered files."""
    edited = folder / "edited"
    handout.make(root, edited)
    for file in (edited / "tests/exercises").glob("*.c*"):
        file.write_text("#include <gtest/gtest.h>\nTEST(All, Right) {}\n")
    (edited / "tests/exercises/CMakeLists.txt").write_text("")
    (edited / "course/manifest.py").write_text("raise SystemExit(0)\n")
    yield "edits tests, build files and the grader", edited

    linked = folder / "linked"
    shutil.copytree(edited, linked)
    solution = folder / "solved.h"
    counts = next(e for e in exercises if e.id == "ch02-counts")
    solution.write_text(solved(root, counts), encoding="utf-8")
    (linked / counts.file).unlink()
    (linked / counts.file).symlink_to(solution)
    yield "links to another user's file", linked


def faults_of(what: str, result: Score, wall: str = "") -> Iterator[str]:
    """Yields the faults in a cheat's result. The cheat must have run, or, with a `wall`, have failed to compile with
    that error."""
    print(f"cheat: {what:<50} {result.points} points", flush=True)
    if wall and wall not in result.trouble:
        yield f"cheat '{what}' ({result.exercise.id}) should fail to compile with '{wall}': {result.trouble or 'it compiles'}"
    elif result.trouble and not wall:
        yield f"cheat '{what}' ({result.exercise.id}) was not tried: {result.trouble}"
    elif result.points:
        yield f"cheat '{what}' ({result.exercise.id}) gets {result.points} points"


def side_by_side(cheats: Sequence[Cheat], grade: Callable[[Cheat], Score]) -> Iterator[tuple[Cheat, Score]]:
    """Returns each cheat with its score, in order."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from zip(cheats, pool.map(grade, cheats))


def faults_of_answers(grader: Grader, by_id: Mapping[str, Exercise], traces: Path) -> Iterator[str]:
    def grade(cheat: tuple[str, str, str]) -> Score:
        _, id, text = cheat
        exercise = by_id[id] if id == "ch02-counts" else replace(by_id[id], tests=by_id[id].tests[:TESTS])
        return grader.exercise(exercise, Written(text.split("\n")), gated=False)

    for (what, *_), result in side_by_side(list(answers(grader.root, traces)), grade):
        yield from faults_of(what, result)


def prove(root: Path, exercises: Sequence[Exercise]) -> Iterator[str]:
    """Yields a fault for each cheat that succeeds."""
    by_id = {e.id: e for e in exercises}
    for what, text in gated(root):
        if not gate.objections(text.split("\n")):
            yield f"cheat '{what}': the gate lets it in"
    with tempfile.TemporaryDirectory() as folder, Grader(root, exercises, SEED, LIMITS) as grader:
        traces = Path(folder) / "traces"
        traces.mkdir()
        traces.chmod(0o777)
        (traces / "open").write_text("42\n")
        (traces / "open").chmod(0o666)
        yield from faults_of_answers(grader, by_id, traces)
        for (what, _), result in side_by_side(list(gated(root)), lambda cheat: grader.exercise(
                by_id["ch02-counts"], Written(cheat[1].split("\n")), gated=False)):
            print(f"cheat: {what + ', past the gate':<50} {result.points} points", flush=True)
            if result.points:
                yield f"cheat '{what}' gets {result.points} points if the gate lets it in"
        for (what, _, _, wall), result in side_by_side(list(around(by_id)), lambda cheat: grader.exercise(cheat[1], Written(cheat[2].split("\n")))):
            yield from faults_of(what, result, wall)
        if (traces / "open").read_text() != "42\n":
            yield "a cheat changed a file outside its folder"
        for place in (traces, root, Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path.home().parent):
            if (place / "flashbook-cheat").exists():
                yield f"a cheat wrote {place / 'flashbook-cheat'}"
        for what, handed_in in submissions(root, Path(folder), exercises):
            written, missing = submission.answers(handed_in, [by_id["ch02-counts"], by_id["ch02-merge"]])
            points = sum(grader.exercise(by_id[id], answer).points for id, answer in written.items())
            print(f"cheat: {what:<50} {points} points", flush=True)
            if points or len(written) + len(missing) != 2:
                yield f"cheat '{what}' gets {points} points"
