#include "core/backward_args.hpp"

#include "core/invalid.hpp"
#include "core/sequences.hpp"

#include <algorithm>
#include <utility>

namespace heed {

Problem Problem::of(const BackwardArgs& args, Memory memory) {
  const auto views = core::all_views(args);
  for (const core::NamedView& view : views) core::check_view(view, memory);
  const ForwardArgs forward = core::forward_half(args);
  Problem problem = Problem::backward();
  core::read_operands(forward, memory, problem);
  if (!forward.lse.given())
    throw core::invalid("lse is not given: backward attention needs the one that the forward pass wrote.");
  core::read_features(forward, problem);
  core::read_gradients(args, problem);
  if (memory == Memory::gpu)
    problem.aligned(
        core::all_aligned({forward.q, forward.k, forward.v, forward.o, args.d_o, args.dq, args.dk, args.dv}));
  if (auto error = problem.validate()) throw *std::move(error);
  core::check_memory(views, core::kBackwardOutputs);
  return problem;
}

namespace core {

std::array<NamedView, kBackwardViews> all_views(const BackwardArgs& args) {
  std::array<NamedView, kBackwardViews> views{{{"dq", args.dq},
                                               {"dk", args.dk},
                                               {"dv", args.dv},
                                               {"dbias", args.dbias},
                                               {"dsink", args.dsink},
                                               {"dslopes", args.dslopes},
                                               {"d_o", args.d_o},
                                               {"d_lse", args.d_lse}}};
  std::size_t count = kBackwardOutputs + 2;
  for (const NamedView& view : all_views(args.forward))
    if (view.name != "dropout.randval") views[count++] = view;
  return views;
}

ForwardArgs forward_half(const BackwardArgs& args) {
  ForwardArgs forward = args.forward;
  forward.dropout.randval = {};
  return forward;
}

namespace {

void check_given(std::string_view name, const TensorView& view) {
  if (!view.given()) throw invalid("{} is not given: backward attention needs d_o, dq, dk and dv.", name);
}

/// `name` has the sizes of `model`.
void check_like(std::string_view name, const TensorView& view, std::string_view model_name, const TensorView& model) {
  if (view.rank == model.rank && std::equal(view.sizes.begin(), view.sizes.begin() + view.rank, model.sizes.begin()))
    return;
  throw invalid("{} is {}: it must be {}, like {}.", name, shape_text(view), shape_text(model), model_name);
}

void read_operand_gradients(const BackwardArgs& args, Problem& problem) {
  const ForwardArgs& forward = args.forward;
  check_given("d_o", args.d_o);
  check_given("dq", args.dq);
  check_given("dk", args.dk);
  check_given("dv", args.dv);
  check_like("d_o", args.d_o, "o", forward.o);
  check_like("dq", args.dq, "q", forward.q);
  check_like("dk", args.dk, "k", forward.k);
  check_like("dv", args.dv, "v", forward.v);
  if (args.d_o.type != forward.o.type)
    throw invalid("d_o is {} where o is {}: it must be of that type.", name(args.d_o.type), name(forward.o.type));
  if (args.dk.type != args.dq.type || args.dv.type != args.dq.type)
    throw invalid("dq, dk and dv are {}, {} and {}: they must be of one type, that of q ({}).", name(args.dq.type),
                  name(args.dk.type), name(args.dv.type), name(forward.q.type));
  problem.gradient_type(args.dq.type);
  problem.strides(Operand::d_o, strides_of(args.d_o)).strides(Operand::dq, strides_of(args.dq));
  problem.strides(Operand::dk, strides_of(args.dk)).strides(Operand::dv, strides_of(args.dv));
}

/// f64 is what the oracle reads and writes; it does so throughout.
void check_gradient_type(std::string_view name, const TensorView& view, DataType type, const Problem& problem) {
  if (view.type == DataType::f64 && problem.gradient_type() == DataType::f64) return;
  if (view.type == type || view.type == DataType::f32) return;
  throw invalid("{} is {}: it must be {}.", name, heed::name(view.type),
                type == DataType::f32 ? std::string("f32") : fmt::format("f32 or {}", heed::name(type)));
}

void read_d_lse(const BackwardArgs& args, Problem& problem) {
  if (!args.d_lse.given()) return;
  check_like("d_lse", args.d_lse, "lse", args.forward.lse);
  check_gradient_type("d_lse", args.d_lse, DataType::f32, problem);
  problem.d_lse(true);
}

void read_feature_gradient(std::string_view name, const TensorView& gradient, std::string_view of_name,
                           const TensorView& of, const Problem& problem) {
  if (!of.given()) throw invalid("{0} is asked for, but there is no {1}: give {1}, or leave out {0}.", name, of_name);
  check_like(name, gradient, of_name, of);
  check_gradient_type(name, gradient, of.type, problem);
  check_separate(name, gradient);
}

}  // namespace

void read_gradients(const BackwardArgs& args, Problem& problem) {
  problem.accumulate(args.dq_accumulation).deterministic(args.deterministic);
  read_operand_gradients(args, problem);
  read_d_lse(args, problem);
  if (args.dbias.given()) {
    read_feature_gradient("dbias", args.dbias, "bias", args.forward.bias, problem);
    problem.dbias(args.dbias.type);
  }
  if (args.dsink.given()) {
    read_feature_gradient("dsink", args.dsink, "sink", args.forward.sink, problem);
    problem.dsink(true);
  }
  if (args.dslopes.given()) {
    read_feature_gradient("dslopes", args.dslopes, "alibi_slopes", args.forward.alibi_slopes, problem);
    problem.dslopes(true);
  }
}

}  // namespace core
}  // namespace heed
