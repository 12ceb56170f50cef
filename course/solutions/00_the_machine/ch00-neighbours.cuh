  // Threads past the end store zeros, since the last element's neighbour is one of them.
  near[j + 1] = i < count ? from[i] : 0.0f;
  if (j == 0) near[0] = i > 0 ? from[i - 1] : 0.0f;
  if (j == threads - 1) near[threads + 1] = i + 1 < count ? from[i + 1] : 0.0f;
  __syncthreads();  // both neighbours have been stored, possibly by another warp
  if (i < count) to[i] = near[j] + near[j + 1] + near[j + 2];
