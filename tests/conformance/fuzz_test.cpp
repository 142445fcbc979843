/// Random problems over the whole feature space. `heed fuzz` runs more of them.

#include "verify/fuzz.hpp"
#include "conformance/conformance.hpp"

#include <algorithm>

namespace heed::conformance {
namespace {

CONFORMANCE(random_problems_are_right) {
  const auto same_engine = [&](const Engine& engine) { return engine.choice == GetParam().choice; };
  const auto last = std::find_if(engines().rbegin(), engines().rend(), same_engine);
  const bool best = on_gpu() || GetParam().name == last->name;
  const std::int64_t cases = (best ? 2000 : 500) / sweep_step(5);
  const verify::FuzzResult result =
      verify::fuzz(target(), {.seed = 20, .cases = cases, .most_failures = 3, .references = &references()});
  for (const verify::FuzzFailure& failure : result.failures) ADD_FAILURE() << failure.to_string();
}

}  // namespace
}  // namespace heed::conformance
