#pragma once

#include "conformance/conformance.hpp"
#include "core/float_bits.hpp"

#include <heed/error.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace heed::conformance {

inline Case small_backward() {
  Case c = small();
  c.operation = Operation::backward;
  return c;
}

/// Cases that take different ways through an engine.
inline std::vector<Case> various_backward_cases() {
  std::vector<Case> cases;
  for (Case c : various_cases()) {
    c.operation = Operation::backward;
    c.lse = true;
    c.s_k = {std::min<std::int64_t>(c.s_k[0], 700)};
    if (c.group()) c.s_k = {200, 90, 9, 0, 65};
    cases.push_back(c);
  }
  cases[4].dbias = f32;
  cases[4].dslopes = true;
  cases[5].dsink = cases[5].d_lse = true;
  return cases;
}

/// The gradients, on every engine.
class Backward : public Conformance {
 protected:
  std::vector<std::byte> gradients(const Case& c, Executor* executor = nullptr) const {
    const Buffers buffers(c);
    target(executor).backward(buffers, buffers.backward_args());
    return buffers.output_bytes();
  }
  std::vector<double> values(const Buffers& buffers, const OutputView& view) const {
    std::vector<double> result;
    const auto size = [&](int dim) { return dim < view.rank ? view.size(dim) : 1; };
    const auto step = [&](int dim) { return dim < view.rank ? view.stride(dim) : 0; };
    for (std::int64_t a = 0; a < size(0); ++a)
      for (std::int64_t b = 0; b < size(1); ++b)
        for (std::int64_t c = 0; c < size(2); ++c)
          for (std::int64_t d = 0; d < size(3); ++d)
            result.push_back(core::load(view.data, view.type, a * step(0) + b * step(1) + c * step(2) + d * step(3)));
    EXPECT_TRUE(buffers.check_guards().empty());
    return result;
  }

  /// Of both passes, with every gradient that there can be.
  void expect_both_match_oracle(Case c) const {
    c.operation = Operation::forward;
    c.lse = true;
    expect_matches_oracle(c);
    expect_matches_oracle(with_every_gradient(c));
  }
  static Case with_every_gradient(Case c) {
    c.operation = Operation::backward;
    if (c.bias) c.dbias = f32;
    c.dsink = c.sink != SinkInit::none;
    c.dslopes = c.alibi != Alibi::none;
    return c;
  }

  /// Changes the arguments of a good call and expects the refusal to speak of `word`, with nothing written.
  void expect_refused(const Case& c, const std::function<void(BackwardArgs&)>& spoil, const std::string& word) const {
    Buffers buffers(c);
    spoil(buffers.backward_args());
    buffers.remember_inputs();
    expect_error([&] { target().backward(buffers, buffers.backward_args()); }, word);
    EXPECT_TRUE(buffers.outputs_untouched()) << word;
    EXPECT_TRUE(buffers.check_guards().empty()) << word;
  }
  static void expect_error(const std::function<void()>& call, const std::string& word) {
    try {
      call();
      ADD_FAILURE() << "accepted: " << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_THAT(error.what(), testing::HasSubstr(word));
    }
  }
};

/// A sentence about the gradients of every engine.
#define BACKWARD(sentence) TEST_P(Backward, sentence)

}  // namespace heed::conformance
