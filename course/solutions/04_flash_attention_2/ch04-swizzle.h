  // Rows of equal parity begin in the same bank, so the XOR mask must change from each pair of rows to the
  // next.
  return row * 64 + (piece ^ row / 2 % 4) * 16;
