/// \file
/// What a block knows of its mbarriers and of the copies that TMA has not finished. Internal to the
/// simulator.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "common/simulator/location.h"
#include "common/simulator/tensor_map.h"

namespace flashbook::sim {

/// An mbarrier. The word in shared memory says no more than which one it is, so that a word that was never
/// initialised, or was overwritten by a tile, is recognised.
struct Mbarrier {
  const void* address;
  uint32_t arrivals;    ///< that a phase takes
  uint32_t pending;     ///< arrivals that the running phase lacks
  int32_t bytes = 0;    ///< announced in the running phase and not landed; negative: landed first
  uint32_t phase = 0;   ///< number of the running phase: how many are over
  bool fenced = false;  ///< whether TMA knows of it
  bool passed = false;  ///< whether a wait has found a phase over
  int initialiser;      ///< the thread, by number in the block
  Location where;       ///< of its initialisation
  const char* name = nullptr;
  int index = -1;                         ///< of the name, if not negative
  std::array<uint32_t, 32> waiting = {};  ///< lanes of each warp that wait for the end of the phase
  std::vector<uint32_t> seen;             ///< of each thread: how many phases its waits have found over
};

/// Where a box begins, innermost dimension first.
using BoxPlace = std::array<int, 5>;

/// A load that has not landed.
struct TensorLoad {
  CUtensorMap map;
  unsigned char* tile;
  BoxPlace at;
  std::size_t barrier;  ///< by number
  uint32_t phase;       ///< of the barrier when the load was issued
  int thread;           ///< that issued it, by number in the block
  uint32_t ticket;      ///< of the observer
  Location where;
};

/// A store that its thread has not waited for.
struct TensorStore {
  CUtensorMap map;
  const unsigned char* tile;
  BoxPlace at;
  int group;            ///< the number of the thread's group that it belongs to, committed or not
  bool landed = false;  ///< early, since Options::async says so
  uint32_t ticket = 0;  ///< of the observer
  Location where;
};

}  // namespace flashbook::sim
