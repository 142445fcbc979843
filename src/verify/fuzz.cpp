#include "verify/fuzz.hpp"

#include <fmt/format.h>

#include <chrono>

namespace heed::verify {

std::string FuzzFailure::to_string() const {
  return fmt::format("case {}: {}\n  {}\n  as found: {}", number, verdict.to_string(), shrunk.to_command(),
                     found.to_command());
}

FuzzResult fuzz(const Target& target, const FuzzOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  FuzzResult result;
  for (std::int64_t number = options.first; number < options.first + options.cases; ++number) {
    if (options.seconds > 0 && elapsed() > options.seconds) break;
    const Case c = random_case(options.seed, number);
    if (options.on_case) options.on_case(number, c);
    ++result.cases;
    if (run_case(c, target).valid()) continue;
    const Case shrunk = shrink(c, [&](const Case& candidate) { return !run_case(candidate, target).valid(); });
    result.failures.push_back({number, c, shrunk, run_case(shrunk, target)});
    if (static_cast<int>(result.failures.size()) >= options.most_failures) break;
  }
  result.seconds = elapsed();
  return result;
}

}  // namespace heed::verify
