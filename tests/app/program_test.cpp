// The programs as a user runs them: exit codes, one-line errors, and output files that are complete or
// absent.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "common/app/report.h"
#include "common/attention/npy.h"
#include "tests/require_gpu.h"

namespace flashbook::testing {
namespace {

struct Finished {
  int code;
  std::string output;  ///< stdout and stderr
};

Finished run_command(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string output;
  std::array<char, 4096> chunk;
  while (std::size_t size = std::fread(chunk.data(), 1, chunk.size(), pipe))
    output.append(chunk.data(), size);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

std::string program() { return std::string(FLASHBOOK_BINARY_DIR) + "/01_naive_attention"; }

Finished chapter1(const std::string& arguments) { return run_command(program() + " " + arguments); }

class Program : public MachineTest {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("flashbook_program_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  int files() const {
    return int(
        std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()));
  }
  std::filesystem::path folder_;
};

/// The programs that run kernels.
class ProgramOnDevice : public Program {
 protected:
  void SetUp() override {
    MachineTest::SetUp();
    Program::SetUp();
  }
};

TEST_F(ProgramOnDevice, RightResultsExitWith0AndAreWritten) {
  const Finished done =
      chapter1("--seqlen 50 --heads 2 --head-dim 64 --causal --dtype f16 --output " + file("o.npy") +
               " --lse " + file("lse.npy") + " --json " + file("report.json"));
  EXPECT_EQ(done.code, 0) << done.output;
  EXPECT_NE(done.output.find("every row against the FP64 oracle"), std::string::npos) << done.output;
  const NpyArray o = read_npy(file("o.npy")), lse = read_npy(file("lse.npy"));
  EXPECT_EQ(o.dtype, DType::f32);
  EXPECT_EQ(o.shape.back(), 64);
  EXPECT_EQ(o.shape[2], 50);
  EXPECT_EQ(lse.shape, std::vector<int64_t>(o.shape.begin(), o.shape.end() - 1));
  const Report report = read_json(file("report.json"));
  ASSERT_EQ(report.steps.size(), 5u);
  EXPECT_TRUE(report.ok());
  EXPECT_GT(report.steps[0].seconds, 0);
  EXPECT_EQ(files(), 3);
}

TEST_F(ProgramOnDevice, TheSameSeedGivesTheSameBits) {
  ASSERT_EQ(chapter1("--seqlen 33 --step 2 --check off --seed 5 --output " + file("a.npy")).code, 0);
  ASSERT_EQ(chapter1("--seqlen 33 --step 2 --check off --seed 5 --output " + file("b.npy")).code, 0);
  ASSERT_EQ(chapter1("--seqlen 33 --step 2 --check off --seed 6 --output " + file("c.npy")).code, 0);
  EXPECT_EQ(read_npy(file("a.npy")).values, read_npy(file("b.npy")).values);
  EXPECT_NE(read_npy(file("a.npy")).values, read_npy(file("c.npy")).values);
}

TEST_F(ProgramOnDevice, AStepThatCannotRunIsPassedOverVisibly) {
  const Finished all = chapter1("--batch 1 --heads 1 --seqlen 1 --seqlen-k 50000 --check off");
  EXPECT_EQ(all.code, 0) << all.output;
  EXPECT_NE(all.output.find("step 2 cannot run: "), std::string::npos) << all.output;
  const Finished one = chapter1("--batch 1 --heads 1 --seqlen 1 --seqlen-k 50000 --step 2");
  EXPECT_EQ(one.code, 2);
  EXPECT_NE(one.output.find("--step textbook"), std::string::npos) << one.output;
}

TEST_F(ProgramOnDevice, TooLittleMemoryIsSaidBeforeAnyWork) {
  const Finished done = chapter1("--batch 60000 --heads 1 --seqlen 4k --head-dim 256");
  EXPECT_EQ(done.code, 2) << done.output;
  EXPECT_NE(done.output.find("are free: make --batch, --heads or --seqlen smaller"), std::string::npos)
      << done.output;
}

TEST_F(ProgramOnDevice, TheLadderPutsReportsTogether) {
  ASSERT_EQ(chapter1("--seqlen 20 --json " + file("a.json")).code, 0);
  const Finished ladder = run_command(std::string(FLASHBOOK_BINARY_DIR) + "/ladder " + file("a.json"));
  EXPECT_EQ(ladder.code, 0);
  for (const char* part :
       {"1.1", "one thread per score", "a tile of registers", "5 right", "TFLOP/s", "factor"})
    EXPECT_NE(ladder.output.find(part), std::string::npos) << ladder.output;
}

TEST_F(Program, WrongUsageExitsWith2AndWritesNothing) {
  for (const std::string arguments :
       {"--seqlen 0", "--seqlen -5", "--seqlen abc", "--head-dim 80", "--wat", "--heads 4 --kv-heads 3",
        "--q missing.npy --k missing.npy --v missing.npy"}) {
    const Finished done = chapter1(arguments + " --output " + file("o.npy"));
    EXPECT_EQ(done.code, 2) << arguments << ": " << done.output;
    EXPECT_EQ(done.output.rfind("01_naive_attention: ", 0), 0u) << done.output;
    EXPECT_EQ(std::count(done.output.begin(), done.output.end(), '\n'), 1) << done.output;
  }
  EXPECT_EQ(files(), 0);
}

TEST_F(Program, AMissingMachineExitsWith77) {
  // A GPU build must find no GPU; the simulator build rejects the option.
  const Finished done =
      run_command("CUDA_VISIBLE_DEVICES= " + program() + " --device gpu --output " + file("o.npy"));
  EXPECT_EQ(done.code, 77) << done.output;
  EXPECT_EQ(files(), 0);
}

TEST_F(Program, TheLadderRefusesWhatIsNoReport) {
  std::ofstream(file("x.json")) << "{}";
  for (const std::string& argument : {std::string(), file("none.json"), file("x.json")}) {
    const Finished done = run_command(std::string(FLASHBOOK_BINARY_DIR) + "/ladder " + argument);
    EXPECT_EQ(done.code, 2) << done.output;
    EXPECT_EQ(done.output.rfind("ladder: ", 0), 0u) << done.output;
  }
}

// The content goes to whatever a name refers to: a link's target, an open descriptor, a device, a pipe.
TEST_F(ProgramOnDevice, OutputsGoWhereTheirNamesLead) {
  const std::string small = "--seqlen 8 --heads 1 --batch 1 --head-dim 64 --step 2 ";
  std::ofstream(file("target.json")) << "before";
  std::filesystem::permissions(file("target.json"),
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::create_symlink("target.json", file("link.json"));
  std::filesystem::create_symlink("new.json", file("dangling.json"));
  for (const char* link : {"link.json", "dangling.json"}) {
    const Finished done = chapter1(small + "--json " + file(link));
    EXPECT_EQ(done.code, 0) << done.output;
    EXPECT_TRUE(std::filesystem::is_symlink(file(link)));
    EXPECT_TRUE(read_json(file(link)).ok());
  }
  EXPECT_EQ(std::filesystem::status(file("target.json")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);

  const Finished to_stdout = chapter1(small + "--json /dev/stdout > " + file("out.txt"));
  EXPECT_EQ(to_stdout.code, 0) << to_stdout.output;
  std::ifstream out(file("out.txt"));
  const std::string text((std::istreambuf_iterator<char>(out)), {});
  EXPECT_EQ(text.front(), '{');
  EXPECT_NE(text.find("every row against the FP64 oracle"), std::string::npos) << text;
  EXPECT_TRUE(std::filesystem::is_symlink("/dev/stdout"));

  EXPECT_EQ(chapter1(small + "--json /dev/null --lse /dev/null").code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  const Finished piped = run_command("mkfifo " + file("pipe") + " && { cat " + file("pipe") + " & } && " +
                                     program() + " " + small + "--json " + file("pipe") + " > /dev/null");
  EXPECT_EQ(piped.code, 0);
  EXPECT_NE(piped.output.find("\"steps\""), std::string::npos) << piped.output;
}

TEST_F(ProgramOnDevice, AReportThatNobodyGetsIsAnError) {
  const std::string small = "--seqlen 8 --heads 1 --batch 1 --head-dim 64 --step 2 --json " + file("r.json");
  for (const char* nowhere : {" >/dev/full", " >&-"}) {
    std::filesystem::remove(file("r.json"));
    const Finished done = run_command("{ " + program() + " " + small + nowhere + "; }");
    EXPECT_EQ(done.code, 2) << done.output;
    EXPECT_NE(done.output.find("could not be printed"), std::string::npos) << done.output;
    EXPECT_TRUE(read_json(file("r.json")).ok()) << nowhere;  // not mixed with the report
  }
}

TEST_F(Program, OneFileCannotTakeTwoOutputs) {
  std::filesystem::create_symlink("x", file("y"));
  for (const std::string& other : {file("x"), folder_.string() + "/./x", file("y")}) {
    const Finished done = chapter1("--output " + file("x") + " --json " + other);
    EXPECT_EQ(done.code, 2);
    EXPECT_NE(done.output.find("name the same file"), std::string::npos) << done.output;
  }
}

TEST_F(Program, MessagesStayOneReadableLine) {
  for (const std::string& value :
       {std::string(5000, 'a'), std::string("a\nb\x1b[31m"), std::string(5000, ' ')})
    for (const char* option : {"--seqlen", "--q", "--dtype", "--device", "--nothing"}) {
      const Finished done = chapter1(std::string(option) + " '" + value + "'");
      EXPECT_EQ(done.code, 2);
      EXPECT_LT(done.output.size(), 1200u);
      EXPECT_EQ(std::ranges::count(done.output, '\n'), 1) << done.output;
      EXPECT_EQ(done.output.find('\x1b'), std::string::npos);
    }
}

TEST_F(ProgramOnDevice, WhatTheUserCanMendExitsWith2) {
  if (device::machine() == device::Machine::gpu) GTEST_SKIP() << "settings of the simulator";
  for (const char* setting : {"FLASHBOOK_SIM_THREADS=-5", "FLASHBOOK_SIM_ASYNC=never"}) {
    const Finished done = run_command(std::string("env ") + setting + " " + program() + " --seqlen 8");
    EXPECT_EQ(done.code, 2) << done.output;
    EXPECT_NE(done.output.find(setting), std::string::npos) << done.output;
  }
  const Finished small = run_command("ulimit -v 300000; exec " + program() + " --seqlen 2k");
  EXPECT_EQ(small.code, 2) << small.output;
  EXPECT_EQ(run_command(std::string(FLASHBOOK_BINARY_DIR) + "/ladder /tmp").code, 2);
}

}  // namespace
}  // namespace flashbook::testing
