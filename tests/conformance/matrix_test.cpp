/// Features together: every pair of levels of every two factors occurs in some case.

#include "conformance/conformance.hpp"
#include "verify/random.hpp"

#include <functional>
#include <set>
#include <tuple>

namespace heed::conformance {
namespace {

using Level = std::function<void(Case&)>;

constexpr std::size_t kLengths = 3;  // which factor is the one of modes and lengths

const std::vector<std::vector<Level>>& factors() {
  static const std::vector<std::vector<Level>> list{
      // Types of q, k, v; then of o; then how products are made.
      {[](Case& c) { c.type = f32; }, [](Case& c) { c.type = f16; }, [](Case& c) { c.type = bf16; }},
      {[](Case&) {}, [](Case& c) { c.output_type = f32; }, [](Case& c) { c.output_type = bf16; }},
      {[](Case&) {}, [](Case& c) { c.math = Math::accurate; }},
      // Modes and lengths.
      {[](Case&) {},
       [](Case& c) {
         c.q_eff_lens = {33, 20}, c.kv_eff_lens = {70, 41};
       },
       [](Case& c) {
         c.kv_eff_lens = {0, 65};
       },
       [](Case& c) { c.s_q = {3}, c.s_k = {200}; },
       [](Case& c) {
         c.mode = Mode::group, c.b = 4, c.s_q = {1, 40, 0, 17}, c.s_k = {64, 40, 9, 0};
       },
       [](Case& c) {
         c.mode = Mode::group, c.b = 3, c.s_q = {5, 31, 12}, c.s_k = {70, 0, 33};
         c.s_qpad = {9, 31, 13}, c.s_kpad = {71, 4, 64};
         c.index_type = i64;
       }},
      // Heads and head dims.
      {[](Case&) {}, [](Case& c) { c.h_k = 4; }, [](Case& c) { c.h_k = 1; }, [](Case& c) { c.h = 10; }},
      {[](Case&) {}, [](Case& c) { c.d = c.d_v = 64; }, [](Case& c) { c.d = 37, c.d_v = 21; },
       [](Case& c) { c.d = 9, c.d_v = 80; }},
      // Masks.
      {[](Case&) {}, [](Case& c) { c.mask = Mask::parse("t"); }, [](Case& c) { c.mask = Mask::parse("b"); },
       [](Case& c) { c.mask = Mask::parse("b:9,0"); }, [](Case& c) { c.mask = Mask::parse("t:6,3"); },
       [](Case& c) { c.mask = Mask::parse("b:5,0,4"); }, [](Case& c) { c.mask = Mask::parse("xb:8"); },
       [](Case& c) { c.mask = Mask::parse("g:12,-3"); }},
      {[](Case&) {}, [](Case& c) { c.bool_mask = Broadcast{.batch = true, .head = true, .query = true}; },
       [](Case& c) { c.bool_mask = Broadcast{}, c.squeeze = true; },
       [](Case& c) {
         c.block_mask = BlockMaskSpec{16, 24, {.head = true, .query = true}};
       }},
      // What is done to the scores.
      {[](Case&) {},
       [](Case& c) {
         c.bias = BiasSpec{f32, {.query = true}};
       },
       [](Case& c) {
         c.bias = BiasSpec{c.type, {.batch = true, .head = true, .query = true}}, c.bias_inf = true;
       },
       [](Case& c) {
         c.bias = BiasSpec{c.type, {.head = true}}, c.squeeze = true;
       }},
      {[](Case&) {}, [](Case& c) { c.alibi = Alibi::per_head; }, [](Case& c) { c.alibi = Alibi::per_batch_and_head; }},
      {[](Case&) {}, [](Case& c) { c.sink = SinkInit::normal; }, [](Case& c) { c.sink = SinkInit::large; }},
      {[](Case&) {}, [](Case& c) { c.soft_cap = 4; }},
      {[](Case&) {}, [](Case& c) { c.p_drop = 0.2, c.randval = true; },
       [](Case& c) { c.p_drop = 0.75, c.drop_seed = 99; }},
      {[](Case&) {}, [](Case& c) { c.scale = -0.3; }},
      {[](Case&) {}, [](Case& c) { c.lse = false; }},
      // Memory.
      {[](Case&) {}, [](Case& c) { c.q_layout = c.k_layout = c.v_layout = c.o_layout = Layout::bshd; },
       [](Case& c) { c.v_column_major = true, c.align = 3; }, [](Case& c) { c.row_gap = 5, c.o_layout = Layout::bshd; },
       [](Case& c) {
         c.zero_strides = {{ZeroStride::Tensor::k, 'h'}, {ZeroStride::Tensor::v, 'b'}};
       },
       [](Case& c) { c.packing = Packing::kv, c.q_layout = c.k_layout = c.v_layout = Layout::bshd, c.d_v = c.d; }},
      // Data.
      {[](Case&) {}, [](Case& c) { c.distribution = Distribution::offset; },
       [](Case& c) { c.distribution = Distribution::hot_key; },
       [](Case& c) { c.distribution = Distribution::sparse_int; },
       [](Case& c) { c.distribution = Distribution::const_v; }, [](Case& c) { c.distribution = Distribution::equal; },
       [](Case& c) { c.distribution = Distribution::one_nan; }},
  };
  return list;
}

/// Rows of levels such that each pair of levels of different factors is in one of them (greedy, the best of some
/// tries).
std::vector<std::vector<std::size_t>> pairwise_rows() {
  const auto& list = factors();
  using Pair = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;
  std::set<Pair> uncovered;
  for (std::size_t f = 0; f < list.size(); ++f)
    for (std::size_t g = f + 1; g < list.size(); ++g)
      for (std::size_t a = 0; a < list[f].size(); ++a)
        for (std::size_t b = 0; b < list[g].size(); ++b) uncovered.insert({f, a, g, b});

  verify::Random random(17, 0);
  std::vector<std::vector<std::size_t>> rows;
  while (!uncovered.empty()) {
    std::vector<std::size_t> best;
    std::size_t best_new = 0;
    for (int attempt = 0; attempt < 40; ++attempt) {
      std::vector<std::size_t> row;
      for (const auto& factor : list)
        row.push_back(static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(factor.size()) - 1)));
      const auto& [f, a, g, b] = *uncovered.begin();
      row[f] = a, row[g] = b;
      std::size_t fresh = 0;
      for (std::size_t x = 0; x < row.size(); ++x)
        for (std::size_t y = x + 1; y < row.size(); ++y) fresh += uncovered.count({x, row[x], y, row[y]});
      if (fresh > best_new) best_new = fresh, best = row;
    }
    for (std::size_t x = 0; x < best.size(); ++x)
      for (std::size_t y = x + 1; y < best.size(); ++y) uncovered.erase({x, best[x], y, best[y]});
    rows.push_back(best);
  }
  return rows;
}

