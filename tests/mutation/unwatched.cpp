// Makes instrumented kernels run like all others, without the traced mode: these tests ask what a program
// finds by itself.
#include "common/simulator/launch.h"

[[maybe_unused]] static const bool nobody_watches = (flashbook::sim::watcher = nullptr, true);
