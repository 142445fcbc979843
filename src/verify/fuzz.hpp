#pragma once

#include "verify/run.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace heed::verify {

/// Case `number` of the stream `seed`: any combination of sizes, layouts, masks, features and data that the contract
/// allows. Most are small (some ten milliseconds of oracle and engine together), a few are not. With `kinds` > 0 the
/// cases whose numbers are equal modulo `kinds` share types, head dims, layouts and features, and so the kernels that
/// are compiled for them; sizes, lengths and data are each one's own.
Case random_case(std::uint64_t seed, std::int64_t number, Operation operation = Operation::forward,
                 std::int64_t kinds = 0);

/// The simplest case, reached by halving sizes and dropping features, that still fails. Runs `still_fails` at most
/// `most_runs` times.
Case shrink(Case failing, const std::function<bool(const Case&)>& still_fails, int most_runs = 400);

struct FuzzFailure {
  std::int64_t number = 0;
  Case found, shrunk;
  Verdict verdict;  ///< of `shrunk`
  /// The complaint and the line that reproduces it.
  std::string to_string() const;
};

struct FuzzOptions {
  Operation operation = Operation::forward;
  std::uint64_t seed = 1;
  std::int64_t first = 0, cases = 1000;
  std::int64_t kinds = 0;           ///< as in random_case
  double seconds = 0;               ///< stop after this long; 0: after the last case
  int most_failures = 1;            ///< stop after so many
  std::function<bool()> stop = {};  ///< asked before each case: true ends the run
  int jobs = 1;                     ///< cases at once, each on a thread of its own
  /// What no kernel computes is counted, and is no failure: for a target that was told how to compute.
  bool may_refuse = false;
  ReferenceCache* references = nullptr;  ///< as in JudgeOptions
  /// Called before each case, by one job after the other.
  std::function<void(std::int64_t number, const Case& c, int job)> on_case = {};
};

struct FuzzResult {
  std::int64_t cases = 0;
  double seconds = 0;
  std::int64_t refused = 0;           ///< of them, where the target may
  std::vector<FuzzFailure> failures;  ///< by number; a refusal is one, too, where it may not: no combination is refused
  /// After them nothing is right any more, not even what was: the device is lost, and nothing was shrunk.
  bool target_lost = false;
};

FuzzResult fuzz(const Target& target, const FuzzOptions& options);

}  // namespace heed::verify
