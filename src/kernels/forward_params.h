// What a forward kernel is told at run time: plain data, read by the host compiler and by NVRTC alike. No includes.
#pragma once

namespace heed::kernels {

/// tanh(x) = sum of kTanhTerm[i] * x^(2i + 1) to the last digit of a float, for |x| below kTanhNear.
constexpr float kTanhNear = 0.625f;
constexpr int kTanhTerms = 6;
constexpr float kTanhTerm[kTanhTerms] = {
    1.0f, -3.33332819422e-1f, 1.33314422036e-1f, -5.37397155531e-2f, 2.06390887954e-2f, -5.70498872745e-3f};
/// The same with fewer terms, for |x| below kTanhSmall, to 1.3e-7 of the result.
constexpr float kTanhSmall = 0.4f;
constexpr int kTanhSmallTerms = 4;
constexpr float kTanhSmallTerm[kTanhSmallTerms] = {0.99999988079f, -3.33313733339e-1f, 1.32711559534e-1f,
                                                   -4.75610755384e-2f};

/// Steps in elements. Element (b, h, i, e) of a tensor is at b * batch + h * head + i * row + e * column.
struct Steps {
  long long batch, head, row, column;
};

/// A list of row numbers, i32 or i64. data is null when it was not given.
struct Indices {
  const void* data;
  long long step;
  int wide;  ///< i64
};

/// What a head and a batch number are multiplied by to make coordinates of a tensor map: 0 where the tensor has one
/// for all (stride 0, or the batch in group mode).
struct MapSteps {
  int head, batch;
};

/// A mask before the lengths are known. Unlimited sides and everything beyond kUnlimited are kUnlimited.
struct MaskParams {
  static constexpr int kUnlimited = 1 << 29;
  enum Kind : int { kNone, kTopLeft, kBottomRight, kRaw };
  int kind;
  int left, right;  ///< y and x of a raw mask
  int sink;
};

struct ForwardParams {
  const void* q;  ///< [b, h, s_q, d] by steps; group mode: [h, total_q, d], batch step 0
  const void* k;  ///< [b, h_k, s_k, d]
  const void* v;  ///< [b, h_k, s_k, d_v]
  void* o;        ///< [b, h, s_q, d_v]
  float* lse;     ///< [b, h, s_q], or null; column step unused
  Steps q_steps, k_steps, v_steps, o_steps, lse_steps;

  int batch, heads, group;  ///< group: query heads per key/value head
  int group_shift;          ///< log2 of the group, where its heads share tiles
  int d, d_v;
  int s_q, s_k;                ///< rows of a batch entry; group mode: rows of the whole tensors
  Indices start_q, start_k;    ///< [b + 1], group mode only
  Indices length_q, length_k;  ///< [b], optional
  int longest_q, longest_k;    ///< what was told of the longest sequence: more is cut off
  MaskParams mask;

  float scale;                  ///< of the logits
  float scale_log2;             ///< scale * log2(e)
  float soft_cap;               ///< > 0 where the kernel has the feature
  float cap_near;               ///< products smaller than this are so far below the cap that tanh is a polynomial:
  float cap_terms[kTanhTerms];  ///< soft_cap * log2(e) * tanh(x * scale / soft_cap) = sum of cap_terms[i] * x^(2i + 1)
  float cap_small;              ///< the same for products smaller than this
  float cap_small_terms[kTanhSmallTerms];

  const void* bias;  ///< [b, h, s_q, s_k] by steps (column = key), the kernel knows its type
  Steps bias_steps;
  const float* slopes;  ///< ALiBi [b, h] by steps
  Steps slope_steps;
  const float* sink;  ///< [h]
  long long sink_step;
  const unsigned char* keep;  ///< boolean mask [b, h, s_q, s_k]
  Steps keep_steps;
  const unsigned char* blocks;  ///< block mask [b, h, s_q / block_q, s_k / block_k]
  Steps block_steps;
  int block_q, block_k;

  unsigned drop_threshold;  ///< an entry is kept where its 16-bit word is at least this
  float drop_scale;         ///< 1 / (1 - p)
  unsigned long long drop_seed, drop_offset;
  const unsigned long long* drop_state;  ///< {seed, offset} in GPU memory instead, or null
  long long drop_state_step;
  unsigned short* randval;  ///< [b, h, s_q, s_k], for the kernel that writes it
  Steps randval_steps;

  // The schedule. The maps, the counter and `light` are the Hopper family's alone.
  MapSteps q_map, k_map, v_map, o_map;
  unsigned* counter;  ///< dynamic schedule: zero before a launch, zero after it
  int row_tiles;      ///< of a batch entry's s_q rows, or of those of a group of heads
  int section;        ///< heads whose K and V stay in the second-level cache together
  int light;          ///< row tiles with the fewest keys, kept for the end of a causal schedule
};

}  // namespace heed::kernels
