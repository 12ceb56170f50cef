/// \file
/// Clusters: blocks that run at one time and reach into each other's shared memory.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>

#include "common/simulator/location.h"
#include "common/simulator/tensor_map.h"

namespace flashbook::sim {

/// What red.async does to a word.
enum class RedOperation : uint8_t { add, min, max, bit_and, bit_or, bit_xor };

/// A word for another block's shared memory, and what becomes of the one that is there.
struct AsyncWord {
  std::array<unsigned char, 16> bytes;
  uint32_t size;
  bool combines = false;  ///< by `operation`; else it takes the place of the other one
  RedOperation operation = RedOperation::add;
  bool is_signed = false;
};

template <typename T>
AsyncWord async_word(const T& value) {
  AsyncWord word{};
  word.size = sizeof(T);
  std::memcpy(word.bytes.data(), &value, sizeof(T));
  return word;
}

// What the wrappers of common/ptx/cluster.h do. Barriers and places are the calling block's own; `rank` says
// whose are meant.
int cluster_rank(Location where);
int cluster_size(Location where);
void* mapa(const void* place, int rank, Location where);
void cluster_arrive(const char* what, bool releases, Location where);
void cluster_wait(const char* what, Location where);
void mbarrier_arrive_at(void* barrier, int rank, Location where);
void mbarrier_arrive_expect_tx_at(void* barrier, int rank, uint32_t bytes, Location where);
void mbarrier_expect_tx_at(void* barrier, int rank, uint32_t bytes, Location where);
bool mbarrier_try_wait_cluster(const void* barrier, uint32_t parity, Location where);
void mbarrier_wait_cluster(const void* barrier, uint32_t parity, Location where);
void store_async(const char* what, void* place, const AsyncWord& word, void* barrier, int rank,
                 Location where);
void bulk_copy_to_rank(void* place, const void* source, uint32_t bytes, void* barrier, int rank,
                       Location where);
void tma_load_multicast(void* tile, const CUtensorMap& map, void* barrier, const int* at, int rank,
                        uint32_t blocks, Location where);
void bulk_load_multicast(void* shared, const void* global, uint32_t bytes, void* barrier, uint32_t blocks,
                         Location where);

}  // namespace flashbook::sim
