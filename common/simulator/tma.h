/// \file
/// TMA: copies of tiles that go on while threads do other things.
///
/// When they happen is what Options::async says. A load that has not landed leaves NaN in its tile; a store
/// reads its tile later, in the wait for that, and writes the tensor later still.
#pragma once
#include "common/simulator/location.h"
#include "common/simulator/tensor_map.h"

namespace flashbook::sim {

// What the wrappers of common/ptx/tma.h do. `at` has `rank` coordinates.
void tma_load(void* tile, const CUtensorMap& map, void* barrier, const int* at, int rank, Location where);
void tma_store(const void* tile, const CUtensorMap& map, const int* at, int rank, Location where);
void tma_reduce_add(const void* tile, const CUtensorMap& map, const int* at, int rank, Location where);
void tma_store_commit(Location where);
void tma_store_wait(int groups_in_flight, Location where);
void tma_store_wait_read(int groups_in_flight, Location where);
void tma_prefetch(const CUtensorMap& map, Location where);

// What the wrappers of common/ptx/bulk_copy.h do.
void bulk_load(void* shared, const void* global, uint32_t bytes, void* barrier, Location where);
void bulk_store(void* global, const void* shared, uint32_t bytes, Location where);
void bulk_reduce_add(float* global, const float* shared, uint32_t bytes, Location where);

}  // namespace flashbook::sim
