//| # A warp's tiles and products
//|
//| This file has the building blocks of all six steps. Come here three times: for *Swizzled tiles* and
//| *Products* with step 2, for *Copying with cp.async* with step 3, and for *Storing O* when you want to know
//| how a kernel ends. [softmax.cuh](softmax.cuh) has what comes between the products.
//|
//| A warp owns one or two blocks of 16 query rows. For each block it holds three things in registers: the
//| scores of 16 rows and some keys, the probabilities that replace them, and $O$.
//|
//| `mma.sync` determines which lane holds which elements. It multiplies 16 x 16 by 16 x 8 and gives each lane
//| four floats of the 16 x 8 result. Lane $l$ has row $l / 4$ in floats 0 and 1, and row $l / 4 + 8$ in
//| floats 2 and 3, in columns $2 (l \bmod 4)$ and the next.
//|
//| ![Which lane holds which elements for mma.sync: the results of two products, side by side, lie as the left
//| operand of the next one does. Follow lane 6, in green](../../docs/figures/mma_fragments.svg)
//|
//| Below, `half` 0 is the upper of a lane's two rows, and `half` 1 the lower one. A row block is 16 rows, a
//| key block 8 keys, a dim block 8 dims: the sides of a result.
#pragma once
#include "chapters/04_flash_attention_2/problem.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"

