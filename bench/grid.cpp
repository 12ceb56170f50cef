#include "bench/grid.h"

#include <algorithm>

#include "common/attention/error.h"
#include "library/chapters.h"

namespace flashbook {
namespace {

/// The grid of one kind of machine.
struct Grid {
  int tokens;      ///< batch * N, where N divides it
  int model_size;  ///< heads * head_dim; 0 for one head
  std::vector<int> head_dims, seqlens;
};

const Grid kGpuGrid = {16384, 2048, {64, 128, 256}, {512, 1024, 2048, 4096, 8192, 16384}};
const Grid kHostGrid = {0, 0, {64, 128}, {512, 1024, 2048, 4096}};
const Grid kSimulatorGrid = {0, 0, {64, 128}, {64, 128}};

const Grid& grid_of(const Chapter& chapter) {
  if (chapter.runs_on == device::Place::host) return kHostGrid;
  return device::machine() == device::Machine::gpu ? kGpuGrid : kSimulatorGrid;
}

template <typename T>
std::vector<T> picked_or(const std::vector<T>& picked, const std::vector<T>& all) {
  return picked.empty() ? all : picked;
}

template <typename T>
bool picks(const std::vector<T>& picked, T value) {
  return picked.empty() || std::find(picked.begin(), picked.end(), value) != picked.end();
}

/// Returns the chapter's types that the user selected. On the host, F16 must be selected explicitly: like
/// BF16, it is converted in software there.
std::vector<DType> types_of(const Chapter& chapter, const Selection& selection) {
  std::vector<DType> types;
  for (DType type : chapter.dtypes) {
    const bool twin = chapter.runs_on == device::Place::host && type == DType::f16;
    if (picks(selection.dtypes, type) && !(twin && selection.dtypes.empty())) types.push_back(type);
  }
  return types;
}

Spec spec_of(const Grid& grid, DType dtype, int head_dim, bool causal, int seqlen) {
  const int heads = std::max(1, grid.model_size / head_dim);
  Spec spec = square_spec(std::max(1, grid.tokens / seqlen), heads, seqlen, head_dim, dtype);
  spec.visibility = Visibility::causal_if(causal);
  return spec;
}

void append_cells(const Chapter& chapter, Operation operation, const Selection& selection,
                  std::vector<Cell>& cells) {
  const Grid& grid = grid_of(chapter);
  for (DType dtype : types_of(chapter, selection))
    for (int head_dim : picked_or(selection.head_dims, grid.head_dims))
      for (bool causal : picked_or(selection.masks, {false, true}))
        for (int seqlen : picked_or(selection.seqlens, grid.seqlens))
          for (int step : chapter.steps_of(operation))
            if (selection.steps.empty() ||
                std::ranges::any_of(selection.steps,
                                    [&](const std::string& asked) { return chapter.find(asked) == step; }))
              cells.push_back({&chapter, step, spec_of(grid, dtype, head_dim, causal, seqlen)});
}

/// Returns the sweep over block sizes: one length without a mask, unless the user selects others.
std::vector<Cell> block_size_cells(Selection selection) {
  if (selection.masks.empty()) selection.masks = {false};
  if (selection.seqlens.empty() && device::machine() == device::Machine::gpu) selection.seqlens = {4096};
  std::vector<Cell> cells;
  for (const BlockSize& size : flash_attention_1_block_sizes()) {
    const std::size_t before = cells.size();
    append_cells(size.chapter, Operation::forward, selection, cells);
    for (std::size_t i = before; i < cells.size(); ++i) cells[i].block_size = &size;
  }
  return cells;
}

}  // namespace

std::string name_of(const Cell& cell) {
  const Spec& spec = cell.spec;
  const std::string chapter = (cell.chapter->number < 10 ? "0" : "") + std::to_string(cell.chapter->number);
  const std::string who = cell.block_size != nullptr ? "blocks/ch" + chapter + "/" + cell.block_size->name
                                                     : std::string(name_of(cell.row().operation)) + "/ch" +
                                                           chapter + "/" + cell.row().slug;
  return who + "/" + std::string(name_of(spec.dtype)) + "/d" + std::to_string(spec.head_dim) +
         (spec.causal() ? "/causal" : "/full") + "/n" + std::to_string(spec.seqlen_q);
}

std::vector<Cell> make_grid(const Selection& selection) {
  for (int number : selection.chapters)
    if (chapter_numbered(number) == nullptr)
      throw InputError("--chapter is " + std::to_string(number) + ": the book has chapters 1 to " +
                       std::to_string(all_chapters().back()->number));
  std::vector<Cell> cells;
  if (selection.block_sizes) cells = block_size_cells(selection);
  for (const Chapter* chapter : all_chapters())
    if (!selection.block_sizes && picks(selection.chapters, chapter->number))
      for (Operation operation : {Operation::forward, Operation::backward, Operation::decode})
        append_cells(*chapter, operation, selection, cells);
  if (cells.empty()) throw InputError("no chapter has such a cell: change --step, --dtype or --chapter");
  for (const Cell& cell : cells) validate(cell.spec);
  return cells;
}

}  // namespace flashbook
