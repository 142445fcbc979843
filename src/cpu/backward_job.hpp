// What the backward kernels are told: plain data shared by the host side of the CPU engine and every ISA level's
// translation unit, on top of forward_job.hpp.
#pragma once

#include "cpu/forward_job.hpp"

namespace heed::cpu {

/// One batch entry and one query head: everything its rows need, and where its gradients go. dk and dv belong to the
/// key/value head, which other query heads may share.
struct BackwardJob {
  ForwardJob forward;            ///< heads is 1; o and lse are read
  Plane d_o;                     ///< [s_q][d_v]
  Plane dq;                      ///< [s_q][d], written
  Plane dk;                      ///< [s_k][d], written
  Plane dv;                      ///< [s_k][d_v], written
  const float* d_lse = nullptr;  ///< [s_q] with the step below, or null
  int64_t d_lse_row = 0;
  float* delta = nullptr;      ///< [s_q], dense: D = rowsum(dO * O) - dLSE, made before a row's first product
  bool dq_in_16_bits = false;  ///< dQ is rounded to its type after every block of keys
};

/// Keys whose K, V, dK and dV a piece holds at a time: a few blocks, which fit the second-level cache.
inline constexpr int32_t kBackwardChunk = 4 * kKeyBlock;

/// A column of chunks: keys of one head that one worker goes over.
struct KeyColumn {
  int32_t first = 0, end = 0;  ///< keys [first, end)
  bool whole_head = false;     ///< that worker goes over the head's other columns too, in their order
};

/// Where gradients of scores are added up.
struct ScoreSums {
  double* sums = nullptr;    ///< [keys of the chunk][strip]
  bool by_distance = false;  ///< each times the distance of its query and key, as ALiBi counts it
};

/// The products of one ISA level and arithmetic unit. A piece calls begin for a chunk of keys [first, first + keys),
/// add for each query head that shares them, and end; `scratch` carries everything from one to the next.
struct BackwardUnit {
  size_t (*scratch_bytes)(int32_t d, int32_t d_v) = nullptr;
  void (*begin)(const BackwardJob&, int32_t first, int32_t keys, void* scratch) = nullptr;
  /// Adds the head's part of dK and dV, and the chunk's part of dQ to dq [strips][round4(d)][strip], which the column's
  /// chunks share. The first of them that a strip sees anything of writes the strip's part, the others add to it; what
  /// no row of a strip sees leaves it as it is. Of a whole head the first chunk makes D of each strip, the last one of
  /// a column that a strip sees adds the column's dQ to those before it in `total`, laid out alike, and the last one of
  /// all writes dQ, without a way through either.
  void (*add)(const BackwardJob&, const KeyColumn& column, int32_t first, int32_t keys, float* dq, float* total,
              void* scratch) = nullptr;
  /// Writes dK and dV.
  void (*end)(const BackwardJob&, int32_t first, int32_t keys, void* scratch) = nullptr;
  /// For dBias and dSlopes: takes in K and V of a chunk,
  void (*take_keys)(const BackwardJob&, int32_t first, int32_t keys, void* scratch) = nullptr;
  /// and adds the gradients of its scores, as they are behind soft cap and bias, for at most a strip of rows.
  void (*add_scores)(const BackwardJob&, int64_t first_row, int32_t rows, int32_t first, int32_t keys, const ScoreSums&,
                     void* scratch) = nullptr;
};

/// The backward kernels of one ISA level.
struct BackwardKernels {
  int32_t strip = 0;  ///< query rows computed side by side
  /// D of rows [first_row, first_row + rows); for a whole head `add` does that, and what follows.
  void (*delta)(const BackwardJob&, int64_t first_row, int32_t rows) = nullptr;
  /// Writes dQ of the strip that begins at first_row: the sum of what `columns` columns have left of it, from dq on in
  /// steps of `column_stride`; sums it up in place. Column c has the keys [column_keys[c], column_keys[c + 1]).
  void (*finish_dq)(const BackwardJob&, int64_t first_row, int32_t rows, float* dq, int64_t column_stride,
                    const int32_t* column_keys, int32_t columns) = nullptr;
  BackwardUnit unit = {};
};

extern const BackwardKernels kBackwardBaseline;
extern const BackwardKernels kBackwardAvx2;
extern const BackwardKernels kBackwardAvx512;
extern const BackwardKernels kBackwardAvx512Bf16;
extern const BackwardKernels kBackwardAmx;

}  // namespace heed::cpu