namespace flashbook::fa2 {

constexpr unsigned kWarp = 0xffffffff;  // all lanes take part

constexpr int kTile = 64;      // steps 1 to 4: queries of a block and keys of a tile
constexpr int kThreads = 128;  // per block in steps 1 to 4: four warps of 16 rows

/// Results of mma.sync for kRowBlocks x kColumnBlocks blocks of 16 x 8.
template <int kRowBlocks, int kColumnBlocks>
using Blocks = float[kRowBlocks][kColumnBlocks][4];

//| ## Swizzled tiles
//|
//| ![The banks of eight rows' pieces: all in four banks as they come, in all 32
//| swizzled](../../docs/figures/swizzle.svg)
//|
//| Pieces only change places within their row, so copies still write whole lines. The pattern repeats every
//| eight rows, as many as one `ldmatrix` reads together for a matrix: in column 0 or any other, their pieces
//| never share a bank.

/// Returns the offset of piece `piece` of row `row` in a swizzled tile, in bytes.
template <int kRowBytes>
__device__ __forceinline__ int swizzled(int row, int piece) {
  return row * kRowBytes + (piece ^ row % 8) * 16;
}

//| A product walks along a row in steps of two pieces, 32 bytes. `walk` finds the next place without
//| computing the swizzle again. Take row 3, in a tile with rows of 256 bytes. Piece 0 is at place $0 \oplus 3
//| = 3$, which is byte $3 \cdot 256 + 48 = 816$. Step 1 needs piece 2, at place $2 \oplus 3 = 1$, byte 784.
//| And indeed `816 ^ 32` is 784. Step 4 needs piece 8, eight pieces or 128 bytes after piece 0: 944.
//|
//| Why it works: adding $2s$ to a piece below 2 is the same as an exclusive or with $2s$, because the two
//| numbers share no bit, and exclusive or does not depend on order. So the swizzled place changes by `^ 32 *
//| s`. Only every fourth step, after eight pieces, does a real addition of 128 follow. With `step` known to
//| the compiler this is one instruction or none.
/// Returns the place 2 * step pieces further along a row than `place`, piece 0 or 1 of an aligned group of 8.
__device__ __forceinline__ int walk(int place, int step) { return (place ^ step % 4 * 32) + step / 4 * 128; }

//| ## Copying with cp.async
//|
//| `cp_async_cg` copies 16 bytes from device memory to shared memory without a register in between, and
//| returns at once. Thread $t$ takes piece $t \bmod$ `kPieces` of every `kRowsAtOnce`-th row: neighbouring
//| threads copy neighbouring pieces, so a warp requests whole lines.
//|
//| The last argument is the number of the 16 bytes that exist. For a row beyond the end it is 0, and the
//| hardware writes zeros. These must be zeros: the probability of a missing key is 0, and 0 times an old NaN
//| would be NaN.
/// Starts copying kRows rows into a swizzled tile; rows from `valid_rows` on become zeros. kPartial = false
/// promises that all are valid.
template <bool kPartial, int kRows, int kHeadDim, int kThreads, typename T>
__device__ __forceinline__ void copy_tile(unsigned char* tile,
                                          const T* rows,  // [kRows, kHeadDim]
                                          int valid_rows) {
  constexpr int kPieces = kHeadDim * int(sizeof(T)) / 16, kRowsAtOnce = kThreads / kPieces;
  const int row = threadIdx.x / kPieces, piece = threadIdx.x % kPieces;
  const T* source = rows + row * kHeadDim + piece * 8;
#pragma unroll
  for (int i = 0; i < kRows; i += kRowsAtOnce)
    cp_async_cg(tile + swizzled<kHeadDim* int(sizeof(T))>(row + i, piece), source + i * kHeadDim,
                !kPartial || row + i < valid_rows ? 16 : 0);
}

//| Comparing each row with the end costs an instruction per copy. Only the last tile of the keys needs it, so
//| the two functions below choose once for the whole tile.
/// Starts copying K's and V's rows from `first` on into their tiles; only at the end of the keys are rows
/// compared.
template <int kRows, int kHeadDim, int kThreads, typename T>
__device__ __forceinline__ void copy_keys_and_values(unsigned char* k_tile, unsigned char* v_tile,
                                                     const T* k,  // [seqlen, kHeadDim]
                                                     const T* v,  // [seqlen, kHeadDim]
                                                     int first, int seqlen) {
  const int64_t start = int64_t(first) * kHeadDim;
  if (first + kRows <= seqlen) {
    copy_tile<false, kRows, kHeadDim, kThreads>(k_tile, k + start, kRows);
    copy_tile<false, kRows, kHeadDim, kThreads>(v_tile, v + start, kRows);
  } else {
    copy_tile<true, kRows, kHeadDim, kThreads>(k_tile, k + start, seqlen - first);
    copy_tile<true, kRows, kHeadDim, kThreads>(v_tile, v + start, seqlen - first);
  }
}

//| Step 6 at $d = 256$ copies K and V at different times, so there is a version for one tensor.
/// Starts copying a tile that begins at row `first` of `seqlen` rows. Only the last tile pays for the
/// comparisons.
template <int kRows, int kHeadDim, int kThreads, typename T>
__device__ __forceinline__ void copy_rows(unsigned char* tile,
                                          const T* tensor,  // [seqlen, kHeadDim]
                                          int first, int seqlen) {
  const T* rows = tensor + int64_t(first) * kHeadDim;
  if (first + kRows <= seqlen)
    copy_tile<false, kRows, kHeadDim, kThreads>(tile, rows, kRows);
  else
    copy_tile<true, kRows, kHeadDim, kThreads>(tile, rows, seqlen - first);
}

//| ## Products
//|
//| The lane that *supplies* a row's address is not the lane that *receives* its elements. Take lane 9 in a
//| load of Q. It supplies row 9, which is row 1 of the second matrix; the eight elements go to lanes 4 to 7,
//| two to each. Lane 9 itself gets columns 2 and 3 of row 2 of every matrix: row 2 of Q from the first, row
//| 10 from the second.
//|
//| ![ldmatrix_x4: which lane names which row, and which lane receives which
//| elements](../../docs/figures/ldmatrix.svg)
//|
//| Q is the left operand, and its rows are rows of the tile: lanes 0 to 15 supply the 16 rows, lanes 16 to 31
//| the same rows 8 dims further on. Registers `a[0]` to `a[3]` are then upper left, lower left, upper right,
//| lower right, in mma.sync's order.

/// Loads fragments of Q for 16 dims, from a swizzled tile whose row `first_row` is the warp's first.
template <int kHeadDim, int kRowBlocks>
__device__ __forceinline__ void load_rows(uint32_t (&a)[kRowBlocks][4], const unsigned char* tile,
                                          int first_row, int step) {
  constexpr int kRowBytes = kHeadDim * 2;
  const int lane = threadIdx.x % 32,
            place = walk(swizzled<kRowBytes>(first_row + lane % 16, lane / 16), step);
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r) ldmatrix_x4(a[r], tile + place + r * 16 * kRowBytes);
}

