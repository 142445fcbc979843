#pragma once

#include <compare>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::cuda {

/// A file as the compiler sees it: the name that an #include writes, and what stands in it.
struct SourceFile {
  std::string_view name;
  std::string_view text;
};

struct NvrtcVersion {
  int major = 0, minor = 0;

  std::string to_string() const;  ///< "13.0"
  friend constexpr auto operator<=>(const NvrtcVersion&, const NvrtcVersion&) = default;
};

inline constexpr int kAnyMajor = 1 << 30;

/// What turns a kernel's source into machine code. NVRTC does; tests have others.
class Compiler {
 public:
  struct Input {
    std::string_view name;  ///< of the kernel, for messages
    std::string_view text;
    std::span<const SourceFile> headers;
    std::span<const std::string> options;
    bool to_ptx = false;  ///< else to machine code
  };
  struct Output {
    std::vector<std::byte> code;
    std::string log;
  };

  virtual ~Compiler() = default;
  virtual NvrtcVersion version() const = 0;
  /// Throws Error with the beginning of the log when it cannot be compiled. From any thread.
  virtual Output compile(const Input& input) const = 0;
};

}  // namespace heed::cuda
