#include "common/attention/whole_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

namespace flashbook::testing {
namespace {

namespace fs = std::filesystem;

class WholeFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("flashbook_whole_file_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    file_ = folder_ / "x.npy";
    std::ofstream(file_) << "before";
  }
  void TearDown() override { fs::remove_all(folder_); }
  int files() const { return int(std::distance(fs::directory_iterator(folder_), fs::directory_iterator())); }
  std::string content() const {
    std::ifstream stream(file_);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  fs::path folder_, file_;
};

// A child writes and writes, and is stopped in the middle of it.
TEST_F(WholeFile, ASignalLeavesNothingHalfWritten) {
  const std::string contents(std::size_t(64) << 20, 'x');
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = fork();
    if (child == 0)
      for (;;) write_whole_file(file_, contents);
    while (files() == 1) usleep(100);  // until something lies beside the file
    kill(child, signal);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal);
    EXPECT_EQ(files(), 1) << signal;
    EXPECT_TRUE(content() == "before" || content() == contents);
  }
}

TEST_F(WholeFile, WhatAKilledProgramLeftGoesWithTheNextWrite) {
  const std::string contents(std::size_t(64) << 20, 'x');
  const pid_t child = fork();
  if (child == 0)
    for (;;) write_whole_file(file_, contents);
  const fs::path left = file_.string() + ".partial-" + std::to_string(child);
  while (!fs::exists(left)) usleep(100);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  if (!fs::exists(left)) std::ofstream(left) << "half";  // it was between two writes
  const fs::path of_one_that_lives = file_.string() + ".partial-" + std::to_string(getppid());
  std::ofstream(of_one_that_lives) << "half";
  write_whole_file(file_, "after");
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(of_one_that_lives));
  EXPECT_EQ(content(), "after");
}

TEST_F(WholeFile, ASignalThatIsIgnoredStaysIgnored) {
  std::signal(SIGHUP, SIG_IGN);
  write_whole_file(file_, "after");
  EXPECT_EQ(std::signal(SIGHUP, SIG_DFL), SIG_IGN);
}

}  // namespace
}  // namespace flashbook::testing
