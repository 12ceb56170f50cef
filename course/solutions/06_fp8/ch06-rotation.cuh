  // Bit 0 of a float's number is bit 0 of its column, bits 2, 3 ... are bits 3, 4 ...; bit 1 is the row.
#pragma unroll
  for (int bit = 1; bit < kFloats; bit = bit == 1 ? 4 : 2 * bit)
#pragma unroll
    for (int i = 0; i < kFloats; ++i) {
      if (i & bit) continue;
      const float without = output[i], with = output[i + bit];
      output[i] = without + with;
      output[i + bit] = without - with;
    }
    // Bits 1 and 2 of the column are in the lane's number.
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
    for (int i = 0; i < kFloats; ++i) {
      const float other = __shfl_xor_sync(kWholeWarp, output[i], bit);
      output[i] = thread & bit ? other - output[i] : other + output[i];
    }
#pragma unroll
  for (int i = 0; i < kFloats; ++i)
    output[i] = signs.negative[i / 4] >> (2 * thread + i % 2) & 1 ? -output[i] : output[i];
