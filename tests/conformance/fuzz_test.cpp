/// Random problems over the whole feature space. `heed fuzz` runs more of them.

#include "verify/fuzz.hpp"
#include "conformance/conformance.hpp"

namespace heed::conformance {
namespace {

CONFORMANCE(random_problems_are_right) {
  const std::int64_t cases = (best_of_its_engine() ? 2000 : 500) / sweep_step(5);
  const verify::FuzzResult result =
      verify::fuzz(target(), {.seed = 20, .cases = cases, .most_failures = 3, .references = &references()});
  for (const verify::FuzzFailure& failure : result.failures) ADD_FAILURE() << failure.to_string();
}

}  // namespace
}  // namespace heed::conformance
