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
  int32_t stretch = 0;         ///< keys whose K, V, dK and dV a worker's scratch holds
  bool dq_in_16_bits = false;  ///< dQ is rounded to its type after every block of keys
};

/// Keys over which a strip's dQ is summed up from zero; these sums are added in their order. Columns are whole chunks.
inline constexpr int32_t kBackwardChunk = 4 * kKeyBlock;

/// A column of chunks: keys [first, end) of a head, whose dQ is summed up for itself.
struct KeyColumn {
  int32_t first = 0, end = 0;
};

/// What one worker goes over of a head: columns that follow each other.
struct KeyPiece {
  const int32_t* first_keys = nullptr;  ///< of each column, and behind the last
  int32_t columns = 0;
  bool whole_head = false;  ///< these are all columns of the head

  KeyColumn column(int32_t c) const { return {first_keys[c], first_keys[c + 1]}; }
  int32_t first() const { return first_keys[0]; }
  int32_t end() const { return first_keys[columns]; }
};

/// Where gradients of scores are added up.
struct ScoreSums {
  double* sums = nullptr;    ///< [keys of the chunk][strip]
  bool by_distance = false;  ///< each times the distance of its query and key, as ALiBi counts it
};

/// The products of one ISA level and arithmetic unit. A worker calls begin for a stretch of a piece's keys
/// [first, first + keys), add for each query head that shares them, and end; `scratch` carries everything from one to
/// the next.
struct BackwardUnit {
  size_t (*scratch_bytes)(int32_t d, int32_t d_v, int32_t stretch) = nullptr;
  void (*begin)(const BackwardJob&, int32_t first, int32_t keys, void* scratch) = nullptr;
  /// Adds the head's part of dK and dV, and each chunk's part of dQ to dq [strips][round4(d)][strip], which the chunks
  /// of a column share. The first of them that a strip sees anything of writes the strip's part, the others add to it;
  /// what no row of a strip sees leaves it as it is. Of a whole head the first stretch makes D of each strip, the last
  /// chunk of a column that a strip sees adds the column's dQ to those before it in `total`, laid out alike, and the
  /// last one of all writes dQ. Neither array is touched for a strip that sees nothing of the head beyond this stretch.
  void (*add)(const BackwardJob&, const KeyPiece& piece, int32_t first, int32_t keys, float* dq, float* total,
              void* scratch) = nullptr;
  /// Writes dK and dV.
  void (*end)(const BackwardJob&, int32_t first, int32_t keys, void* scratch) = nullptr;
  /// For dBias and dSlopes: takes in K and V of at most a chunk,
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
