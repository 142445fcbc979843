#include "dispatch/glob.hpp"

#include <fnmatch.h>

#include <string>

namespace heed::dispatch {

bool glob_search(std::string_view pattern, std::string_view text) {
  const std::string anywhere = "*" + std::string(pattern) + "*";
  // No escapes: a backslash in a kernel's name would be an accident. Without FNM_PATHNAME `*` also spans a slash.
  return fnmatch(anywhere.c_str(), std::string(text).c_str(), FNM_NOESCAPE | FNM_CASEFOLD) == 0;
}

}  // namespace heed::dispatch
