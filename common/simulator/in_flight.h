/// \file
/// What a kernel that is watched may ask of its own asynchronous copies.
#pragma once

namespace flashbook::sim {

/// Whether the calling thread has copies by cp.async that have not landed. Where copies land before they are
/// waited for (Options::async), nothing can be said, and the answer is yes.
bool may_have_copies_in_flight();

}  // namespace flashbook::sim
