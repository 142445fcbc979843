#include "cuda/user_lines.hpp"

#include "core/invalid.hpp"

namespace heed::cuda {

UserLines UserLines::of(UserTuning& user) {
  try {
    return {tuned_lines(user.record, TunedBy::user), tuned_backward_lines(user.record, TunedBy::user)};
  } catch (const Error& error) {
    if (user.named) throw core::invalid("{}: {}", user.path.string(), error.what());
    user.ignored = error.what();
    return {};
  }
}

}  // namespace heed::cuda
