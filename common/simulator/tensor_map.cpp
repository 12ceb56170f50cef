#include "common/simulator/tensor_map.h"

#include "common/simulator/block/worker.h"
#include "common/simulator/parameters.h"

namespace flashbook::sim {

namespace {

thread_local constinit bool passes_grid_constants = false;

}  // namespace

PassesGridConstant::PassesGridConstant(bool is_one) { passes_grid_constants = is_one; }
PassesGridConstant::~PassesGridConstant() { passes_grid_constants = false; }

MapMark mark_of_copy(MapMark mark) {
  if (!current_worker) return mark == MapMark::map && passes_grid_constants ? MapMark::argument : mark;
  return mark == MapMark::argument ? MapMark::map : mark == MapMark::map ? MapMark::local : mark;
}

}  // namespace flashbook::sim
