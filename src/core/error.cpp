#include <heed/error.hpp>

namespace heed {

Error::Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}

// Here rather than in the header, so that the type's identity lives in the library and crosses its border.
Error::~Error() = default;

}  // namespace heed
