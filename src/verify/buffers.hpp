#pragma once

#include "verify/case.hpp"
#include "verify/guarded_buffer.hpp"
#include "verify/shape.hpp"

#include <heed/backward.hpp>

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::verify {

/// The tensors of a Case: every one between guard bands; padding rows, gaps and everything else that is not part of the
/// problem holds NaN; outputs begin as NaN.
class Buffers {
 public:
  explicit Buffers(const Case& c, Executor* executor = nullptr);

  const Case& get_case() const { return case_; }
  /// Of a backward case: the forward half of its arguments, with o and lse as the forward pass leaves them.
  const ForwardArgs& args() const { return backward_.forward; }
  const BackwardArgs& backward_args() const { return backward_; }
  /// For tests that want something else than the Case says.
  ForwardArgs& args() { return backward_args().forward; }
  BackwardArgs& backward_args() {
    arguments_are_the_cases_ = false;
    return backward_;
  }
  /// False once somebody could have changed them. (The memory they point to is another matter: input_bytes().)
  bool arguments_are_the_cases() const { return arguments_are_the_cases_; }

  /// All memory of every tensor, guard bands included, in an order that does not change: for engines that compute
  /// elsewhere and bring back what has become of it.
  std::vector<std::span<std::byte>> memory() const;

  /// Outputs back to NaN, for another run.
  void clear_outputs();
  /// After a test has put something else into an input: what is there now is what must stay there.
  void remember_inputs();

  /// What has changed that should not have: guard bands, gaps, padding, inputs. One sentence for each tensor.
  std::vector<std::string> check_guards() const;
  /// True when every output is still as it was made: nothing has been written.
  bool outputs_untouched() const;
  /// All bytes of all outputs, to compare two runs.
  std::vector<std::byte> output_bytes() const;
  /// All bytes of all inputs.
  std::vector<std::byte> input_bytes() const;

 private:
  OutputView add(std::string_view name, DataType type, const Shape& shape);
  /// `first_element`: where the lowest element is.
  static OutputView view_of(GuardedBuffer& buffer, const Shape& shape, std::int64_t first_element);

  void make_operands(Executor& executor);
  void make_bias_and_masks();
  void make_slopes_and_sinks();
  void make_outputs();
  void allow_outputs();
  // Of a backward case.
  void run_forward(Executor& executor);
  void make_incoming_gradients(Executor& executor);
  void make_gradients();
  void make_sequences();
  void make_dropout();

  Shape lse_shape() const;
  OutputView add_indices(std::string_view name, const std::vector<std::int64_t>& values);

  Case case_;
  BackwardArgs backward_;
  bool arguments_are_the_cases_ = true;
  std::vector<std::int64_t> start_q_, start_k_;  ///< [b + 1] first physical rows; zeros in batch mode
  std::map<std::string, GuardedBuffer, std::less<>> inputs_, outputs_;
};

}  // namespace heed::verify
