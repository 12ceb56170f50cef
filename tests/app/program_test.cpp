// The programs as a user meets them: exit codes, one line of reason, and files that are whole or not there.
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

/// Those that run kernels.
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
  ASSERT_EQ(report.steps.size(), 2u);
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
  EXPECT_NE(one.output.find("--step 1"), std::string::npos) << one.output;
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
  for (const char* part : {"chapter", "one thread per score", "tiles and warps", "right", "FLOP"})
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
  // A GPU build must find none of its GPUs; the simulator build refuses the option.
  const Finished done =
      run_command("CUDA_VISIBLE_DEVICES= " + program() + " --device gpu --output " + file("o.npy"));
  EXPECT_EQ(done.code, 77) << done.output;
  EXPECT_EQ(files(), 0);
}

TEST_F(Program, ListDescribesTheSteps) {
  const Finished done = chapter1("--list");
  EXPECT_EQ(done.code, 0);
  EXPECT_NE(done.output.find("step 2  tiles and warps."), std::string::npos) << done.output;
}

TEST_F(Program, TheLadderRefusesWhatIsNoReport) {
  std::ofstream(file("x.json")) << "{}";
  for (const std::string& argument : {std::string(), file("none.json"), file("x.json")}) {
    const Finished done = run_command(std::string(FLASHBOOK_BINARY_DIR) + "/ladder " + argument);
    EXPECT_EQ(done.code, 2) << done.output;
    EXPECT_EQ(done.output.rfind("ladder: ", 0), 0u) << done.output;
  }
}

}  // namespace
}  // namespace flashbook::testing
