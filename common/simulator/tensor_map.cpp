#include "common/simulator/tensor_map.h"

#include "common/simulator/block/static_shared.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/memory.h"
#include "common/simulator/parameters.h"

namespace flashbook::sim {

namespace {

thread_local constinit bool passes_grid_constants = false;

}  // namespace

PassesGridConstant::PassesGridConstant(bool is_one) { passes_grid_constants = is_one; }
PassesGridConstant::~PassesGridConstant() { passes_grid_constants = false; }

MapMark mark_of_copy(MapMark mark, void* place) {
  if (!current_worker) return mark == MapMark::map && passes_grid_constants ? MapMark::argument : mark;
  if (mark == MapMark::argument) return MapMark::map;
  if (mark == MapMark::none) return mark;
  const bool is_shared = static_shared_arrays_are_known() && current_worker->memory.contains(place, 1);
  return is_global(place) || is_shared ? MapMark::written : MapMark::local;
}

}  // namespace flashbook::sim
