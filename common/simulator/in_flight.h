/// \file
/// Queries a thread's own asynchronous copies, for instrumented kernels.
#pragma once

namespace flashbook::sim {

/// Returns whether the calling thread has cp.async copies that have not landed. Always true in modes in which
/// copies may land before they are waited for (Options::async).
bool may_have_copies_in_flight();

}  // namespace flashbook::sim
