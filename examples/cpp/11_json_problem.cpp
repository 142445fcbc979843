// A Problem is a value: compare it, use it as a key, write it down as JSON, read it back elsewhere.
#include "example.hpp"

#include <unordered_map>

int main() {
  example::Checks checks;
  const auto problem = heed::Problem::forward()
                           .type(heed::bf16)
                           .batch(4)
                           .heads(32, 8)
                           .lengths(1, 8192)
                           .head_dims(128)
                           .layout(heed::Layout::bhsd)
                           .mask(heed::Mask::causal())
                           .lse(true);
  const std::string json = problem.to_json();
  std::puts(json.c_str());
  const heed::Problem read_back = heed::Problem::from_json(json);
  checks.expect(read_back == problem, "what is read back is equal");
  checks.expect(heed::plan(read_back).kernel() == heed::plan(problem).kernel(), "and runs on the same kernel");

  // Equal problems have equal hashes, however they were told: here the strides instead of the layout's name.
  heed::Problem by_strides = problem;
  by_strides.layout(heed::Layout::bshd);
  for (const heed::Operand operand : {heed::Operand::q, heed::Operand::k, heed::Operand::v, heed::Operand::o})
    by_strides.strides(operand, problem.strides(operand));
  std::unordered_map<heed::Problem, int> calls;
  ++calls[problem];
  ++calls[by_strides];
  checks.expect(calls.size() == 1 && calls[problem] == 2, "one problem told in two ways is one key");

  // Keys may be left out: then they have the builder's defaults. A wrong one is named, with those that there are.
  const auto small = heed::Problem::from_json(R"({"type": "f32", "heads_q": 6, "s_q": 10, "s_k": 10})");
  checks.expect(small.heads_k() == 6 && small.d() == 64, "what is left out has its default");
  try {
    heed::Problem::from_json(R"({"type": "f32", "seqlen": 10})");
    checks.expect(false, "an unknown key is refused");
  } catch (const heed::Error& error) {
    checks.expect(true, error.what());
  }

  // Whether it makes sense is another question, answered as a value.
  const auto error = heed::Problem(small).heads(6, 4).validate();
  checks.expect(error.has_value(), error ? error->what() : "6 heads on 4 are invalid");

  // The least that a problem costs, for roof lines and progress bars.
  const heed::Work work = heed::work_of(problem);
  checks.expect(work.visible_pairs == 4.0 * 32 * 8192 && work.flops == 2 * work.visible_pairs * 256,
                std::to_string(work.flops * 1e-9) + " GFlop, " + std::to_string(work.bytes * 1e-6) + " MB");
  return checks.exit_code();
}
