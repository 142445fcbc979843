#include "cuda/forward_params.hpp"

#include "core/sequences.hpp"
#include "core/soft_cap.hpp"

#include <heed/philox.hpp>

#include <algorithm>
#include <cmath>

namespace heed::cuda {
namespace {

using kernels::MaskParams;
using kernels::Steps;

constexpr double kLog2e = 1.4426950408889634;

Steps steps(const Strides& s) { return {s.batch, s.head, s.sequence, s.dim}; }
Steps steps(const core::ScoreStrides& s) { return {s.batch, s.head, s.query, s.key}; }

kernels::Indices indices(const TensorView& view) {
  if (!view.given()) return {};
  return {view.data, view.stride(0), view.type == DataType::i64 ? 1 : 0};
}

int cut(std::int64_t side) {
  constexpr std::int64_t kMost = MaskParams::kUnlimited;
  return static_cast<int>(std::clamp(side, -kMost, kMost));
}

/// soft_cap * log2(e) * tanh(x * scale / soft_cap) as a polynomial of x; returns up to which x, where `upto` is the
/// limit of the one of tanh. 0 where squares and terms are no proper floats: nothing is below it.
template <std::size_t kTerms>
float set_terms_of_cap(const kernels::ForwardParams& p, float (&terms)[kTerms], const float (&of_tanh)[kTerms],
                       float upto) {
  const double part = static_cast<double>(p.scale) / p.soft_cap;
  double factor = p.soft_cap * kLog2e * part;
  for (std::size_t i = 0; i < kTerms; ++i, factor *= part * part) terms[i] = static_cast<float>(factor * of_tanh[i]);
  constexpr double kMost = 1e15;
  const double limit = upto / std::abs(part);
  const float last = std::abs(terms[kTerms - 1]);
  return limit < kMost && last > 1e-37f && std::isfinite(last) ? static_cast<float>(limit) : 0.0f;
}
MaskParams mask_params(const Mask& mask) {
  const auto side = [&](std::int64_t value) {
    return mask.kind() != Mask::Kind::raw && value < 0 ? MaskParams::kUnlimited : cut(value);
  };
  const int kind = mask.kind() == Mask::Kind::none           ? MaskParams::kNone
                   : mask.kind() == Mask::Kind::top_left     ? MaskParams::kTopLeft
                   : mask.kind() == Mask::Kind::bottom_right ? MaskParams::kBottomRight
                                                             : MaskParams::kRaw;
  // Row i of a raw mask sees the keys from i - y + 1 to i + x - 1. Where those are none for any row, kernels are told
  // of windows that end before the first key: of one whose end lies below its beginning they would count blocks.
  if (mask.kind() == Mask::Kind::raw && mask.left() < 2 - mask.right()) return {kind, 0, -MaskParams::kUnlimited, 0};
  return {kind, side(mask.left()), side(mask.right()), cut(mask.sink())};
}

/// Which sides of the diagonal the mask looks at, for any of the problem's sequences.
kernels::MaskShape mask_shape(const Problem& problem) {
  const Mask& mask = problem.mask();
  if (mask.hides_nothing()) return kernels::MaskShape::none;
  // Row i of a raw mask sees from key i - y + 1 on: from the first one, if y is at least the number of rows.
  const bool no_left = mask.kind() == Mask::Kind::raw ? mask.left() >= problem.s_q() : mask.left() < 0;
  return no_left ? kernels::MaskShape::right : kernels::MaskShape::window;
}

}  // namespace

void set_polynomials_of_cap(kernels::ForwardParams& p) {
  p.cap_near = set_terms_of_cap(p, p.cap_terms, kernels::kTanhTerm, kernels::kTanhNear);
  p.cap_small = set_terms_of_cap(p, p.cap_small_terms, kernels::kTanhSmallTerm, kernels::kTanhSmall);
}

kernels::Element element_of(DataType type) {
  return type == DataType::f32   ? kernels::Element::f32
         : type == DataType::f16 ? kernels::Element::f16
                                 : kernels::Element::bf16;
}

kernels::ForwardFeatures features_of(const Problem& problem) {
  kernels::ForwardFeatures features;
  features.mask = mask_shape(problem);
  features.own_lengths = problem.mode() == Mode::group || problem.logical_q() || problem.logical_k();
  features.keep = problem.bool_mask().has_value();
  features.blocks = problem.block_mask().has_value();
  features.negative_scale = problem.scale() < 0;
  features.soft_cap = problem.soft_cap() > 0;
  if (problem.bias())
    features.bias = problem.bias()->type == DataType::f32 ? kernels::BiasType::f32 : kernels::BiasType::as_input;
  features.alibi = problem.alibi() != Alibi::none;
  features.sink = problem.sink();
  features.dropout = problem.dropout() > 0;
  return features;
}

bool has_narrow_bias(const Problem& problem) {
  return features_of(problem).bias == kernels::BiasType::as_input && problem.bias()->shape.key &&
         problem.s_k() % 2 == 0;
}

kernels::ForwardParams forward_params(const dispatch::ForwardCall& call) {
  const Problem& problem = call.problem;
  const ForwardArgs& args = call.args;
  const bool group = problem.mode() == Mode::group;
  kernels::ForwardParams p{};
  p.q = args.q.data;
  p.k = args.k.data;
  p.v = args.v.data;
  p.o = args.o.data;
  p.q_steps = steps(problem.strides(Operand::q));
  p.k_steps = steps(problem.strides(Operand::k));
  p.v_steps = steps(problem.strides(Operand::v));
  p.o_steps = steps(problem.strides(Operand::o));
  if (args.lse.given()) {
    const core::LseStrides lse = core::lse_strides(args.lse);
    p.lse = static_cast<float*>(args.lse.data);
    p.lse_steps = {lse.batch, lse.head, lse.row, 0};
  }

  p.batch = static_cast<int>(problem.batch());
  p.heads = static_cast<int>(problem.heads_q());
  p.group = static_cast<int>(problem.heads_k() == 0 ? 1 : problem.heads_q() / problem.heads_k());
  p.d = static_cast<int>(problem.d());
  p.d_v = static_cast<int>(problem.d_v());
  p.s_q = static_cast<int>(group ? problem.total_q() : problem.s_q());
  p.s_k = static_cast<int>(group ? problem.total_k() : problem.s_k());
  p.longest_q = static_cast<int>(problem.s_q());
  p.longest_k = static_cast<int>(problem.s_k());
  p.start_q = indices(args.seqstart_q);
  p.start_k = indices(args.seqstart_k);
  p.length_q = indices(args.seqlen_q);
  p.length_k = indices(args.seqlen_k);
  p.mask = mask_params(problem.mask());

  p.scale = static_cast<float>(problem.scale());
  p.scale_log2 = static_cast<float>(problem.scale() * kLog2e);
  if (problem.soft_cap() > 0) {
    p.soft_cap = core::soft_cap_in_f32(problem.soft_cap());
    set_polynomials_of_cap(p);
  }

  if (args.bias.given()) {
    p.bias = args.bias.data;
    p.bias_steps = steps(core::broadcast_strides(args.bias));
  }
  if (args.alibi_slopes.given()) {
    const core::SlopeStrides slopes = core::alibi_strides(args.alibi_slopes);
    p.slopes = static_cast<const float*>(args.alibi_slopes.data);
    p.slope_steps = {slopes.batch, slopes.head, 0, 0};
  }
  if (args.sink.given()) {
    p.sink = static_cast<const float*>(args.sink.data);
    p.sink_step = args.sink.stride(0);
  }
  if (args.bool_mask.given()) {
    p.keep = static_cast<const unsigned char*>(args.bool_mask.data);
    p.keep_steps = steps(core::broadcast_strides(args.bool_mask));
  }
  p.block_q = p.block_k = 1;
  if (args.block_mask.keep.given()) {
    constexpr std::int64_t kWholeRow = 1 << 30;  // larger blocks than any length here: one block
    p.blocks = static_cast<const unsigned char*>(args.block_mask.keep.data);
    p.block_steps = steps(core::broadcast_strides(args.block_mask.keep));
    p.block_q = static_cast<int>(std::min(args.block_mask.block_q, kWholeRow));
    p.block_k = static_cast<int>(std::min(args.block_mask.block_k, kWholeRow));
  }

  const Dropout& dropout = args.dropout;
  if (dropout.p > 0 || dropout.randval.given()) {
    p.drop_threshold = dropout_threshold(dropout.p);
    p.drop_scale = static_cast<float>(1.0 / (1.0 - dropout.p));
    p.drop_seed = dropout.seed;
    p.drop_offset = dropout.offset;
    if (dropout.state.given()) {
      p.drop_state = static_cast<const unsigned long long*>(dropout.state.data);
      p.drop_state_step = dropout.state.stride(0);
    }
  }
  if (dropout.randval.given()) {
    p.randval = static_cast<unsigned short*>(dropout.randval.data);
    p.randval_steps = steps(core::broadcast_strides(dropout.randval));
  }
  return p;
}

}  // namespace heed::cuda
