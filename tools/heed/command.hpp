#pragma once

#include <stdexcept>
#include <string>
#include <vector>

/// The command `heed`: one file per subcommand; this is what they share.
namespace heed::command {

/// What the process tells its caller. Nothing else is ever returned.
enum ExitCode : int {
  kValid = 0,        ///< done, and the result is right where it was checked
  kWrong = 1,        ///< a result is wrong
  kUsage = 2,        ///< the arguments make no sense
  kUnsupported = 3,  ///< they make sense, but nothing here computes that
};

using Words = std::vector<std::string>;

/// Thrown where the arguments make no sense: the text says what was passed, the rule, and what would work.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown where they make sense but ask for what is not built, or not here.
class UnsupportedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One function per subcommand: the words behind its name in, an ExitCode out.
int run_bench(const Words& words);
int run_bwd(const Words& words);
int run_cache(const Words& words);
int run_demo(const Words& words);
int run_explain(const Words& words);
int run_fuzz(const Words& words);
int run_fwd(const Words& words);
int run_info(const Words& words);
int run_kernels(const Words& words);
int run_mask(const Words& words);
int run_replay(const Words& words);
int run_sweep(const Words& words);

}  // namespace heed::command
