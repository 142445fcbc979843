#pragma once

#include "cuda/jit.hpp"

#include <heed/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <thread>

namespace heed::cuda::test {

namespace fs = std::filesystem;

/// A folder of its own for each test, removed at its end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "heed-cuda-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code error;
    fs::permissions(path_, fs::perms::owner_all, error);
    fs::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Sets an environment variable, and puts back what was there.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// "Compiles" a text to itself and counts, also across processes: every compilation adds a byte to `journal`.
class FakeCompiler : public Compiler {
 public:
  explicit FakeCompiler(fs::path journal = {}) : journal_(std::move(journal)) {}

  NvrtcVersion version() const override { return version_; }
  Output compile(const Input& input) const override {
    ++compiled;
    if (!journal_.empty()) std::ofstream(journal_, std::ios::app) << '.';
    std::this_thread::sleep_for(takes);
    if (input.text.find("error") != input.text.npos) throw Error(ErrorCode::internal, "it does not compile");
    const auto bytes = std::as_bytes(std::span(input.text));
    return {{bytes.begin(), bytes.end()}, "ptxas info    : Used 42 registers, used 1 barriers, 512 bytes smem\n"};
  }

  NvrtcVersion version_{13, 0};
  std::chrono::milliseconds takes{0};
  mutable std::atomic<int> compiled = 0;

 private:
  fs::path journal_;
};

inline std::string text_of(const CompiledKernel& kernel) {
  return {reinterpret_cast<const char*>(kernel.cubin.data()), kernel.cubin.size()};
}

inline std::string content(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void put(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

inline std::vector<fs::path> files_in(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> list;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) list.push_back(*it);
  return list;
}

/// The error that `act` throws.
inline Error error_from(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::internal, "no error was thrown"};
}

/// A cache folder that does not exist yet, a fake compiler, and one kernel.
class JitTest : public ::testing::Test {
 protected:
  JitOptions options() const {
    return {.cache_folder = folder.path() / "cache",
            .pack = {},
            .headers = {{"a.cuh", "#include \"b.cuh\"\n"}, {"b.cuh", "// b\n"}, {"unused.cuh", "// unused\n"}},
            .compiler = [this] { return &compiler; }};
  }
  /// As a new process would: nothing in memory.
  std::string compiled_anew(const KernelSource& source) const { return text_of(*Jit(options()).get(source, "sm_90a")); }
  fs::path only_file() const {
    const auto files = files_in(folder.path() / "cache");
    EXPECT_EQ(files.size(), 1u);
    return files.at(0);
  }

  const TemporaryFolder folder;
  FakeCompiler compiler{folder.path() / "journal"};
  const KernelSource kernel{"example", "#include \"a.cuh\"\nextern \"C\" __global__ void heed_kernel() {}\n"};
};

}  // namespace heed::cuda::test
