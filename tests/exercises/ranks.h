/// \file
/// Shared by the tests of chapter 10's exercises: memory of a rank, and a program that all ranks run.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "common/device/ranks.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {

/// Floats in the memory of a rank's device.
struct RankArray {
  RankArray(int rank, std::vector<float> numbers) : values(std::move(numbers)) {
    device::use_device(device::device_of_rank(rank));
    buffer = device::Buffer(device::Place::device, values.size() * sizeof(float));
    buffer.upload(encode(DType::f32, values));
    device::use_device(0);
  }
  float* data() const { return static_cast<float*>(buffer.data()); }
  std::vector<float> download() const {
    std::vector<std::byte> bytes(buffer.bytes());
    buffer.download(bytes);
    return observed(decode(DType::f32, bytes));
  }

  std::vector<float> values;  ///< the uploaded values
  device::Buffer buffer;
};

/// Runs the program on every rank. A fault that the machine reports fails the test.
inline void run_on_ranks(int ranks, const std::function<void(device::Rank&)>& body) {
  std::string complaint;
  try {
    device::run_ranks(ranks, body);
    device::synchronize();
  } catch (const device::DeviceError& error) {
    complaint = error.what();
  }
  complaint = observed(complaint);
  if (!complaint.empty()) FAIL() << complaint;
}

}  // namespace flashbook::testing
