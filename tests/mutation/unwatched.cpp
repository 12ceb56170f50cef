// Makes instrumented kernels run like all others, without the traced mode: these tests check what a program
// detects by itself.
#include "common/simulator/launch.h"

[[maybe_unused]] static const bool nobody_watches = (flashbook::sim::watcher = nullptr, true);
