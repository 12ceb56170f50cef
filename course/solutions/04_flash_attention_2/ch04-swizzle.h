  // Rows of equal parity begin in the same bank, so what moves a piece must change from each pair of rows to
  // the next.
  return row * 64 + (piece ^ row / 2 % 4) * 16;
