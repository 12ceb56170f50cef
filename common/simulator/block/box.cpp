#include "common/simulator/block/box.h"

#include <algorithm>
#include <cstring>

#include "common/simulator/atomics.h"

namespace flashbook::sim {
namespace {

constexpr std::size_t kChunkBytes = 16;  // a swizzle moves chunks of this size

/// The range of elements along one dimension that are in both the box and the tensor, relative to the box.
struct Overlap {
  int64_t begin, end;
};

Overlap overlap(const CUtensorMap& map, const BoxPlace& at, int dimension) {
  const int64_t first = at[std::size_t(dimension)], size = int64_t(map.size[dimension]);
  const int64_t begin = std::max<int64_t>(0, -first);
  return {begin, std::clamp<int64_t>(size - first, begin, map.box[dimension])};
}

/// Returns a chunk's swizzled address: the swizzle XORs address bits, as the hardware does.
template <typename Byte>
Byte* swizzled(Byte* chunk, uint32_t span) {
  const auto address = reinterpret_cast<std::uintptr_t>(chunk);
  return chunk + (std::intptr_t(address ^ (address >> 3 & (span - kChunkBytes))) - std::intptr_t(address));
}

/// Returns the distance of an element from the base. Sums wrap around at 2^64, as on the GPU, so a map's
/// strides may add up to a negative offset (chapters/09_masks/step2_varlen.cuh).
std::uintptr_t distance(int64_t coordinate, uint64_t stride) { return std::uintptr_t(coordinate) * stride; }

/// Calls `move(global, row)` for each row of a box, in shared-memory order. `global` is the address of the
/// row's element 0, even if that element is outside the tensor; it is null if the whole row is outside.
template <typename Move>
void for_each_row(const CUtensorMap& map, const BoxPlace& at, Move move) {
  int index[5] = {};
  for (std::size_t row = 0;; ++row) {
    auto global = reinterpret_cast<std::uintptr_t>(map.base) + distance(at[0], map.element_bytes);
    bool is_inside = true;
    for (int i = 1; i < map.rank; ++i) {
      const int64_t coordinate = int64_t(at[std::size_t(i)]) + index[i];
      is_inside = is_inside && coordinate >= 0 && coordinate < int64_t(map.size[i]);
      global += distance(coordinate, map.stride[i]);
    }
    move(is_inside ? reinterpret_cast<unsigned char*>(global) : nullptr, row);
    int i = 1;
    while (i < map.rank && ++index[i] == map.box[i]) index[i++] = 0;
    if (i >= map.rank) return;
  }
}

/// Calls `move(global, place, bytes)` for the part of each row of a box that is inside the tensor. `place` is
/// that part's offset when the rows are stored contiguously.
template <typename Move>
void for_each_part_inside(const CUtensorMap& map, const BoxPlace& at, Move move) {
  const std::size_t row_bytes = std::size_t(map.box[0]) * map.element_bytes;
  const auto [begin, end] = overlap(map, at, 0);
  const auto skipped = std::size_t(begin) * map.element_bytes;
  const auto valid = std::size_t(end - begin) * map.element_bytes;
  for_each_row(map, at, [&](unsigned char* global, std::size_t number) {
    if (global && valid > 0) move(global + skipped, number * row_bytes + skipped, valid);
  });
}

}  // namespace

std::size_t box_bytes(const CUtensorMap& map) {
  std::size_t bytes = map.element_bytes;
  for (int i = 0; i < map.rank; ++i) bytes *= map.box[i];
  return bytes;
}

std::span<unsigned char> touched_memory(const CUtensorMap& map, const BoxPlace& at) {
  auto first = reinterpret_cast<std::uintptr_t>(map.base), last = first;
  for (int i = 0; i < map.rank; ++i) {
    const auto [begin, end] = overlap(map, at, i);
    if (begin >= end) return {};
    first += distance(at[std::size_t(i)] + begin, map.stride[i]);
    last += distance(at[std::size_t(i)] + end - 1, map.stride[i]);
  }
  return {reinterpret_cast<unsigned char*>(first),
          reinterpret_cast<unsigned char*>(last + map.element_bytes)};
}

void for_each_touched_row(const CUtensorMap& map, const BoxPlace& at,
                          const std::function<void(const unsigned char*, std::size_t)>& row) {
  for_each_part_inside(
      map, at, [&](const unsigned char* global, std::size_t, std::size_t bytes) { row(global, bytes); });
}

void load_box(const CUtensorMap& map, const BoxPlace& at, unsigned char* tile) {
  const std::size_t row_bytes = std::size_t(map.box[0]) * map.element_bytes;
  const auto [begin, end] = overlap(map, at, 0);
  const auto skipped = std::size_t(begin) * map.element_bytes;
  const auto valid = std::size_t(end - begin) * map.element_bytes;
  std::vector<unsigned char> row(row_bytes);
  for_each_row(map, at, [&](const unsigned char* global, std::size_t number) {
    if (global && valid > 0)
      std::memcpy(row.data() + skipped, global + skipped, valid);
    else
      std::memset(row.data() + skipped, 0, valid);
    unsigned char* target = tile + number * row_bytes;
    for (std::size_t chunk = 0; chunk < row_bytes; chunk += kChunkBytes)
      std::memcpy(swizzled(target + chunk, map.swizzle_bytes), row.data() + chunk, kChunkBytes);
  });
}

std::vector<unsigned char> read_tile(const CUtensorMap& map, const unsigned char* tile) {
  std::vector<unsigned char> rows(box_bytes(map));
  for (std::size_t chunk = 0; chunk < rows.size(); chunk += kChunkBytes)
    std::memcpy(&rows[chunk], swizzled(tile + chunk, map.swizzle_bytes), kChunkBytes);
  return rows;
}

std::vector<unsigned char> rows_of(const CUtensorMap& map, const BoxPlace& at) {
  std::vector<unsigned char> rows(box_bytes(map));
  for_each_part_inside(map, at, [&](const unsigned char* global, std::size_t place, std::size_t bytes) {
    std::memcpy(&rows[place], global, bytes);
  });
  return rows;
}

std::string name_of_swizzle(uint32_t span) {
  return span == kChunkBytes ? "no swizzle" : "the " + std::to_string(span) + "-byte swizzle";
}

void store_rows(const CUtensorMap& map, const BoxPlace& at, const unsigned char* rows) {
  for_each_part_inside(map, at, [&](unsigned char* global, std::size_t place, std::size_t bytes) {
    std::memcpy(global, rows + place, bytes);
  });
}

void add_rows(const CUtensorMap& map, const BoxPlace& at, const unsigned char* rows) {
  for_each_part_inside(map, at, [&](unsigned char* global, std::size_t place, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += sizeof(float)) {
      float value;
      std::memcpy(&value, rows + place + i, sizeof value);
      atomic_update(reinterpret_cast<float*>(global + i), [value](float old) { return old + value; });
    }
  });
}

}  // namespace flashbook::sim
