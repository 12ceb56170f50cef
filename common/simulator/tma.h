/// \file
/// TMA: asynchronous copies of tiles.
///
/// Options::async determines when copies happen. Until a load has landed, its tile holds NaN. A store may
/// read its tile as late as in the wait for reads, and write the tensor even later.
#pragma once
#include "common/simulator/location.h"
#include "common/simulator/tensor_map.h"

namespace flashbook::sim {

// The functions behind the wrappers in common/ptx/tma.h. `at` has `rank` coordinates.
void tma_load(void* tile, const CUtensorMap& map, void* barrier, const int* at, int rank, Location where);
void tma_store(const void* tile, const CUtensorMap& map, const int* at, int rank, Location where);
void tma_reduce_add(const void* tile, const CUtensorMap& map, const int* at, int rank, Location where);
void tma_store_commit(Location where);
void tma_store_wait(int groups_in_flight, Location where);
void tma_store_wait_read(int groups_in_flight, Location where);
void tma_prefetch(const CUtensorMap& map, Location where);

// The functions behind the wrappers in common/ptx/bulk_copy.h.
void bulk_load(void* shared, const void* global, uint32_t bytes, void* barrier, Location where);
void bulk_store(void* global, const void* shared, uint32_t bytes, Location where);
void bulk_reduce_add(float* global, const float* shared, uint32_t bytes, Location where);

}  // namespace flashbook::sim
