#include "common/device/device.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/device/host_memory.h"
#include "tests/require_gpu.h"

// Buffers, time and device properties on the machine of this build.

namespace flashbook::device {
namespace {

using DeviceTest = MachineTest;

std::vector<std::byte> bytes_of(const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.bytes());
  buffer.download(bytes);
  return bytes;
}

TEST_F(DeviceTest, FreshMemoryIsPoisoned) {
  for (Place place : {Place::host, Place::device}) {
    const Buffer buffer(place, 1000);
    EXPECT_EQ(bytes_of(buffer), std::vector<std::byte>(1000, std::byte(0xff)));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0u);
  }
}

TEST_F(DeviceTest, TooMuchIsRefusedWithBothNumbers) {
  for (Place place : {Place::host, Place::device}) {
    try {
      Buffer buffer(place, std::size_t(1) << 50);
      FAIL() << "a petabyte was allocated";
    } catch (const DeviceError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("not enough"), std::string::npos) << message;
      EXPECT_NE(message.find("1125899906842624 bytes"), std::string::npos) << message;
      EXPECT_NE(message.find("available"), std::string::npos) << message;
    }
  }
}

TEST_F(DeviceTest, InfoSaysWhatTheMachineIs) {
  const Info what = info();
  EXPECT_EQ(what.machine, machine());
  EXPECT_FALSE(what.name.empty());
  EXPECT_GE(what.compute_capability, 80);
  EXPECT_GE(what.multiprocessors, 1);
  EXPECT_EQ(what.multiprocessors, multiprocessors());
  EXPECT_GT(what.memory_free, 0);
  if (machine() == Machine::simulator) {
    EXPECT_EQ(what.name, "simulator");
    EXPECT_EQ(what.l2_bytes, 0);
  } else {
    EXPECT_GT(what.l2_bytes, 0);
    EXPECT_NE(what.runtime.find('.'), std::string::npos);
    EXPECT_NE(what.driver.find('.'), std::string::npos);
  }
}

TEST_F(DeviceTest, WorkIsTimed) {
  Buffer buffer(Place::device, 1 << 20);
  bool done = false;
  const double seconds = time_on_device(nullptr, [&] {
    buffer.poison();
    done = true;
  });
  EXPECT_TRUE(done);
  EXPECT_GT(seconds, 0.0);
  EXPECT_LT(seconds, 10.0);
  flush_l2(nullptr);
  synchronize();
}

/// System files written by a test.
class HostMemory : public testing::Test {
 protected:
  HostMemory()
      : root_(std::filesystem::temp_directory_path() / ("flashbook_memory_" + std::to_string(getpid()))) {
    write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n");
  }
  ~HostMemory() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path file = root_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  int64_t available() const { return host_memory_available(root_); }

  std::filesystem::path root_;
};

TEST_F(HostMemory, WithoutAContainerIsWhatTheMachineHas) {
  EXPECT_EQ(available(), 8000 * 1024);
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(available(), 8000 * 1024);
}

TEST_F(HostMemory, IsWhatTheInnermostAndEveryOuterLimitLeave) {
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/memory.max", "5000000\n");
  write("sys/fs/cgroup/outer/memory.current", "1000000\n");
  EXPECT_EQ(available(), 4000000);
  write("sys/fs/cgroup/outer/inner/memory.max", "3000000\n");
  write("sys/fs/cgroup/outer/inner/memory.current", "900000\n");
  // Pages of files can be reclaimed, those of tmpfs (shmem) cannot.
  write("sys/fs/cgroup/outer/inner/memory.stat",
        "anon 1\nfile 700000\nshmem 300000\ninactive_file 100000\nactive_file 300000\n");
  EXPECT_EQ(available(), 2500000);
}

// A container without its own namespace finds its limit at the root, under no name.
TEST_F(HostMemory, FindsTheLimitOfAContainerThatSeesItselfAsTheRoot) {
  write("proc/self/cgroup", "0::/system.slice/docker-abc.scope\n");
  write("sys/fs/cgroup/memory.max", "3000000\n");
  write("sys/fs/cgroup/memory.current", "3500000\n");
  EXPECT_EQ(available(), 0);
}

}  // namespace
}  // namespace flashbook::device
