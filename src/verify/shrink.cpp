#include "verify/fuzz.hpp"

#include <heed/error.hpp>

#include <algorithm>

namespace heed::verify {
namespace {

using Change = std::function<void(Case&)>;

/// One sequence alone, in batch mode.
void keep_one_sequence(Case& c, std::int64_t entry) {
  const std::int64_t s_q = c.logical_q(entry), s_k = c.logical_k(entry);
  c.mode = Mode::batch;
  c.b = 1;
  c.s_q = {s_q};
  c.s_k = {s_k};
  c.s_qpad = c.s_kpad = c.q_eff_lens = c.kv_eff_lens = {};
  c.max_s_q = c.max_s_k = Case::kExactly;
  c.q_around = c.k_around = {};
  c.table_more_q = c.table_more_k = 0;
}

void drop_sequence(Case& c, std::size_t entry) {
  for (auto* list : {&c.s_q, &c.s_k, &c.s_qpad, &c.s_kpad, &c.q_eff_lens, &c.kv_eff_lens})
    if (static_cast<std::int64_t>(list->size()) == c.b && (c.group() || (list != &c.s_q && list != &c.s_k)))
      list->erase(list->begin() + static_cast<std::ptrdiff_t>(entry));
  --c.b;
}

void set_lengths(Case& c, std::vector<std::int64_t> Case::*lengths, std::size_t at, std::int64_t value) {
  (c.*lengths)[at] = value;
  if (c.group()) return;
  // Logical lengths stay inside.
  for (auto& each : lengths == &Case::s_q ? c.q_eff_lens : c.kv_eff_lens) each = std::min(each, value);
}

/// Everything that makes this case simpler, the greatest simplifications first.
std::vector<Change> simplifications(const Case& c) {
  std::vector<Change> changes;
  const auto add = [&](bool applies, Change change) {
    if (applies) changes.push_back(std::move(change));
  };
  for (std::int64_t e = 0; e < std::min<std::int64_t>(c.b, 8); ++e)
    add(c.b > 1 || c.group() || !c.q_eff_lens.empty() || !c.kv_eff_lens.empty(),
        [e](Case& x) { keep_one_sequence(x, e); });
  for (std::size_t e = 0; e < static_cast<std::size_t>(std::min<std::int64_t>(c.b, 8)); ++e)
    add(c.b > 1, [e](Case& x) { drop_sequence(x, e); });

  add(c.max_s_q != Case::kExactly || c.max_s_k != Case::kExactly,
      [](Case& x) { x.max_s_q = x.max_s_k = Case::kExactly; });

  add(c.q_around != Around{} || c.k_around != Around{}, [](Case& x) { x.q_around = x.k_around = {}; });
  add(c.q_around != Around{} && c.k_around != Around{}, [](Case& x) { x.q_around = {}; });
  add(c.q_around != Around{} && c.k_around != Around{}, [](Case& x) { x.k_around = {}; });
  add(c.table_more_q != 0 || c.table_more_k != 0, [](Case& x) { x.table_more_q = x.table_more_k = 0; });
  add(c.table_more_q != 0 && c.table_more_k != 0, [](Case& x) { x.table_more_q = 0; });
  add(c.table_more_q != 0 && c.table_more_k != 0, [](Case& x) { x.table_more_k = 0; });

  // Gradients.
  add(c.d_lse, [](Case& x) { x.d_lse = false; });
  add(c.dbias.has_value(), [](Case& x) { x.dbias.reset(); });
  add(c.dsink, [](Case& x) { x.dsink = false; });
  add(c.dslopes, [](Case& x) { x.dslopes = false; });
  add(c.deterministic, [](Case& x) { x.deterministic = false; });
  add(c.dq_in_16_bits, [](Case& x) { x.dq_in_16_bits = false; });
  add(c.d_o_layout.has_value(), [](Case& x) { x.d_o_layout.reset(); });
  add(c.grad_layout.has_value(), [](Case& x) { x.grad_layout.reset(); });

  // Features.
  add(c.p_drop != 0, [](Case& x) { x.p_drop = 0, x.randval = x.drop_state = false; });
  add(c.randval, [](Case& x) { x.randval = false; });
  add(c.drop_state, [](Case& x) { x.drop_state = false; });
  add(c.drop_seed != 1 || c.drop_offset != 0, [](Case& x) { x.drop_seed = 1, x.drop_offset = 0; });
  const auto drop_zero_strides = [](Case& x, ZeroStride::Tensor of) {
    std::erase_if(x.zero_strides, [of](const ZeroStride& zero) { return zero.tensor == of; });
  };
  add(c.bias.has_value(), [=](Case& x) {
    x.bias.reset(), x.dbias.reset(), x.bias_inf = false;
    drop_zero_strides(x, ZeroStride::Tensor::bias);
  });
  add(c.bias_inf, [](Case& x) { x.bias_inf = false; });
  add(c.bias && !c.bias->shape.key, [](Case& x) { x.bias->shape.key = true; });
  add(c.bool_mask && !c.bool_mask->key, [](Case& x) { x.bool_mask->key = true; });
  add(c.bool_mask.has_value(), [=](Case& x) {
    x.bool_mask.reset();
    drop_zero_strides(x, ZeroStride::Tensor::bool_mask);
  });
  add(c.block_mask.has_value(), [](Case& x) { x.block_mask.reset(); });
  add(c.alibi != Alibi::none, [](Case& x) { x.alibi = Alibi::none, x.dslopes = false; });
  add(c.sink != SinkInit::none, [](Case& x) { x.sink = SinkInit::none, x.dsink = false; });
  add(c.sink == SinkInit::holes, [](Case& x) { x.sink = SinkInit::normal; });
  add(c.soft_cap != 0, [](Case& x) { x.soft_cap = 0; });
  add(c.scale != 0, [](Case& x) { x.scale = 0; });
  add(c.lse && !c.backward(), [](Case& x) { x.lse = false; });
  add(c.mask != Mask::none(), [](Case& x) { x.mask = Mask::none(); });
  add(c.mask != Mask::none() && c.mask != Mask::causal(), [](Case& x) { x.mask = Mask::causal(); });
  add(c.mask.sink() != 0, [](Case& x) {
    x.mask = x.mask.kind() == Mask::Kind::top_left ? Mask::window_top_left(x.mask.left(), x.mask.right())
                                                   : Mask::window(x.mask.left(), x.mask.right());
  });

  // Memory and types.
  add(c.packing != Packing::none, [](Case& x) { x.packing = Packing::none; });
  add(c.v_column_major, [](Case& x) { x.v_column_major = false; });
  add(!c.zero_strides.empty(), [](Case& x) { x.zero_strides.clear(); });
  add(!c.reversed.empty(), [](Case& x) { x.reversed.clear(); });
  add(c.reversed.size() > 1, [](Case& x) { x.reversed.pop_back(); });
  add(c.reversed.size() > 1, [](Case& x) { x.reversed.erase(x.reversed.begin()); });
  add(c.row_gap != 0, [](Case& x) { x.row_gap = 0; });
  add(c.align != 0, [](Case& x) { x.align = 0; });
  add(c.absurd_strides, [](Case& x) { x.absurd_strides = false; });
  add(c.squeeze, [](Case& x) { x.squeeze = false; });
  add(c.index_type != i32, [](Case& x) { x.index_type = i32; });
  for (Layout Case::*layout : {&Case::q_layout, &Case::k_layout, &Case::o_layout})
    add(c.*layout != Layout::bhsd && c.packing == Packing::none, [layout](Case& x) {
      x.*layout = Layout::bhsd;
      x.v_layout = x.k_layout;
    });
  add(c.output_type.has_value(), [](Case& x) { x.output_type.reset(); });
  add(c.math != Math::fast, [](Case& x) { x.math = Math::fast; });
  add(c.type != f32, [](Case& x) {
    x.type = f32;
    x.dq_in_16_bits = false;
    if (x.bias) x.bias->type = f32;
    if (x.dbias) x.dbias = f32;
    if (x.output_type == f32) x.output_type.reset();
  });
  add(c.distribution != Distribution::normal, [](Case& x) { x.distribution = Distribution::normal; });

  // Sizes: halved, then less one.
  add(c.h > c.h_k, [](Case& x) { x.h = x.h_k; });
  add(c.h_k > 1, [](Case& x) { x.h = x.h / x.h_k, x.h_k = 1; });
  for (const bool halve : {true, false}) {
    const auto less = [halve](std::int64_t size) { return halve ? size / 2 : size - 1; };
    for (auto lengths : {&Case::s_q, &Case::s_k})
      for (std::size_t at = 0; at < (c.*lengths).size(); ++at)
        add((c.*lengths)[at] > 1, [=](Case& x) { set_lengths(x, lengths, at, less((x.*lengths)[at])); });
    add(c.d == c.d_v && c.d > 1, [=](Case& x) { x.d = x.d_v = less(x.d); });
    add(c.d > 1, [=](Case& x) { x.d = less(x.d); });
    add(c.d_v > 1, [=](Case& x) { x.d_v = less(x.d_v); });
    add(halve && c.h_k > 0 && c.h / c.h_k > 2, [](Case& x) { x.h = x.h / x.h_k / 2 * x.h_k; });
  }
  return changes;
}

}  // namespace

Case shrink(Case failing, const std::function<bool(const Case&)>& still_fails, int most_runs) {
  for (bool simpler = true; simpler;) {
    simpler = false;
    for (const Change& change : simplifications(failing)) {
      Case candidate = failing;
      change(candidate);
      try {
        candidate.check();
      } catch (const Error&) {
        continue;
      }
      if (candidate == failing) continue;
      if (most_runs-- <= 0) return failing;
      if (!still_fails(candidate)) continue;
      failing = candidate;
      simpler = true;
      break;  // begin again with the greatest simplifications of what is left
    }
  }
  return failing;
}

}  // namespace heed::verify
