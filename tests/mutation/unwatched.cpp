// Kernels that are instrumented run as all others do: what a program finds by itself is asked of it.
#include "common/simulator/launch.h"

[[maybe_unused]] static const bool nobody_watches = (flashbook::sim::watcher = nullptr, true);
