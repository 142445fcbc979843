#pragma once

#include "conformance/engines.hpp"
#include "verify/buffers.hpp"
#include "verify/case.hpp"
#include "verify/run.hpp"

#include <heed/executor.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace heed::conformance {

using verify::Buffers;
using verify::Case;
using verify::Distribution;
using verify::Packing;
using verify::SinkInit;
using verify::ZeroStride;

/// One test of every engine.
class Conformance : public testing::TestWithParam<Engine> {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override;

  Context& context() const;
  verify::Target target(Executor* executor = nullptr) const;
  /// True when the engine computes in GPU memory.
  bool on_gpu() const;
  /// False when this machine itself has a higher level of the same engine.
  bool best_of_its_engine() const;
  /// What the oracle said of this test's cases, on whichever engine it was asked first.
  static verify::ReferenceCache& references();

  /// Twice, in exactly the workspace that the plan asks for: a run leaves it as the next one needs it.
  void run_plan_twice_on_the_gpu(const Buffers& buffers) const;

  /// Runs the case and compares it with the oracle; says the command line when it is not right.
  void expect_matches_oracle(const Case& c) const;
  /// Runs what is in `buffers` and compares it with the oracle.
  void expect_matches_oracle(const Buffers& buffers, const std::string& what) const;
  /// Runs the case and returns all bytes of its outputs.
  std::vector<std::byte> run(const Case& c, Executor* executor = nullptr) const;
  /// O of the case as numbers, [row of the problem][d_v], batch entries and heads outermost.
  std::vector<double> output(const Case& c) const;
  std::vector<double> lse(const Case& c) const;
};

/// A sentence about every engine.
#define CONFORMANCE(sentence) TEST_P(Conformance, sentence)

/// A small problem to change: f32, b = 2, h = 4, h_k = 2, s = 33, s_k = 70, d = 16, normal data, with LSE.
Case small();

/// Cases that take different ways through an engine.
std::vector<Case> various_cases();

/// The name of a test without the engine.
std::string sentence_of(const testing::TestInfo& test);

/// True under HEED_TEST_SCALE=small.
bool small_scale();
/// Every step-th of a sweep is run: 1, or `thinned` under HEED_TEST_SCALE=small.
std::int64_t sweep_step(std::int64_t thinned);

}  // namespace heed::conformance
