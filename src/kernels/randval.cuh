// The random words of dropout, written out: randval [b, h, s_q, s_k], i and j counted inside each sequence.
#pragma once

#include "forward_features.cuh"

namespace heed::kernels {

/// The calls of Philox for the rows and keys of one head, eight entries each: as many as the longest sequence needs.
struct RandvalCalls {
  i64 row_groups, column_groups;
};
HEED_DEVICE RandvalCalls randval_calls(const ForwardParams& p) {
  return {(i64(p.longest_q) + 15) / 16 * 8, (i64(p.longest_k) + 15) / 16 * 4};
}

/// One thread writes the eight entries of a Philox call; any grid. Entries behind a sequence's lengths are not touched.
__device__ __forceinline__ void randval(const ForwardParams& p) {
  constexpr ForwardFeatures kAnyLengths{.own_lengths = true};
  const DropKey key = drop_key(p);
  const auto [row_groups, column_groups] = randval_calls(p);
  const i64 calls = i64(p.batch) * p.heads * row_groups * column_groups;
  for (i64 call = i64(blockIdx.x) * blockDim.x + threadIdx.x; call < calls; call += i64(gridDim.x) * blockDim.x) {
    const u32 column_group = u32(call % column_groups);
    const i64 line = call / column_groups;
    const u32 row_group = u32(line % row_groups);
    const i64 pair = line / row_groups;
    const int b = int(pair / p.heads), head = int(pair % p.heads);
    const Sequence q = sequence_of<kAnyLengths>(p, b);
    const i64 i0 = i64(row_group) / 8 * 16 + row_group % 8, j0 = i64(column_group) / 4 * 16 + column_group % 4 * 2;
    if (i0 >= q.s_q || j0 >= q.s_k) continue;
    const Philox words = philox(column_group, row_group, u32(pair), key.offset, key.k0, key.k1);
    const u32 of_pair[4] = {words.x, words.y, words.z, words.w};  // rows i0, i0, i0 + 8, i0 + 8; keys j0, j0 + 8, ...
    u16* const out = p.randval + b * p.randval_steps.batch + head * p.randval_steps.head;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const i64 i = i0 + n / 4 * 8, j = j0 + n / 2 % 2 * 8 + n % 2;
      if (i < q.s_q && j < q.s_k)
        out[i * p.randval_steps.row + j * p.randval_steps.column] = u16(of_pair[n / 2] >> (n % 2 * 16));
    }
  }
}

}  // namespace heed::kernels
