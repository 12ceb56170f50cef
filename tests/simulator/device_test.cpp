#include "common/device/device.h"

#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/require_gpu.h"

// Buffers, time and device properties on whatever machine the build has.

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

TEST_F(DeviceTest, UploadAndDownloadAgree) {
  for (Place place : {Place::host, Place::device}) {
    std::vector<std::byte> source(777);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = std::byte(i * 7);
    Buffer buffer(place, source.size());
    buffer.upload(source);
    EXPECT_EQ(bytes_of(buffer), source);
    buffer.poison();
    EXPECT_EQ(bytes_of(buffer), std::vector<std::byte>(777, std::byte(0xff)));
    EXPECT_THROW(buffer.upload(std::span(source).first(3)), DeviceError);
    EXPECT_THROW(buffer.download(std::span(source).first(3)), DeviceError);
  }
}

TEST_F(DeviceTest, EmptyBuffersHaveNoAddress) {
  for (Place place : {Place::host, Place::device}) {
    Buffer buffer(place, 0);
    EXPECT_EQ(buffer.data(), nullptr);
    EXPECT_EQ(buffer.bytes(), 0u);
    buffer.upload({});
    buffer.download({});
    buffer.poison();
  }
  EXPECT_EQ(Buffer().data(), nullptr);
}

TEST_F(DeviceTest, BuffersMove) {
  Buffer a(Place::device, 100), b(Place::host, 50);
  void* address = a.data();
  Buffer c = std::move(a);
  EXPECT_EQ(c.data(), address);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.bytes(), 0u);
  b = std::move(c);
  EXPECT_EQ(b.data(), address);
  EXPECT_EQ(b.bytes(), 100u);
  EXPECT_EQ(bytes_of(b), std::vector<std::byte>(100, std::byte(0xff)));
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

}  // namespace
}  // namespace flashbook::device
