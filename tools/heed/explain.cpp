/// heed explain: which kernel would run, why, and why not the others.

#include "heed/attention_arguments.hpp"
#include "heed/command.hpp"
#include "heed/problem_of.hpp"
#include "heed/run_arguments.hpp"

#include <fmt/format.h>

namespace heed::command {

int run_explain(const Words& words) {
  Arguments arguments(
      "heed explain",
      "Says which kernel would compute a problem, why it, and why not the others. Takes the arguments of "
      "'heed fwd', with\n-op=bwd those of 'heed bwd', and computes nothing: those that only a run needs are checked "
      "and change nothing.");
  const Operation operation = declare_operation(arguments, words);
  declare_problem(arguments, operation);
  declare_where(arguments);
  declare_run(arguments, JsonMeans::print_it);
  arguments.footer(R"(Examples
  heed explain -h=32 -h_k=8 -s=4096 -d=128 -mask=b -prec=bf16
  heed explain -s=1 -s_k=8192 -prec=fp32 --json
  heed explain -op=bwd -h=8 -s=2048 -d=64 -deterministic=1
  heed explain -op=bwd -d=128 -algo=tile_q:96
)");
  arguments.parse(words);
  const verify::Case problem_case = read_problem(arguments, operation);
  const Where where = read_where(arguments, operation);
  read_run(arguments);
  const auto context = make_context(where);
  const Problem problem = problem_of(problem_case, memory_of(engine_for(*context, where)));
  const Explanation explanation = context->explain(problem, plan_options(where));
  if (arguments.boolean("json")) {
    fmt::print("{}\n", explanation.to_json());
  } else {
    fmt::print("{}", explanation.to_string());
  }
  return explanation.chosen() != nullptr ? kValid : kUnsupported;
}

}  // namespace heed::command
