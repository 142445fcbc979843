#include "cpu/backward_rows.hpp"

#include "core/float_bits.hpp"

#include <heed/philox.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace heed::cpu {
namespace {

DataType type_of(Element element) {
  return element == Element::f32 ? DataType::f32 : element == Element::f16 ? DataType::f16 : DataType::bf16;
}

float load_float(const void* data, std::int64_t index) { return core::load_raw<float>(data, index); }

/// sum[j] += left[e] * right[e][j], over all e.
void add_product(float* sum, const float* left, const float* right, int n) {
  std::array<float, kBackwardKeys> total{};
  for (int e = 0; e < n; ++e) {
    const float l = left[e];
    const float* const r = right + static_cast<std::ptrdiff_t>(e) * kBackwardKeys;
    for (int j = 0; j < kBackwardKeys; ++j) total[static_cast<std::size_t>(j)] += l * r[j];
  }
  std::copy(total.begin(), total.end(), sum);
}

bool is_kept(const ForwardJob& job, std::int64_t i, std::int64_t j) {
  if (job.keep != nullptr && job.keep[i * job.keep_row + j * job.keep_column] == 0) return false;
  return job.blocks == nullptr ||
         job.blocks[i / job.block_q * job.blocks_row + j / job.block_k * job.blocks_column] != 0;
}

bool is_dropped(const ForwardJob& job, std::int64_t i, std::int64_t j) {
  const auto words = philox4x32_10({static_cast<std::uint32_t>(j / 16 * 4 + j % 8 / 2),
                                    static_cast<std::uint32_t>(i / 16 * 8 + i % 8), job.drop_head, job.drop_offset},
                                   {job.drop_key[0], job.drop_key[1]});
  const auto half = static_cast<std::size_t>(i / 8 % 2 * 4 + j / 8 % 2 * 2 + j % 2);
  return (words[half / 2] >> (half % 2 * 16) & 0xFFFFu) < job.drop_threshold;
}

}  // namespace

float load_number(const Plane& plane, std::int64_t row, std::int64_t column) {
  return core::load_f32(plane.data, type_of(plane.type), row * plane.row + column * plane.column);
}
void store_number(const Plane& plane, std::int64_t row, std::int64_t column, float value) {
  core::store(const_cast<void*>(plane.data), type_of(plane.type), row * plane.row + column * plane.column, value);
}
float rounded_to(Element type, float value) {
  if (type == Element::f32) return value;
  return type == Element::f16 ? core::f32_from_f16(core::f16_from_f32(value))
                              : core::f32_from_bf16(core::bf16_from_f32(value));
}

void BackwardBlock::pack(const ForwardJob& job, int first_key, int end_key) {
  first = first_key;
  keys = end_key - first_key;
  const auto columns = [&](float* to, const Plane& from, int dim) {
    for (int e = 0; e < dim; ++e)
      for (int j = 0; j < kBackwardKeys; ++j)
        to[e * kBackwardKeys + j] = j < keys ? load_number(from, first + j, e) : 0.f;
  };
  columns(k, job.k, job.d);
  columns(v, job.v, job.d_v);
}

void BackwardRow::read(const BackwardJob& job, std::int64_t row) {
  i = row;
  for (int e = 0; e < job.forward.d; ++e) q[e] = load_number(job.forward.q, row, e);
  for (int e = 0; e < job.forward.d_v; ++e) d_o[e] = load_number(job.d_o, row, e);
  lse = job.forward.lse[row * job.forward.lse_row];
  delta = job.delta[row];
}

float backward_delta(const BackwardJob& job, std::int64_t row) {
  double sum = 0;
  for (int e = 0; e < job.forward.d_v; ++e)
    sum += static_cast<double>(load_number(job.d_o, row, e)) * static_cast<double>(load_number(job.forward.o, row, e));
  if (job.d_lse != nullptr) sum -= static_cast<double>(job.d_lse[row * job.d_lse_row]);
  return static_cast<float>(sum);
}

bool backward_pairs(const BackwardJob& backward, const BackwardRow& row, const BackwardBlock& block,
                    BackwardPairs& pairs) {
  const ForwardJob& job = backward.forward;
  const std::int64_t i = row.i;
  const std::int64_t window_begin = std::max<std::int64_t>(i - job.mask_y + 1, 0),
                     window_end = std::min<std::int64_t>(i + job.mask_x, job.s_k),
                     sink_end = std::min<std::int64_t>(job.mask_sink, window_end);
  const std::int64_t last = block.first + block.keys;
  const bool sees = (block.first < window_end && last > window_begin) || block.first < sink_end;
  // A row without visible keys has an LSE of -inf, and gradients of 0.
  if (!sees || row.lse == -std::numeric_limits<float>::infinity()) return false;

  std::array<float, kBackwardKeys> scores, d_weights;
  add_product(scores.data(), row.q, block.k, job.d);
  add_product(d_weights.data(), row.d_o, block.v, job.d_v);
  float slope = 0;
  if (job.slopes != nullptr) slope = load_float(job.slopes, 0);
  pairs = {};
  for (int n = 0; n < block.keys; ++n) {
    const std::int64_t j = block.first + n;
    const auto at = static_cast<std::size_t>(n);
    if (!((window_begin <= j && j < window_end) || j < sink_end) || !is_kept(job, i, j)) continue;
    float score = job.scale * scores[at], cap_slope = 1;
    if (job.soft_cap > 0) {
      const float t = std::tanh(score / job.soft_cap);
      score = job.soft_cap * t;
      cap_slope = 1 - t * t;
    }
    if (job.bias.data != nullptr) score += load_number(job.bias, i, j);
    if (job.slopes != nullptr) score -= slope * static_cast<float>(std::abs(i + job.s_k - job.s_q - j));
    const float p = std::exp(score - row.lse);
    const bool dropped = job.drop && is_dropped(job, i, j);
    const float factor = dropped ? 0.f : job.drop_scale;
    pairs.weights[n] = p * factor;
    pairs.d_scores[n] = p * ((dropped ? 0.f : factor * d_weights[at]) - row.delta);
    pairs.d_logits[n] = pairs.d_scores[n] * cap_slope;
  }
  return true;
}

}  // namespace heed::cpu
