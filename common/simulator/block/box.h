/// \file
/// The boxes that TMA moves. Internal to the simulator.
#pragma once
#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/simulator/tensor_map.h"

namespace flashbook::sim {

/// The coordinates of a box's first element, innermost dimension first.
using BoxPlace = std::array<int, 5>;

/// Returns the size of a box in shared memory.
std::size_t box_bytes(const CUtensorMap& map);

/// Returns the device memory between the first and the last byte of a box; empty if the whole box is outside.
std::span<unsigned char> touched_memory(const CUtensorMap& map, const BoxPlace& at);

/// Calls `row(address, bytes)` for the part of each row of a box that is inside the tensor.
void for_each_touched_row(const CUtensorMap& map, const BoxPlace& at,
                          const std::function<void(const unsigned char*, std::size_t)>& row);

/// Copies a box to shared memory, with zeros for elements outside the tensor.
void load_box(const CUtensorMap& map, const BoxPlace& at, unsigned char* tile);

/// Returns the rows of a box in shared memory, stored contiguously.
std::vector<unsigned char> read_tile(const CUtensorMap& map, const unsigned char* tile);

/// Returns the rows of a box, read from the tensor.
std::vector<unsigned char> rows_of(const CUtensorMap& map, const BoxPlace& at);

/// Returns the name of a swizzle with this span, such as "the 128-byte swizzle".
std::string name_of_swizzle(uint32_t span);

/// Copies these rows to the tensor, except for elements outside it.
void store_rows(const CUtensorMap& map, const BoxPlace& at, const unsigned char* rows);

/// Adds these float32 rows to the tensor, each element atomically. Subnormals are kept, as on an H200.
void add_rows(const CUtensorMap& map, const BoxPlace& at, const unsigned char* rows);

}  // namespace flashbook::sim
