// What the kernels are told: plain data shared by the host side of the CPU engine and every ISA level's translation
// unit. No standard library types, so that nothing inline is shared between instruction sets.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace heed::cpu {

enum class Element : uint8_t { f32, f16, bf16 };

/// A strided plane of a tensor: element (row, column) of head g lies at data + g * head + row * row + column * column.
/// Steps are in elements.
struct Plane {
  const void* data = nullptr;
  int64_t head = 0, row = 0, column = 1;
  Element type = Element::f32;
};

/// One batch entry and one key/value head: everything its query rows need.
/// Row r of the job is query i = r / heads of query head g = r % heads, so that a short query fills the vector lanes
/// with the heads that share its keys.
struct ForwardJob {
  Plane q;               ///< [heads][s_q][d]
  Plane k;               ///< [s_k][d], columns next to each other
  Plane v;               ///< [s_k][d_v]
  Plane o;               ///< [heads][s_q][d_v], written
  float* lse = nullptr;  ///< [heads][s_q] with the two steps below, or null
  int64_t lse_head = 0, lse_row = 0;
  int32_t heads = 1;
  int32_t s_q = 0, s_k = 0, d = 0, d_v = 0;

  int64_t mask_y = 0, mask_x = 0, mask_sink = 0;  ///< see MaskBounds
  float scale = 1;
  float soft_cap = 0;

  Plane bias;                    ///< [heads][s_q][s_k], data null when absent
  const void* slopes = nullptr;  ///< f32 [heads]
  int64_t slope_head = 0;
  const void* sinks = nullptr;  ///< f32 [heads]
  int64_t sink_head = 0;
  const uint8_t* keep = nullptr;  ///< boolean mask [heads][s_q][s_k]
  int64_t keep_head = 0, keep_row = 0, keep_column = 0;
  const uint8_t* blocks = nullptr;  ///< block mask [heads][s_q / block_q][s_k / block_k]
  int64_t blocks_head = 0, blocks_row = 0, blocks_column = 0;
  int32_t block_q = 1, block_k = 1;

  bool drop = false;
  uint32_t drop_threshold = 0;  ///< kept where the 16-bit word is at least this
  float drop_scale = 1;         ///< 1 / (1 - p)
  uint32_t drop_key[2] = {0, 0};
  uint32_t drop_offset = 0;  ///< fourth counter word
  uint32_t drop_head = 0;    ///< head index of g = 0: third counter word

  /// Scores need more than a scale: they are turned into log2 units by the feature pass.
  bool has_score_features() const { return soft_cap > 0 || bias.data != nullptr || slopes != nullptr; }
  bool has_bit_masks() const { return keep != nullptr || blocks != nullptr; }
};

inline constexpr int32_t kPartialExtra =
    3;  ///< after a row's O: the maximum in log2 units, the sum, the sum of weights

/// A part of a job: some query rows against some keys.
struct ForwardPart {
  int64_t first_row = 0;
  int32_t rows = 0;
  int32_t key_begin = 0, key_end = 0;
  /// Null: the keys are all there are, and O is final. Otherwise the rows' unnormalised results go here,
  /// d_v + kPartialExtra floats a row.
  float* partial = nullptr;
};

inline constexpr int32_t kKeyBlock = 128;  ///< keys per block: scores of one strip stay in the first-level cache

/// The kernels of one ISA level. A null entry: that level has no such kernel.
struct ForwardKernels {
  int32_t strip = 0;  ///< query rows computed side by side
  size_t (*tile_scratch)(int32_t d, int32_t d_v, int32_t strips) = nullptr;
  void (*tile_f32)(const ForwardJob&, const ForwardPart&, void* scratch) = nullptr;
  void (*tile_dot)(const ForwardJob&, const ForwardPart&, void* scratch) = nullptr;
  void (*tile_amx)(const ForwardJob&, const ForwardPart&, void* scratch) = nullptr;
  int32_t max_rows = 0;  ///< most rows of the rows kernels
  size_t (*rows_scratch)(int32_t d, int32_t d_v) = nullptr;
  void (*rows_f32)(const ForwardJob&, const ForwardPart&, void* scratch) = nullptr;
  void (*rows_dot)(const ForwardJob&, const ForwardPart&, void* scratch) = nullptr;
  /// Overwrites the partial results. Merges `parts` partial results of rows [first_row, first_row + rows); part p of
  /// row r starts at partial + p * part_stride + (r - first_row) * (d_v + kPartialExtra).
  void (*combine)(const ForwardJob&, int64_t first_row, int32_t rows, float* partial, int64_t part_stride,
                  int32_t parts) = nullptr;
};

extern const ForwardKernels kForwardBaseline;
extern const ForwardKernels kForwardAvx2;
extern const ForwardKernels kForwardAvx512;
extern const ForwardKernels kForwardAvx512Bf16;
extern const ForwardKernels kForwardAmx;

}  // namespace heed::cpu