//| $S = QK^\top$. The right operand of a product is $K^\top$, 16 dims by 8 keys, and `mma.sync` expects pairs
//| that are neighbours along the *summed* dimension, here the dims. K's rows in memory have exactly these
//| neighbours, so K needs no transposition: part 1 of the figure is this function.
//|
//| `queries` returns Q's fragments. It is a parameter because step 5 may have kept them in registers, and
//| steps 2 to 4 read them again. `kFirst` and `kCount` choose a part of the keys; only step 6 uses less than
//| all. One `ldmatrix_x4` loads two key blocks:
//|
//| | lanes | supply keys | and dims | for |
//| |---|---|---|---|
//| | 0 to 7 | 0 to 7 | 0 to 7 | `b[0]` |
//| | 8 to 15 | 0 to 7 | 8 to 15 | `b[1]` |
//| | 16 to 23 | 8 to 15 | 0 to 7 | `b[2]` |
//| | 24 to 31 | 8 to 15 | 8 to 15 | `b[3]` |
/// scores = Q K^T for key blocks kFirst ... kFirst + kCount - 1 of 8 keys each. `queries(a, step)` gives Q's
/// fragments.
template <typename T, int kHeadDim, int kFirst, int kCount, int kRowBlocks, int kKeyBlocks, typename Queries>
__device__ __forceinline__ void multiply_keys(Blocks<kRowBlocks, kKeyBlocks>& scores,
                                              const unsigned char* k_rows,  // swizzled, the warp's first key
                                              Queries queries) {
  constexpr int kRowBytes = kHeadDim * 2;
  const int lane = threadIdx.x % 32;
  const int place = swizzled<kRowBytes>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int n = kFirst; n < kFirst + kCount; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[r][n][i] = 0;
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    //| The loop over `step` advances along head_dim, 16 dims at a time. The fragment `b` of K is loaded once
    //| and used for every row block of the warp: with one row block a load feeds two products, with two it
    //| feeds four. That ratio determines what shared memory allows, and is the point of step 5.
    uint32_t a[kRowBlocks][4];
    queries(a, step);
#pragma unroll
    for (int n = kFirst; n < kFirst + kCount; n += 2) {
      uint32_t b[4];  // two key blocks, each 16 dims
      ldmatrix_x4(b, k_rows + walk(place, step) + n * 8 * kRowBytes);
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r) {
        mma_m16n8k16<T>(scores[r][n], a[r], b[0], b[1], scores[r][n]);
        mma_m16n8k16<T>(scores[r][n + 1], a[r], b[2], b[3], scores[r][n + 1]);
      }
    }
  }
}

//| This step moves no data. Scores of key blocks $2s$ and $2s + 1$ are this lane's results of two products.
//| Rounded and packed in pairs, they are registers 0 to 3 of the left operand for 16 keys: block $2s$ gives
//| the first two registers, and block $2s + 1$ the last two.
/// Packs two key blocks of probabilities, rounded, as the left operand of mma.sync.
template <typename T, int kRowBlocks, int kKeyBlocks>
__device__ __forceinline__ void round_probabilities(uint32_t (&p)[kRowBlocks][4],
                                                    const Blocks<kRowBlocks, kKeyBlocks>& scores, int step) {
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&block)[4] = scores[r][2 * step + i / 2];
      p[r][i] = pack<T>(block[i % 2 * 2], block[i % 2 * 2 + 1]);
    }
}

