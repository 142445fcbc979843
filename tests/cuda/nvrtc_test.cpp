/// The real NVRTC, which needs no GPU.

#include "cuda/nvrtc.hpp"
#include "cuda/embedded.hpp"
#include "cuda/jit_fixture.hpp"

namespace heed::cuda::test {
namespace {

using ::testing::HasSubstr;

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  }
  JitOptions options() const {
    auto all = JitOptions::from_environment();
    all.cache_folder = folder.path() / "cache";
    all.pack.clear();
    return all;
  }
  const TemporaryFolder folder;
  const KernelSource kernel{"scale", R"(#include "numbers.cuh"
extern "C" __global__ void heed_kernel(float* x) {
  __shared__ float row[256];
  row[threadIdx.x] = heed::kernels::exp2_approx(x[threadIdx.x]);
  __syncthreads();
  x[threadIdx.x] = row[255 - threadIdx.x];
})"};
};

TEST_F(NvrtcTest, tells_its_version_and_where_it_came_from) {
  EXPECT_GE(Nvrtc::get()->version(), kLeastNvrtc);
  EXPECT_TRUE(fs::exists(Nvrtc::get()->path())) << Nvrtc::get()->path();
}

TEST_F(NvrtcTest, compiles_a_kernel_with_an_embedded_header_and_reports_its_resources) {
  const auto compiled = Jit(options()).get(kernel, "sm_90a");
  EXPECT_EQ(text_of(*compiled).substr(0, 4), "\177ELF");
  EXPECT_GT(compiled->resources.registers, 0);
  EXPECT_EQ(compiled->resources.shared_bytes, 1024);
  EXPECT_EQ(compiled->resources.spill_bytes, 0);
  EXPECT_EQ(compiled->resources.local_bytes, 0);
  EXPECT_EQ(compiled->resources.remarks, "");
}

TEST_F(NvrtcTest, compiles_to_ptx_for_a_virtual_architecture) {
  const std::string ptx = text_of(*Jit(options()).get(kernel, "compute_80"));
  EXPECT_THAT(ptx, HasSubstr(".target sm_80"));
  EXPECT_THAT(ptx, HasSubstr("heed_kernel"));
}

TEST_F(NvrtcTest, reports_a_spill) {
  const KernelSource spilling{"spilling", R"(extern "C" __global__ void __launch_bounds__(1024) heed_kernel(float* x) {
  float r[200];
  #pragma unroll
  for (int i = 0; i < 200; ++i) r[i] = x[i * 1024 + threadIdx.x];
  #pragma unroll 1
  for (int n = 0; n < 100; ++n) {
    #pragma unroll
    for (int i = 0; i < 200; ++i) r[i] = r[i] * r[(i + 7) % 200] + 1.0f;
  }
  #pragma unroll
  for (int i = 0; i < 200; ++i) x[i * 1024 + threadIdx.x] = r[i];
})"};
  EXPECT_GT(Jit(options()).get(spilling, "sm_90a")->resources.spill_bytes, 0);
}

TEST_F(NvrtcTest, reports_a_serialized_wgmma) {
  const KernelSource serialized{"serialized", R"(
__device__ __noinline__ void touch(float* d) { d[0] += 1.0f; }
extern "C" __global__ void heed_kernel(float* out, unsigned long long a, unsigned long long b) {
  float d[4] = {};
  for (int i = 0; i < 4; ++i) {
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;");
    touch(d);
    asm volatile("wgmma.wait_group.sync.aligned 0;");
  }
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
})"};
  const Resources found = Jit(options()).get(serialized, "sm_90a")->resources;
  EXPECT_TRUE(found.serialized_wgmma);
  EXPECT_THAT(found.remarks, HasSubstr("serialized"));
  EXPECT_GT(found.local_bytes, 0);
}

TEST_F(NvrtcTest, an_error_shows_the_log_and_leaves_nothing_behind) {
  const Error error = error_from([&] { Jit(options()).get({"broken", "void f() { undeclared(); }\n"}, "sm_90a"); });
  EXPECT_EQ(error.code(), ErrorCode::internal);
  EXPECT_THAT(error.what(), HasSubstr("kernel broken"));
  EXPECT_THAT(error.what(), HasSubstr("broken.cu(1): error: identifier \"undeclared\" is undefined"));
  EXPECT_THAT(error.what(), HasSubstr("HEED_KEEP_SOURCE"));
  EXPECT_TRUE(files_in(folder.path() / "cache").empty());
}

