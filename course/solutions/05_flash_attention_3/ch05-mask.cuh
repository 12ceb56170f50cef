  const int thread_column = first_key + 2 * int(threadIdx.x % 4);  // the key of the thread's first column
  int first[2], last[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int own = problem.own_key(query + 8 * row);
    first[row] = own / problem.chunk * problem.chunk - thread_column;
    last[row] = own - thread_column;
  }
#pragma unroll
  for (int i = 0; i < kFloats; ++i) {
    const int row = i / 2 % 2, column = i / 4 * 8 + i % 2;
    if (column < first[row] || column > last[row]) scores[i] = -INFINITY;
  }
