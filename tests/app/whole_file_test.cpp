#include "common/app/whole_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

#include "tests/support/input_error.h"

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

TEST_F(WholeFile, WhatAKilledProgramLeftGoesWithTheNextWrite) {
  const std::string contents(std::size_t(64) << 20, 'x');
  const pid_t child = fork();
  if (child == 0)
    for (;;) write_whole_file(file_, contents);
  const fs::path left = file_.string() + ".partial-" + std::to_string(child);
  while (!fs::exists(left)) usleep(100);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  if (!fs::exists(left)) std::ofstream(left) << "half";  // killed between two writes
  const fs::path of_one_that_lives = file_.string() + ".partial-" + std::to_string(getppid());
  std::ofstream(of_one_that_lives) << "half";
  write_whole_file(file_, "after");
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(of_one_that_lives));
  EXPECT_EQ(content(), "after");
}

TEST_F(WholeFile, SaysWhyItCannotWrite) {
  const auto complain = [](const fs::path& file) {
    return testing::input_error_of([&] { write_whole_file(file, "x"); });
  };
  const std::string cure = "): name a file in a writable folder";
  const fs::path nowhere = folder_ / "nowhere" / "a.npy";
  EXPECT_EQ(complain(nowhere), nowhere.string() + " cannot be written (No such file or directory" + cure);
  std::ofstream(folder_ / "file") << "x";
  EXPECT_EQ(complain(folder_ / "file" / "a.npy"),
            (folder_ / "file" / "a.npy").string() + " cannot be written (Not a directory" + cure);
  fs::create_directory(folder_ / "folder");
  EXPECT_EQ(complain(folder_ / "folder"),
            (folder_ / "folder").string() + " cannot be written (Is a directory" + cure);
  EXPECT_EQ(files(), 3) << "no unfinished file is left";
}

// Uses links in the test's folder, so that a faulty write_whole_file would replace these and not the devices.
TEST_F(WholeFile, FailsOnAFullDisk) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this system";
  fs::create_symlink("/dev/full", folder_ / "full");
  EXPECT_EQ(testing::input_error_of([&] { write_whole_file(folder_ / "full", "x"); }),
            (folder_ / "full").string() +
                " cannot be written (No space left on device): name a file in a writable folder");
  EXPECT_TRUE(fs::is_symlink(folder_ / "full"));
}

}  // namespace
}  // namespace flashbook::testing
