#include "dispatch/plan_impl.hpp"
#include "dispatch/signature.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

namespace heed::dispatch {
namespace {

std::string text(std::int64_t v) { return std::to_string(v); }
std::string text(double v) { return fmt::format("{:.9g}", v); }
std::string text(bool v) { return v ? "yes" : "no"; }
std::string text(DataType v) { return std::string(name(v)); }
std::string text(Mode v) { return std::string(enum_text(v)); }
std::string text(Math v) { return std::string(enum_text(v)); }
std::string text(Operation v) { return std::string(enum_text(v)); }
std::string text(const Mask& v) { return v.to_string(); }

std::string text(Alibi v) { return v == Alibi::none ? "none" : v == Alibi::per_head ? "[h]" : "[b, h]"; }

std::string text(const Broadcast& v) {
  return fmt::format("[{}, {}, {}, {}]", v.batch ? "b" : "1", v.head ? "h" : "1", v.query ? "s_q" : "1",
                     v.key ? "s_k" : "1");
}

std::string text(const BiasSpec& v) { return fmt::format("{} {}", name(v.type), text(v.shape)); }

std::string text(const BlockMaskSpec& v) {
  return fmt::format("blocks of {} x {}, {}", v.block_q, v.block_k, text(v.shape));
}

std::string text(const Strides& v) { return fmt::format("({}, {}, {}, {})", v.batch, v.sequence, v.head, v.dim); }

template <class T>
std::string text(const std::optional<T>& v) {
  return v ? text(*v) : "none";
}

/// Remembers the first pair that differs.
class Comparison {
 public:
  template <class T>
  void operator()(std::string_view what, const T& plan, const T& call) {
    if (difference_.empty() && !(plan == call))
      difference_ = fmt::format("{} is {}, the plan was made for {}", what, text(call), text(plan));
  }
  const std::string& difference() const { return difference_; }

 private:
  std::string difference_;
};

}  // namespace

std::string first_difference(const Problem& plan, const Problem& call) {
  if (plan == call) return {};
  Comparison compare;
  compare("the operation", plan.operation(), call.operation());
  compare("the type of q, k and v", plan.type(), call.type());
  compare("the type of o", plan.output_type(), call.output_type());
  compare("the mode", plan.mode(), call.mode());
  compare("b", plan.batch(), call.batch());
  compare("h", plan.heads_q(), call.heads_q());
  compare("h_k", plan.heads_k(), call.heads_k());
  compare("d", plan.d(), call.d());
  compare("d_v", plan.d_v(), call.d_v());
  compare("s_q", plan.s_q(), call.s_q());
  compare("s_k", plan.s_k(), call.s_k());
  compare("the number of rows of q", plan.total_q(), call.total_q());
  compare("the number of rows of k", plan.total_k(), call.total_k());
  compare("seqlen_q given", plan.logical_q(), call.logical_q());
  compare("seqlen_k given", plan.logical_k(), call.logical_k());
  // These can be told in several ways: they differ only if putting the call's into the plan makes another problem.
  if (!(Problem(plan).mask(call.mask()) == plan)) compare("the mask", plan.mask(), call.mask());
  if (!(Problem(plan).bool_mask(call.bool_mask()) == plan))
    compare("the boolean mask", plan.bool_mask(), call.bool_mask());
  if (!(Problem(plan).block_mask(call.block_mask()) == plan))
    compare("the block mask", plan.block_mask(), call.block_mask());
  if (!(Problem(plan).bias(call.bias()) == plan)) compare("the bias", plan.bias(), call.bias());
  compare("ALiBi", plan.alibi(), call.alibi());
  compare("sink given", plan.sink(), call.sink());
  compare("the soft cap", plan.soft_cap(), call.soft_cap());
  compare("the scale", plan.scale(), call.scale());
  compare("the dropout probability", plan.dropout(), call.dropout());
  compare("randval given", plan.randval(), call.randval());
  compare("lse given", plan.lse(), call.lse());
  compare("the math", plan.math(), call.math());
  compare("the accumulation type", plan.accumulate(), call.accumulate());
  compare("deterministic", plan.deterministic(), call.deterministic());
  compare("aligned", plan.aligned(), call.aligned());
  compare("the type of dq, dk and dv", plan.gradient_type(), call.gradient_type());
  compare("d_lse given", plan.d_lse(), call.d_lse());
  compare("the type of dbias", plan.dbias(), call.dbias());
  compare("dsink given", plan.dsink(), call.dsink());
  compare("dslopes given", plan.dslopes(), call.dslopes());
  for (const Operand operand : plan.operands())
    compare(fmt::format("(batch, sequence, head, dim) strides of {}", name(operand)), plan.strides(operand),
            call.strides(operand));
  if (!compare.difference().empty()) return compare.difference();
  return fmt::format("{} is not {}", call.to_string(), plan.to_string());
}

}  // namespace heed::dispatch
