/// \file
/// cp.async: asynchronous copies from global to shared memory.
///
/// Options::async determines when copies land. Until then, their destination holds NaN.
#pragma once
#include "common/simulator/location.h"

namespace flashbook::sim {

/// Copies `valid` bytes, and fills the rest of the `bytes` bytes (4, 8 or 16) with zeros.
void cp_async(const char* what, void* shared, const void* global, int bytes, int valid, Location where);

/// Closes a group: the thread's copies since its last commit.
void cp_async_commit(Location where);

/// Waits until all of the thread's groups have landed, except for the latest `groups_in_flight`.
void cp_async_wait(int groups_in_flight, Location where);

/// Arrives at an mbarrier when the thread's copies so far have landed. Its waits no longer include them.
void cp_async_arrive(void* barrier, Location where);

/// Waits for all of the thread's copies, committed or not.
void cp_async_wait_all(Location where);

}  // namespace flashbook::sim
