#pragma once

#include "cpu/backward_job.hpp"

#include <cstddef>
#include <cstdint>

/// The backward pass by plain loops in f32, one query row against one block of keys at a time: every type and feature,
/// on every machine.
namespace heed::cpu {

inline constexpr int kBackwardKeys = 64;  ///< keys of a block
inline constexpr int kBackwardRows = 64;  ///< query rows of a piece that owns dQ

/// One block of keys of one head, as the loops read it.
struct BackwardBlock {
  float* k;  ///< [d][kBackwardKeys]
  float* v;  ///< [d_v][kBackwardKeys]
  int first = 0, keys = 0;

  void pack(const ForwardJob& job, int first_key, int end_key);
};

/// What one row has to do with each key of a block.
struct BackwardPairs {
  float weights[kBackwardKeys];   ///< P after dropout
  float d_scores[kBackwardKeys];  ///< gradient of the scores behind soft cap and bias
  float d_logits[kBackwardKeys];  ///< gradient of scale * Q K^T
};

/// One query row, widened.
struct BackwardRow {
  float* q;    ///< [d]
  float* d_o;  ///< [d_v]
  float lse = 0, delta = 0;
  std::int64_t i = 0;

  void read(const BackwardJob& job, std::int64_t row);
};

/// Whether the row sees any key of the block; the pairs are set only then, to 0 where a key is hidden.
bool backward_pairs(const BackwardJob& job, const BackwardRow& row, const BackwardBlock& block, BackwardPairs& pairs);

/// D of one row.
float backward_delta(const BackwardJob& job, std::int64_t row);

float load_number(const Plane& plane, std::int64_t row, std::int64_t column);
void store_number(const Plane& plane, std::int64_t row, std::int64_t column, float value);
/// `value` as it is in memory of this type.
float rounded_to(Element type, float value);

}  // namespace heed::cpu
