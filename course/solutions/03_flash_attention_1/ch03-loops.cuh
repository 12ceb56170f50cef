  const int visible = problem.visible_keys_of_tile(first_query, kBlock);
  if (first_key > 0 && first_key >= visible) return;  // not reached yet; the same for every thread
  load_tile<T, kHeadDim>(tiles.q, q + problem.q_row(head, 0) * kHeadDim, first_query, problem.seqlen_q);
  Rows<kHeadDim, kBlock> rows;
  if (first_key + kBlock >= visible)  // the first tile of keys that they reach, visible or not
    rows.clear();
  else
    load_state(rows, state, problem, head, first_query);
  __syncthreads();  // all three tiles are complete before any thread multiplies
  process_tile(tiles, rows, problem, first_query, first_key);
  if (first_key > 0)
    store_state(rows, state, problem, head, first_query);
  else
    write_result(rows, o, lse, problem, head, first_query);
  __syncthreads();  // all threads are done with Q, K and V before the next tiles overwrite them
