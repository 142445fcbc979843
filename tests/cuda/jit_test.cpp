/// Museum 18: what goes wrong with compiled kernels on disk. The compiler is a fake, so none of this needs NVRTC.

#include "cuda/jit_fixture.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace heed::cuda::test {
namespace {

using ::testing::HasSubstr;

TEST_F(JitTest, a_kernel_is_compiled_once_and_then_comes_from_memory) {
  Jit jit(options());
  const auto first = jit.get(kernel, "sm_90a");
  EXPECT_EQ(text_of(*first), kernel.text);
  EXPECT_EQ(first->resources.registers, 42);
  EXPECT_EQ(jit.get(kernel, "sm_90a"), first);
  EXPECT_EQ(compiler.compiled, 1);
}

TEST_F(JitTest, another_process_finds_it_on_disk_with_its_resources) {
  compiled_anew(kernel);
  Jit jit(options());
  const auto found = jit.get(kernel, "sm_90a");
  EXPECT_EQ(text_of(*found), kernel.text);
  EXPECT_EQ(found->resources.registers, 42);
  EXPECT_EQ(found->resources.shared_bytes, 512);
  EXPECT_EQ(compiler.compiled, 1);
}

TEST_F(JitTest, only_the_entry_is_left_behind) {
  compiled_anew(kernel);
  EXPECT_THAT(only_file().filename().string(), ::testing::MatchesRegex("[0-9a-f]+-13\\.0\\.kernel"));
}

TEST_F(JitTest, a_changed_source_is_another_kernel) {
  compiled_anew(kernel);
  EXPECT_EQ(compiled_anew({kernel.name, kernel.text + "// changed\n"}), kernel.text + "// changed\n");
  EXPECT_EQ(compiler.compiled, 2);
}

TEST_F(JitTest, a_changed_header_is_another_kernel_also_when_it_is_reached_through_another) {
  auto changed = options();
  changed.headers[1].text = "// b, changed\n";
  EXPECT_NE(Jit(options()).source_key(kernel, "sm_90a"), Jit(changed).source_key(kernel, "sm_90a"));
}

TEST_F(JitTest, headers_that_are_not_reached_and_their_order_make_no_difference) {
  auto changed = options();
  changed.headers[2].text = "// unused, changed\n";
  std::swap(changed.headers[0], changed.headers[2]);
  EXPECT_EQ(Jit(options()).source_key(kernel, "sm_90a"), Jit(changed).source_key(kernel, "sm_90a"));
}

TEST_F(JitTest, the_name_of_a_kernel_makes_no_difference) {
  EXPECT_EQ(Jit(options()).source_key(kernel, "sm_90a"), Jit(options()).source_key({"other", kernel.text}, "sm_90a"));
}

TEST_F(JitTest, another_architecture_is_another_kernel) {
  Jit jit(options());
  jit.get(kernel, "sm_90a");
  jit.get(kernel, "sm_80");
  EXPECT_EQ(compiler.compiled, 2);
}

TEST_F(JitTest, another_version_of_the_compiler_compiles_again) {
  compiled_anew(kernel);
  compiler.version_ = {13, 1};
  compiled_anew(kernel);
  EXPECT_EQ(compiler.compiled, 2);
  compiler.version_ = {13, 0};
  compiled_anew(kernel);
  EXPECT_EQ(compiler.compiled, 2);
}

TEST_F(JitTest, a_file_cut_short_anywhere_is_built_again) {
  compiled_anew(kernel);
  const fs::path file = only_file();
  const std::string whole = content(file);
  int expected = 1;
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    put(file, whole.substr(0, size));
    EXPECT_EQ(compiled_anew(kernel), kernel.text) << size;
    EXPECT_EQ(compiler.compiled, ++expected) << size;
    EXPECT_EQ(content(file), whole) << size;
  }
}

TEST_F(JitTest, a_file_with_one_flipped_bit_is_built_again) {
  compiled_anew(kernel);
  const fs::path file = only_file();
  const std::string whole = content(file);
  int expected = 1;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    put(file, flipped);
    EXPECT_EQ(compiled_anew(kernel), kernel.text) << at;
    EXPECT_EQ(compiler.compiled, ++expected) << at;
  }
}

TEST_F(JitTest, a_file_with_something_behind_its_end_is_built_again) {
  compiled_anew(kernel);
  put(only_file(), content(only_file()) + "x");
  compiled_anew(kernel);
  EXPECT_EQ(compiler.compiled, 2);
}

TEST_F(JitTest, a_file_under_another_files_name_is_not_believed) {
  compiled_anew(kernel);
  const fs::path file = only_file();
  const KernelSource other{"other", kernel.text + "// other\n"};
  compiled_anew(other);
  for (const fs::path& each : files_in(file.parent_path()))
    if (each != file) fs::copy_file(file, each, fs::copy_options::overwrite_existing);
  EXPECT_EQ(compiled_anew(other), other.text);
}

