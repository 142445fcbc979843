// What the kernels of a backward pass are told at run time: plain data, read by the host compiler and by NVRTC alike.
#pragma once

#include "forward_params.h"

namespace heed::kernels {

/// Of the forward pass: the same operands, masks and features. Its o and lse are read here. Of its schedule row_tiles
/// and section are told to kernels without a counter: those of the portable family, and the Hopper family's owners of
/// dQ.
///   P   = exp(S - lse), dropped where the forward pass dropped it
///   D   = rowsum(dO * O) - dLSE
///   dS  = P * (dP - D) with dP = dO V^T (times the dropout's scale, or 0), and through the soft cap's tanh
///   dV  = P^T dO,  dK = scale * dS^T Q,  dQ = scale * dS K,  each summed over the heads of a group where K and V are
struct BackwardParams {
  ForwardParams forward;

  const void* d_o;  ///< [b, h, s_q, d_v] by steps; group mode: [h, total_q, d_v], batch step 0
  Steps d_o_steps;
  const float* d_lse;  ///< [b, h, s_q], or null; column step unused
  Steps d_lse_steps;

  void* dq;  ///< [b, h, s_q, d]
  void* dk;  ///< [b, h_k, s_k, d]
  void* dv;  ///< [b, h_k, s_k, d_v]
  Steps dq_steps, dk_steps, dv_steps;

  /// [b or 1, h or 1, s_q or 1, s_k or 1] of the bias' own type, or null; broadcast dimensions have size 1. Group mode:
  /// s_q and s_k may be larger than those of the longest sequence.
  void* d_bias;
  Steps d_bias_steps;
  int d_bias_batch, d_bias_heads, d_bias_rows, d_bias_columns;  ///< those sizes
  int d_bias_parts;                                             ///< of what an entry sums
  float* d_slopes;  ///< ALiBi [b, h] by steps (batch step 0: [h], summed over the batch), or null
  Steps d_slope_steps;
  float* d_sink;  ///< [h], or null
  long long d_sink_step;

  // Workspace. Row i of sequence b has the place row_start(b) + i of a head's `row_space` places.
  float* row_lse;  ///< [h, row_space] in log2 units; +inf where a row has no probability
  float* row_dot;  ///< [h, row_space] D
  void* dq_sum;    ///< [h, row_space, d] the sum of dQ where several blocks add to it, in the kernels' own order and in
                   ///< f32 or its own type
  float* row_part;  ///< [2, h, row_space] what each row adds to d_slopes and d_sink
  long long row_space;
  float* d_bias_part;  ///< [d_bias_parts, tiles of dBias], each in the order of its kernel's threads

  // The Hopper family's schedule.
  MapSteps q_map, k_map, v_map, d_o_map;
  MapSteps d_bias_map;  ///< where the main kernel stores dBias, which it leaves alone where d_bias is null
  unsigned* counter;    ///< the next tile to draw; zeroed by the kernel before
  unsigned* turns;      ///< [h, row_space / tile_q, 2] whose turn it is to add to a block of dQ, where order matters
  // Where the main kernel zeroes the sum of dQ a few heads ahead. A pair is a batch entry and a head of K and V, or a
  // part of its group; tiles of pair n zero the sum of pair n + zeroed_before.
  unsigned* zeroed;   ///< [pairs] tiles that have zeroed their share of the pair's sum; or null
  int zeroed_before;  ///< so many pairs are zeroed by the kernel before
  int row_blocks;     ///< of a batch entry's s_q rows
  int key_tiles;      ///< of a batch entry's s_k keys
  int section;        ///< heads whose Q, dO and dQ stay in the second-level cache together
  // Where the query heads of a group are divided into parts: for the main kernel each part is a group of its own.
  int parts;
  float* key_sum;       ///< [2, h_k * parts, key_space, d of the tile] dK, then dV, of each part
  long long key_space;  ///< keys of all sequences, each from a whole tile on
};

}  // namespace heed::kernels
