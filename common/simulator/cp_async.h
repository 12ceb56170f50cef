/// \file
/// cp.async: copies from global to shared memory that go on while the thread does.
///
/// When they land is what Options::async says. A copy that has not landed leaves NaN in its destination.
#pragma once
#include "common/simulator/location.h"

namespace flashbook::sim {

/// Copies `valid` bytes and writes `bytes` (4, 8 or 16), zeros after the valid ones.
void cp_async(const char* what, void* shared, const void* global, int bytes, int valid, Location where);

/// Makes the thread's copies since the last commit a group.
void cp_async_commit(Location where);

/// Waits until at most `groups_in_flight` of the thread's groups, the latest, have not landed.
void cp_async_wait(int groups_in_flight, Location where);

/// Waits for all of the thread's copies, committed or not.
void cp_async_wait_all(Location where);

}  // namespace flashbook::sim
