// Dropout: the map of include/heed/philox.hpp, one query per lane.
#pragma once

#include "cpu/kernels/lanes.hpp"

namespace heed::cpu::HEED_ISA {

/// Philox4x32-10 in every lane.
HEED_INLINE void philox(I (&counter)[4], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    I high_a, low_a, high_b, low_b;
    multiply_wide(counter[0], 0xD2511F53u, high_a, low_a);
    multiply_wide(counter[2], 0xCD9E8D57u, high_b, low_b);
    counter[0] = xor_int(xor_int(high_b, counter[1]), broadcast_int(static_cast<int>(key0)));
    counter[1] = low_b;
    counter[2] = xor_int(xor_int(high_a, counter[3]), broadcast_int(static_cast<int>(key1)));
    counter[3] = low_a;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

/// Which entries of keys [first, first + keys) survive; first is a multiple of 16.
HEED_NOINLINE void gather_dropout_bits(const ForwardJob& job, int64_t first_row, int rows, int first, int keys,
                                       BlockBits& bits) {
  __builtin_memset(bits.words, 0, sizeof bits.words);
  const I limit = broadcast_int(static_cast<int>(job.drop_threshold) - 1);
  for (int v = 0; v < kVectors; ++v) {
    alignas(64) int32_t row_group[kLanes], head[kLanes], lower[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t n = first_row + smaller(v * kLanes + lane, rows - 1), i = n / job.heads;
      row_group[lane] = static_cast<int32_t>(i / 16 * 8 + i % 8);
      head[lane] = static_cast<int32_t>(job.drop_head + static_cast<uint32_t>(n % job.heads));
      lower[lane] = static_cast<int32_t>(i / 8 % 2);  // rows 8..15 of a 16 x 16 tile use the last two words
    }
    const M is_lower = bit_set(load_int(lower), broadcast_int(1));
    for (int key = 0; key < keys; key += 16) {
      I kept = broadcast_int(0);
      for (int c = 0; c < 4; ++c) {
        I x[4] = {broadcast_int((first + key) / 16 * 4 + c), load_int(row_group), load_int(head),
                  broadcast_int(static_cast<int>(job.drop_offset))};
        philox(x, job.drop_key[0], job.drop_key[1]);
        for (int right = 0; right < 2; ++right) {  // columns 2c, 2c + 1 and 8 further right
          const I word = right == 0 ? select_int(is_lower, x[2], x[0]) : select_int(is_lower, x[3], x[1]);
          const unsigned bit = 1u << (key % 32 + 8 * right + 2 * c);
          const I none = broadcast_int(0);
          kept = or_int(kept, select_int(less(limit, and_int(word, broadcast_int(0xffff))),
                                         broadcast_int(static_cast<int>(bit)), none));
          kept = or_int(
              kept, select_int(less(limit, shift_right<16>(word)), broadcast_int(static_cast<int>(bit << 1)), none));
        }
      }
      uint32_t* to = &bits.words[key / 32][v * kLanes];
      store_int(to, or_int(load_int(to), kept));
    }
  }
}

/// Zeroes the dropped entries of P [keys][kStrip] (Pairs: [keys / 2][kStrip] of bf16 pairs).
template <bool Pairs>
HEED_NOINLINE void drop(float* p, int keys, const BlockBits& bits) {
  for (int key = 0; key < keys; key += Pairs ? 2 : 1, p += kStrip) {
    for (int v = 0; v < kVectors; ++v) {
      const F x = load(p + v * kLanes);
      if constexpr (!Pairs) {
        store(p + v * kLanes, select(bits.visible(key, v), x, zero()));
      } else {
        const I low = select_int(bits.visible(key, v), broadcast_int(0xffff), broadcast_int(0));
        const I high =
            select_int(bits.visible(key + 1, v), broadcast_int(static_cast<int>(0xffff0000u)), broadcast_int(0));
        store(p + v * kLanes, as_float(and_int(as_int(x), or_int(low, high))));
      }
    }
  }
}

}  // namespace heed::cpu::HEED_ISA
