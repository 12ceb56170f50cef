  int begin = 0;  // all numbers before it are above the limit, and none from begin + count on
  while (count > 0) {
    const int step = (count + 31) / 32, offset = int(threadIdx.x % 32) * step;
    const bool is_above = offset < count && numbers[begin + offset] > limit;
    const int above = __popc(__ballot_sync(0xffffffff, is_above));  // pieces whose first number is above
    if (above == 0) break;
    const int piece = (above - 1) * step;  // the last of these; its first number is above
    begin += piece + 1;
    count = min(step, count - piece) - 1;
  }
  return begin;