//| $O \mathrel{+}= PV$ sums over keys. The right operand is $V$, 16 keys by 8 dims, and needs neighbours
//| along the *keys*, but in memory the neighbours in a row of V are dims. `ldmatrix_x4_trans` reads the same
//| rows and hands out columns instead (part 3 of the figure), at no cost. Step 1 assembled these pairs from
//| two loads of 2 bytes.
/// out += P V for 16 keys and the warp's dims.
template <typename T, int kHeadDim, int kRowBlocks, int kDimBlocks>
__device__ __forceinline__ void multiply_values(Blocks<kRowBlocks, kDimBlocks>& out,
                                                const uint32_t (&p)[kRowBlocks][4],
                                                const unsigned char* v_rows) {  // swizzled, at 16 keys
  const int lane = threadIdx.x % 32, place = swizzled<kHeadDim * 2>(lane % 16, lane / 16);
#pragma unroll
  for (int n = 0; n < kDimBlocks; n += 2) {
    uint32_t b[4];  // two blocks of 8 dims, each 16 keys
    ldmatrix_x4_trans(b, v_rows + walk(place, n / 2));
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r) {
      mma_m16n8k16<T>(out[r][n], p[r], b[0], b[1], out[r][n]);
      mma_m16n8k16<T>(out[r][n + 1], p[r], b[2], b[3], out[r][n + 1]);
    }
  }
}

//| ## Storing O
//|
//| Stored straight from the fragments, a lane would write 4 bytes here and 4 bytes there, and a warp eight
//| rows at once: 16-byte pieces of eight lines. So the warp writes its rows into the tile that held Q,
//| swizzled, and reads them back by rows: 16 bytes per lane, neighbouring lanes next to each other, whole
//| lines. Only the warp itself touches its rows, so a warp barrier is enough.
/// Stores a warp's O through its own rows of a swizzled tile, so that it writes whole lines, 16 bytes per
/// lane. `first_row` and `first_dim`: where the warp's part of the tile and of `o` begins. Precondition: no
/// other warp uses this part of the tile any more.
template <typename T, int kHeadDim, int kRowBlocks, int kDimBlocks>
__device__ __forceinline__ void store_out(const Blocks<kRowBlocks, kDimBlocks>& out, unsigned char* tile,
                                          int first_row, int first_dim,
                                          T* o,  // [valid_rows, kHeadDim], at the tile's first row
                                          int valid_rows) {
  constexpr int kRowBytes = kHeadDim * 2, kPieces = kDimBlocks;  // 8 dims are 16 bytes
  const int lane = threadIdx.x % 32, first_piece = first_dim / 8;
  __syncwarp();  // the warp's last reads of these rows are done
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kDimBlocks; ++n) {
        const int place = swizzled<kRowBytes>(first_row + r * 16 + half * 8 + lane / 4, first_piece + n);
        *reinterpret_cast<uint32_t*>(tile + place + lane % 4 * 4) =
            pack<T>(out[r][n][2 * half], out[r][n][2 * half + 1]);
      }
  //| In the second half the lanes change roles: lane $i$ takes the $i$-th piece of the warp's rows, whichever
  //| lane wrote it. Hence the barrier.
  __syncwarp();  // the rows are complete before other lanes read them
#pragma unroll
  for (int i = 0; i < kRowBlocks * 16 * kPieces; i += 32) {
    const int row = first_row + (i + lane) / kPieces, piece = first_piece + (i + lane) % kPieces;
    if (row < valid_rows)
      reinterpret_cast<uint4*>(o + row * kHeadDim)[piece] =
          *reinterpret_cast<const uint4*>(tile + swizzled<kRowBytes>(row, piece));
  }
}

}  // namespace flashbook::fa2
