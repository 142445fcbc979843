// Nothing hidden: which kernel runs, why, and why not each of the others; and what a refusal looks like.
#include "example.hpp"

int main() {
  example::Checks checks;
  const auto problem = heed::Problem::forward()
                           .type(heed::bf16)
                           .batch(1)
                           .heads(32, 8)
                           .lengths(4096, 4096)
                           .head_dims(128)
                           .mask(heed::Mask::causal());

  // As a text for people, as JSON for programs, or as the values themselves.
  const heed::Explanation explanation = heed::explain(problem);
  std::puts(explanation.to_string().c_str());
  checks.expect(explanation.chosen() != nullptr, "a kernel was chosen");
  bool all_told = true;
  for (const auto& candidate : explanation.candidates)
    all_told = all_told && !candidate.reason.empty() && (candidate.chosen || !candidate.rule.empty());
  checks.expect(all_told, "every other kernel is listed with the rule that excluded it");
  checks.expect(heed::plan(problem).kernel() == explanation.chosen()->kernel.name, "a plan takes the same kernel");

  // A context of its own can be held to a lower level, for example to see what older machines would do.
  heed::Context old_machine({.max_cpu_isa = "baseline"});
  checks.expect(old_machine.explain(problem).chosen()->kernel.arch == "baseline", "no level above the one allowed");

  // A kernel can be asked for by name. If it cannot compute the problem, the answer is the rule it breaks, and never
  // another kernel.
  for (const heed::KernelInfo& kernel : old_machine.kernels("baseline/fwd_rows*")) {
    try {
      old_machine.plan(problem, {.kernel = kernel.name});
      checks.expect(false, kernel.name + " is refused: it is for few query rows");
    } catch (const heed::Error& error) {
      checks.expect(error.code() == heed::ErrorCode::unsupported, error.what());
    }
  }

  // What no kernel computes is "unsupported", which is not "invalid": every kernel says why not.
  try {
    heed::plan(heed::Problem(problem).type(heed::DataType::fp8_e4m3));
    checks.expect(false, "8-bit inputs are refused");
  } catch (const heed::Error& error) {
    checks.expect(error.code() == heed::ErrorCode::unsupported, error.what());
  }
  return checks.exit_code();
}
