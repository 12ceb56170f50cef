/// \file
/// cp.async: asynchronous copies from global to shared memory.
///
/// Options::async determines when they land. Until then the destination holds NaN.
#pragma once
#include "common/simulator/location.h"

namespace flashbook::sim {

/// Copies `valid` bytes and fills up to `bytes` (4, 8 or 16) with zeros.
void cp_async(const char* what, void* shared, const void* global, int bytes, int valid, Location where);

/// Turns the thread's copies since the last commit into a group.
void cp_async_commit(Location where);

/// Waits until all of the thread's groups except the latest `groups_in_flight` have landed.
void cp_async_wait(int groups_in_flight, Location where);

/// Waits for all of the thread's copies, committed or not.
void cp_async_wait_all(Location where);

}  // namespace flashbook::sim
