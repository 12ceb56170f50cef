/// \file
/// The cells to measure, and their names.
#pragma once
#include <string>
#include <vector>

#include "chapters/03_flash_attention_1/host/blocks.h"
#include "common/app/chapter.h"

namespace flashbook {

/// One cell of the grid: a step of a chapter on one shape.
struct Cell {
  const Chapter* chapter;
  int step;
  Spec spec;
  const BlockSize* block_size = nullptr;  ///< for the sweep over block sizes; else null

  const Step& row() const { return chapter->step(step); }
};

/// The user's selection. An empty list means the chapter's own grid.
struct Selection {
  std::vector<int> chapters;
  std::vector<std::string> steps;  ///< slugs or numbers
  std::vector<DType> dtypes;
  std::vector<int> head_dims;
  std::vector<bool> masks;  ///< true: causal
  std::vector<int> seqlens;
  bool block_sizes = false;  ///< measure only the sweep over block sizes
};

/// Returns the name of a cell's result: "forward/ch01/register_tile/bf16/d128/causal/n2048", or
/// "blocks/ch03/b64/bf16/d128/full/n4096" in the sweep over block sizes.
std::string name_of(const Cell& cell);

/// Returns the cells of the selected chapters, chapter by chapter, with all steps of a shape together.
///
/// GPU chapters use the papers' grid: batch * N = 16384 tokens, heads * head_dim = 2048, N from 512 to 16k.
/// The sweep over block sizes uses N = 4096 without a mask. Host chapters use one head and N from 512 to
/// 4096, the simulator two tiny shapes. Throws InputError if the selection names a chapter or a step that
/// does not exist, or if no cell is left.
std::vector<Cell> make_grid(const Selection& selection);

}  // namespace flashbook
