  for (int b = 0; b < kQueryBlocks; ++b)
    for (int i = 0; i < 2; ++i) {
      float correction = exp2_approx((rows.max[b][i] - maxima[b][i]) * scale_log2e);
      if (maxima[b][i] == -INFINITY) correction = 1;  // no key yet: nothing to correct
      rows.max[b][i] = maxima[b][i];
      rows.sum[b][i] *= correction;
      for (int d = 0; d < kDimBlocks; ++d) {
        out[d][b][i] *= correction;
        out[d][b][2 + i] *= correction;
      }
    }
