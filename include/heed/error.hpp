#pragma once

#include <heed/export.h>

#include <stdexcept>
#include <string>

namespace heed {

/// What kind of "no" an Error is. Unsupported is not invalid: the call makes sense, but no kernel here computes it.
enum class ErrorCode {
  invalid_argument = 1,  ///< a rule of the contract is broken; the text says which, and what would be accepted
  unsupported = 2,       ///< every engine declined; the text names each kernel and the rule that excluded it
  out_of_memory = 3,     ///< a buffer heed needs for itself could not be had
  internal = 4,          ///< a defect in heed
  device_failed = 5,     ///< a GPU or its driver failed; the text says whether this process can go on
};

/// The one exception heed throws. Checks that can be asked for their opinion (Problem::validate) return it as a value;
/// everything that acts (plan, run, forward) throws it, before anything is written.
class HEED_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text);
  ~Error() override;

  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace heed
