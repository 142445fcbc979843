#pragma once

#include <string_view>

namespace heed::dispatch {

/// Whether some part of the text matches the pattern: `*` is any run of characters, `?` any one, `[a-c]` one of these,
/// `[!a-c]` none of them. Letters match in either case; a `[` without its `]` stands for itself.
bool glob_search(std::string_view pattern, std::string_view text);

}  // namespace heed::dispatch
