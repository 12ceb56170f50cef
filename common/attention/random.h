/// \file
/// Random bits indexed by number, so that no thread has to wait for another.
#pragma once
#include <cstdint>

namespace flashbook {

/// Returns the `index`-th 64 bits of the stream `seed`: SplitMix64 (Steele, Lea, Flood 2014), which allows
/// random access. It uses only integers, so the bits are the same on every machine.
constexpr uint64_t random_bits(uint64_t seed, uint64_t index) {
  uint64_t bits = seed + (index + 1) * 0x9e3779b97f4a7c15;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  return bits ^ bits >> 31;
}

}  // namespace flashbook