TEST_F(NvrtcTest, a_long_log_is_shortened) {
  std::string text;
  for (int i = 0; i < 99; ++i) text += "int f" + std::to_string(i) + "() { return undeclared; }\n";
  const std::string what = error_from([&] { Jit(options()).get({"broken", text}, "sm_90a"); }).what();
  EXPECT_LT(what.size(), 3000u);
  EXPECT_THAT(what, HasSubstr("characters more)"));
}

TEST_F(NvrtcTest, the_source_is_kept_on_request) {
  const fs::path kept = folder.path() / "kept";
  const Environment keep("HEED_KEEP_SOURCE", kept);
  Jit(options()).get(kernel, "sm_90a");
  EXPECT_EQ(content(kept / "scale.cu"), kernel.text);
  EXPECT_THAT(content(kept / "scale.log"), HasSubstr("registers"));
  EXPECT_TRUE(fs::exists(kept / "numbers.cuh"));
  const Error error = error_from([&] { Jit(options()).get({"broken", "void f() { undeclared(); }\n"}, "sm_90a"); });
  EXPECT_THAT(error.what(), HasSubstr((kept / "broken.cu").string()));
}

TEST_F(NvrtcTest, a_file_in_the_current_folder_is_not_taken_for_ours) {
  put(folder.path() / "stray.cuh", "#error taken\n");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const Error error = error_from([&] { Jit(options()).get({"stray", "#include \"stray.cuh\"\n"}, "sm_90a"); });
  fs::current_path(before);
  EXPECT_THAT(error.what(), HasSubstr("could not open source file \"stray.cuh\""));
}

TEST_F(NvrtcTest, an_unknown_architecture_is_an_error_that_names_it) {
  EXPECT_THAT(error_from([&] { Jit(options()).get(kernel, "sm_12345"); }).what(), HasSubstr("sm_12345"));
}

TEST(Nvrtc, a_library_that_is_none_is_refused) {
  const TemporaryFolder folder;
  put(folder.path() / "libnvrtc.so.13", "not a library");
  const Error error = error_from([&] { Nvrtc::open(folder.path() / "libnvrtc.so.13"); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.what(), HasSubstr((folder.path() / "libnvrtc.so.13").string()));
  EXPECT_THAT(error_from([&] { Nvrtc::open("libc.so.6"); }).what(), HasSubstr("nvrtcVersion"));
}

TEST(NvrtcPlaces, a_named_file_or_folder_is_the_only_place) {
  const TemporaryFolder folder;
  put(folder.path() / "libnvrtc.so.12", "");
  {
    const Environment file("HEED_NVRTC_PATH", folder.path() / "libnvrtc.so.12");
    EXPECT_THAT(nvrtc_places(), ::testing::ElementsAre(folder.path() / "libnvrtc.so.12"));
  }
  const Environment whole("HEED_NVRTC_PATH", folder.path());
  EXPECT_THAT(nvrtc_places(), ::testing::ElementsAre(folder.path() / "libnvrtc.so.12"));
  EXPECT_TRUE(nvrtc_places_by_python().empty());
}

TEST(NvrtcPlaces, the_wheels_of_a_virtual_environment_come_behind_the_loader_and_the_toolkit) {
  const TemporaryFolder folder;
  const fs::path lib = folder.path() / "venv/lib/python3.12/site-packages/nvidia/cu13/lib";
  const fs::path toolkit = folder.path() / "cuda/lib64";
  fs::create_directories(lib);
  fs::create_directories(toolkit);
  put(lib / "libnvrtc.so.13", "");
  put(toolkit / "libnvrtc.so", "");
  const Environment none("HEED_NVRTC_PATH", ""), venv("VIRTUAL_ENV", folder.path() / "venv"),
      home("CUDA_HOME", folder.path() / "cuda");
  const auto places = nvrtc_places();
  const auto at = [&](const fs::path& place) {
    return std::find(places.begin(), places.end(), place) - places.begin();
  };
  EXPECT_EQ(at("libnvrtc.so.13"), 0);
  EXPECT_EQ(at(toolkit / "libnvrtc.so"), 3);
  EXPECT_LT(at(toolkit / "libnvrtc.so"), at(lib / "libnvrtc.so.13"));
  EXPECT_LT(at(lib / "libnvrtc.so.13"), static_cast<std::ptrdiff_t>(places.size()));
}

TEST(EmbeddedSources, are_the_files_of_src_kernels) {
  std::vector<std::string> names;
  for (const SourceFile& file : embedded_sources()) {
    names.emplace_back(file.name);
    EXPECT_EQ(file.text, content(fs::path(HEED_SOURCE_DIR) / "src/kernels" / file.name)) << file.name;
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"numbers.cuh", "forward_params.h"}));
}

}  // namespace
}  // namespace heed::cuda::test