CONFORMANCE(every_pair_of_features_works_together) {
  static const auto rows = pairwise_rows();
  for (std::size_t n = 0; n < rows.size(); n += static_cast<std::size_t>(sweep_step(4))) {
    Case c = small();
    c.seed = 1000 + n;
    for (std::size_t f = 0; f < rows[n].size(); ++f) factors()[f][rows[n][f]](c);
    expect_matches_oracle(c);
  }
}

CONFORMANCE(every_feature_works_alone) {
  for (const DataType type : {f32, f16, bf16})
    for (const std::int64_t s_q : {2, 33, 70}) {
      if (small_scale() && s_q == 70) continue;
      for (std::size_t f = 1; f < factors().size(); ++f)
        for (const Level& level : factors()[f]) {
          Case c = small();
          c.type = type;
          if (s_q != 33) c.s_q = {s_q};
          if (s_q != 33 && f == kLengths) continue;  // it brings its own
          level(c);
          expect_matches_oracle(c);
        }
    }
}

CONFORMANCE(every_scale_is_applied) {
  for (const DataType type : {f32, f16, bf16})
    for (const std::int64_t s_q : {1, 70})
      for (const double scale : {-0.3, -1.0, 1e-6, 1.0, 3.0, 0x1p-20}) {
        Case c = small();
        c.type = type;
        c.s_q = {s_q};
        c.scale = scale;
        expect_matches_oracle(c);
        c.math = Math::accurate;
        c.soft_cap = 20;
        expect_matches_oracle(c);
      }
}

CONFORMANCE(every_mask_works_for_every_shape) {
  for (const auto& [s_q, s_k] :
       {std::pair{1, 1}, std::pair{1, 200}, std::pair{70, 70}, std::pair{70, 131}, std::pair{131, 70}, std::pair{5, 3}})
    for (const char* mask : {"0",      "t",      "b",      "t:0,0",  "b:0,0",    "t:64,0",    "b:64,0",    "b:20,20",
                             "t:-1,5", "b:-1,7", "b:3,-1", "t:5,-1", "b:10,0,3", "t:10,0,64", "b:2,0,200", "xt:9",
                             "xb:1",   "xb:64",  "g:1,1",  "g:5,70", "g:-3,9",   "g:200,-5",  "g:0,0"})
      for (const DataType type : {f32, bf16}) {
        if (small_scale() && type == bf16) continue;
        Case c = small();
        c.b = 1;
        c.s_q = {s_q}, c.s_k = {s_k};
        c.type = type;
        c.mask = Mask::parse(mask);
        expect_matches_oracle(c);
      }
}

}  // namespace
}  // namespace heed::conformance
