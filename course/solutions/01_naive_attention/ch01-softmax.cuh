  float row_max = sink;
  for (int j = 0; j < visible; ++j) row_max = fmaxf(row_max, s[j]);
  float row_sum = __expf(sink - row_max);
  for (int j = 0; j < visible; ++j) row_sum += __expf(s[j] - row_max);
  for (int j = 0; j < visible; ++j) p[j] = from_float<T>(__expf(s[j] - row_max) / row_sum);
  lse[row] = row_max + logf(row_sum);  // in a row without keys, the sink itself
