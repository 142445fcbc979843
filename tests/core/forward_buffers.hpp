#pragma once

#include <heed/forward.hpp>

#include <cstdint>
#include <vector>

namespace heed {

/// Small arguments that are in order, with memory behind them, for tests that then break one thing.
/// b = 2, s_q = 3, s_k = 5, h = 4, h_k = 2, d = 8, d_v = 6; all f32.
struct BatchBuffers {
  std::vector<float> q = std::vector<float>(2 * 3 * 4 * 8);
  std::vector<float> k = std::vector<float>(2 * 5 * 2 * 8);
  std::vector<float> v = std::vector<float>(2 * 5 * 2 * 6);
  std::vector<float> o = std::vector<float>(2 * 3 * 4 * 6);
  std::vector<float> lse = std::vector<float>(2 * 4 * 3);
  /// For whatever else a test needs: bias, masks, slopes, random words.
  std::vector<float> other = std::vector<float>(1024);

  ForwardArgs args() {
    return {.q = {q.data(), f32, {2, 3, 4, 8}},
            .k = {k.data(), f32, {2, 5, 2, 8}},
            .v = {v.data(), f32, {2, 5, 2, 6}},
            .o = {o.data(), f32, {2, 3, 4, 6}}};
  }
};

/// Three sequences packed: s_q = 3, 0, 2 of 6 rows and s_k = 1, 4, 3 of 9 rows; h = 4, h_k = 2, d = 8, d_v = 6; all
/// f32.
struct GroupBuffers {
  std::vector<float> q = std::vector<float>(6 * 4 * 8);
  std::vector<float> k = std::vector<float>(9 * 2 * 8);
  std::vector<float> v = std::vector<float>(9 * 2 * 6);
  std::vector<float> o = std::vector<float>(6 * 4 * 6);
  std::vector<float> lse = std::vector<float>(4 * 6);
  std::vector<float> other = std::vector<float>(1024);
  std::vector<std::int32_t> starts_q{0, 3, 3, 5};
  std::vector<std::int64_t> starts_k{1, 2, 6, 9};

  ForwardArgs args() {
    return {.q = {q.data(), f32, {6, 4, 8}},
            .k = {k.data(), f32, {9, 2, 8}},
            .v = {v.data(), f32, {9, 2, 6}},
            .o = {o.data(), f32, {6, 4, 6}},
            .seqstart_q = {starts_q.data(), i32, {4}},
            .seqstart_k = {starts_k.data(), i64, {4}}};
  }
};

}  // namespace heed
