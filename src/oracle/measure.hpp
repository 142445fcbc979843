#pragma once

#include <heed/oracle.hpp>
#include <heed/problem.hpp>

namespace heed::oracle {

/// What is written in the place of each gradient: the gradient itself, or how strongly roundings move it, to first
/// order. The last two are for tolerances; their outputs are f64.
enum class Measure : std::uint8_t {
  gradient,
  /// The root of the sum of the squares of the sizes that its terms have before anything cancels, each times
  /// (1 + |S| + |LSE|): relative errors r of the logits and of the sums before a term move it by about r times this.
  /// Where rows of an operand repeat, so that terms have the same errors, the sum of these sizes itself.
  magnitude,
  /// Likewise of its terms as they are: relative errors r of the weights P and dS, independent of each other, move it
  /// by about r times this.
  spread,
};

/// backward() with another measure.
void backward_measure(const BackwardArgs& args, const BackwardOptions& options, Measure measure);

/// Whether every row of dbias is of one query alone: of such a dbias backward() writes the rows of chosen queries.
bool bias_rows_are_own(const Problem& problem, const TensorView& dbias);

}  // namespace heed::oracle