TEST_F(JitTest, without_a_folder_everything_is_in_memory) {
  auto none = options();
  none.cache_folder.clear();
  Jit jit(none);
  jit.get(kernel, "sm_90a");
  EXPECT_EQ(text_of(*jit.get(kernel, "sm_90a")), kernel.text);
  EXPECT_EQ(compiler.compiled, 1);
}

TEST_F(JitTest, a_folder_that_cannot_be_made_is_no_error) {
  put(folder.path() / "cache", "a file where the folder should be");
  EXPECT_EQ(compiled_anew(kernel), kernel.text);
  EXPECT_EQ(compiled_anew(kernel), kernel.text);
  EXPECT_EQ(compiler.compiled, 2);
}

TEST_F(JitTest, a_folder_that_cannot_be_written_still_serves_what_it_has) {
  auto sealed = options();
  compiled_anew(kernel);
  // Also for root, to whom permissions mean nothing: no new name fits here.
  sealed.cache_folder = "/proc/self/fd";
  EXPECT_EQ(text_of(*Jit(sealed).get(kernel, "sm_90a")), kernel.text);
  fs::permissions(folder.path() / "cache", fs::perms::owner_read | fs::perms::owner_exec);
  compiled_anew(kernel);
  EXPECT_EQ(compiler.compiled, 2);
  fs::permissions(folder.path() / "cache", fs::perms::owner_all);
}

/// Runs `act` in a child of this process and returns its exit code.
int in_child(const std::function<void()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      act();
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    } catch (...) {
      _exit(2);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(JitTest, a_full_disk_leaves_no_half_written_file) {
  EXPECT_EQ(in_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{100, 100};  // bytes that a file may have: writing stops in the middle
              setrlimit(RLIMIT_FSIZE, &limit);
              EXPECT_EQ(compiled_anew(kernel), kernel.text);
            }),
            0);
  EXPECT_TRUE(files_in(folder.path() / "cache").empty());
  EXPECT_EQ(compiled_anew(kernel), kernel.text);
  only_file();
}

TEST_F(JitTest, the_warning_about_a_bad_folder_is_one_line_and_only_on_request) {
  put(folder.path() / "cache", "a file where the folder should be");
  ::testing::internal::CaptureStderr();
  compiled_anew(kernel);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  const Environment log("HEED_LOG", "1");
  ::testing::internal::CaptureStderr();
  Jit jit(options());
  jit.get(kernel, "sm_90a");
  jit.get(kernel, "sm_80");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::MatchesRegex("heed: kernel cache [^\n]*: Not a directory; [^\n]*\n"));
}

TEST_F(JitTest, an_error_leaves_nothing_behind_and_is_not_remembered) {
  Jit jit(options());
  const KernelSource broken{"broken", "error"};
  for (int time = 1; time <= 2; ++time) {
    EXPECT_THAT(error_from([&] { jit.get(broken, "sm_90a"); }).what(), HasSubstr("it does not compile"));
    EXPECT_EQ(compiler.compiled, time);
  }
  EXPECT_TRUE(files_in(folder.path() / "cache").empty());
  EXPECT_EQ(text_of(*jit.get(kernel, "sm_90a")), kernel.text);
}

TEST_F(JitTest, eight_processes_at_once_compile_each_kernel_once) {
  compiler.takes = std::chrono::milliseconds(100);
  constexpr int kProcesses = 8, kKernels = 3;
  std::array<pid_t, kProcesses> children{};
  for (pid_t& child : children) {
    child = fork();
    if (child != 0) continue;
    bool right = true;
    for (int i = 0; i < kKernels; ++i) {
      const KernelSource mine{"k" + std::to_string(i), kernel.text + std::to_string(i)};
      right = right && compiled_anew(mine) == mine.text;
    }
    _exit(right ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(content(folder.path() / "journal").size(), std::size_t{kKernels});
  EXPECT_EQ(files_in(folder.path() / "cache").size(), std::size_t{kKernels});
}

TEST_F(JitTest, a_process_killed_while_it_compiles_stops_nobody) {
  compiler.takes = std::chrono::seconds(60);
  const pid_t child = fork();
  if (child == 0) {
    compiled_anew(kernel);
    _exit(0);
  }
  while (content(folder.path() / "journal").empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  compiler.takes = {};
  EXPECT_EQ(compiled_anew(kernel), kernel.text);
  only_file();
}

TEST_F(JitTest, ptx_is_asked_for_where_the_architecture_is_virtual) {
  struct Asked : FakeCompiler {
    Output compile(const Input& input) const override {
      to_ptx = input.to_ptx;
      return FakeCompiler::compile(input);
    }
    mutable bool to_ptx = false;
  } asked;
  auto with = options();
  with.compiler = [&] { return &asked; };
  Jit(with).get(kernel, "compute_80");
  EXPECT_TRUE(asked.to_ptx);
  Jit(with).get(kernel, "sm_80");
  EXPECT_FALSE(asked.to_ptx);
}

}  // namespace
}  // namespace heed::cuda::test
