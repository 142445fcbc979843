#include "cuda/kernel_pack.hpp"
#include "cuda/jit_fixture.hpp"

namespace heed::cuda::test {
namespace {

using ::testing::HasSubstr;

class KernelPackTest : public JitTest {
 protected:
  /// Compiles kernels on "another machine" and packs them.
  void make_pack(NvrtcVersion version = {13, 0}) {
    compiler.version_ = version;
    Jit jit(options());
    jit.get(kernel, "sm_90a");
    jit.get(kernel, "sm_80");
    CacheFolder there(folder.path() / "cache");
    std::vector<CacheEntry> entries;
    for (const auto& listed : there.list()) entries.push_back(*there.load(listed.entry->key));
    KernelPack::write(pack, entries);
    there.clear();
    compiler.compiled = 0;
  }
  JitOptions with_pack() const {
    auto with = options();
    with.pack = pack;
    return with;
  }
  JitOptions without_compiler(JitOptions with) const {
    with.compiler = [] { return nullptr; };
    return with;
  }
  const fs::path pack = folder.path() / "pack";
};

TEST_F(KernelPackTest, serves_a_machine_without_nvrtc) {
  make_pack();
  Jit jit(without_compiler(with_pack()));
  const auto found = jit.get(kernel, "sm_90a");
  EXPECT_EQ(text_of(*found), kernel.text);
  EXPECT_EQ(found->resources.registers, 42);
  EXPECT_TRUE(files_in(folder.path() / "cache").empty());
}

TEST_F(KernelPackTest, serves_a_machine_with_another_nvrtc_without_compiling) {
  make_pack();
  compiler.version_ = {12, 9};
  EXPECT_EQ(text_of(*Jit(with_pack()).get(kernel, "sm_80")), kernel.text);
  EXPECT_EQ(compiler.compiled, 0);
}

TEST_F(KernelPackTest, has_nothing_to_say_about_a_changed_source) {
  make_pack();
  const KernelSource changed{kernel.name, kernel.text + "// changed\n"};
  EXPECT_EQ(text_of(*Jit(with_pack()).get(changed, "sm_80")), changed.text);
  EXPECT_EQ(compiler.compiled, 1);
}

TEST_F(KernelPackTest, of_two_versions_takes_the_compilers_own_and_else_the_newest) {
  make_pack({13, 1});
  const std::string newer = content(pack);
  make_pack({12, 8});
  put(pack, content(pack) + newer);  // joined as `cat` would
  const KernelPack joined(pack);
  EXPECT_EQ(joined.keys().size(), 4u);
  const std::string key = Jit(options()).source_key(kernel, "sm_80");
  EXPECT_EQ(joined.find(key, NvrtcVersion{12, 8})->key.nvrtc, (NvrtcVersion{12, 8}));
  EXPECT_EQ(joined.find(key, NvrtcVersion{13, 0})->key.nvrtc, (NvrtcVersion{13, 1}));
  EXPECT_EQ(joined.find(key, std::nullopt)->key.nvrtc, (NvrtcVersion{13, 1}));
  EXPECT_EQ(joined.find(key, std::nullopt, 12)->key.nvrtc, (NvrtcVersion{12, 8}));
  EXPECT_FALSE(joined.find(key, std::nullopt, 11));
  EXPECT_FALSE(joined.find(std::string(64, '0'), std::nullopt));
  EXPECT_FALSE(joined.find(std::string(64, 'f'), std::nullopt));
}

TEST_F(KernelPackTest, imported_into_the_cache_serves_a_machine_without_nvrtc) {
  make_pack();
  CacheFolder cache(folder.path() / "cache");
  const KernelPack packed(pack);
  for (const EntryKey& key : packed.keys()) EXPECT_EQ(cache.store(packed.read(key)), "");
  EXPECT_EQ(text_of(*Jit(without_compiler(options())).get(kernel, "sm_90a")), kernel.text);
}

TEST_F(KernelPackTest, without_nvrtc_a_kernel_that_is_nowhere_is_an_error_that_says_where_it_was_looked_for) {
  const Error error = error_from([&] { Jit(without_compiler(options())).get(kernel, "sm_90a"); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.what(), HasSubstr("kernel example for sm_90a"));
  EXPECT_THAT(error.what(), HasSubstr((folder.path() / "cache").string()));
}

TEST_F(KernelPackTest, that_is_missing_or_damaged_is_an_error_that_names_it) {
  EXPECT_THAT(error_from([&] { KernelPack none(pack); }).what(), HasSubstr("No such file"));
  EXPECT_THAT(error_from([&] { KernelPack none(folder.path()); }).what(), HasSubstr("is not a file"));
  make_pack();
  const std::string whole = content(pack);
  put(pack, whole.substr(0, whole.size() - 1));
  EXPECT_THAT(error_from([&] { KernelPack cut(pack); }).what(), HasSubstr("is not a whole entry"));
  std::string flipped = whole;
  flipped[whole.size() - 1] = '?';
  put(pack, flipped);
  const KernelPack packed(pack);
  int damaged = 0;
  for (const EntryKey& key : packed.keys())
    damaged += std::string(error_from([&] { packed.read(key); }).what()).find("damaged") != std::string::npos;
  EXPECT_EQ(damaged, 1);
}

TEST_F(KernelPackTest, that_cannot_be_written_is_an_error) {
  EXPECT_THAT(error_from([&] { KernelPack::write(folder.path() / "no/such/folder", {}); }).what(),
              HasSubstr("cannot be written"));
}

}  // namespace
}  // namespace heed::cuda::test
