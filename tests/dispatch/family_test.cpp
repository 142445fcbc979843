// A family made from beginning to end outside of the library: what a new kind of problem (softmax, GEMM, a norm) adds.
#include "dispatch/family.hpp"

#include "dispatch/fakes.hpp"
#include "dispatch/forward_family.hpp"
#include "dispatch/wildcard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <vector>

namespace heed::dispatch {
namespace {

using heed::testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;

// 1. The problem: a value with a text.
struct RowSoftmax {
  DataType type = DataType::f32;
  std::int64_t rows = 1, columns = 1;

  std::string to_string() const { return fmt::format("softmax {} {} x {}", heed::name(type), rows, columns); }
};

// 2. What a kernel computes and how, and the class that engines implement.
struct RowSoftmaxSignature {
  Set<DataType> types;
  Sizes columns = any;
};

class RowSoftmaxKernel : public Kernel {
 public:
  RowSoftmaxKernel(const Arch& arch, std::string_view stem, const RowSoftmaxSignature& what)
      : Kernel(arch, stem), signature(what) {}

  virtual double expected_seconds(const RowSoftmax& problem) const = 0;
  virtual void run(const RowSoftmax& problem, float* data) const = 0;

  std::string_view family() const override { return "row-softmax"; }
  std::string signature_text() const override {
    return fmt::format("{}, columns {}", signature.types.to_string(), signature.columns.to_string());
  }
  std::string algorithm_text() const override { return "rows one after the other"; }
  nlohmann::ordered_json signature_json() const override { return {{"types", signature.types.to_string()}}; }
  nlohmann::ordered_json algorithm_json() const override { return nlohmann::ordered_json::object(); }

  const RowSoftmaxSignature signature;
};

// 3. The rules, and the family.
using SoftmaxRule = Rule<RowSoftmax, RowSoftmaxKernel>;

constexpr SoftmaxRule kSoftmaxTypes{"types", "a kernel reads the types it was written for",
                                    [](const RowSoftmax& p, const RowSoftmaxKernel& k) -> std::optional<std::string> {
                                      if (k.signature.types.has(p.type)) return std::nullopt;
                                      return fmt::format("the rows are {}", heed::name(p.type));
                                    }};
constexpr SoftmaxRule kSoftmaxColumns{"columns", "a row must fit into the registers",
                                      [](const RowSoftmax& p, const RowSoftmaxKernel& k) -> std::optional<std::string> {
                                        if (k.signature.columns.has(p.columns)) return std::nullopt;
                                        return fmt::format("a row has {} columns", p.columns);
                                      }};
constexpr std::array kSoftmaxRules{kSoftmaxTypes, kSoftmaxColumns};
constexpr Family<RowSoftmax, RowSoftmaxKernel> kSoftmaxFamily{"row-softmax", kSoftmaxRules};

// 4. An engine's kernels.
class PlainSoftmax final : public RowSoftmaxKernel {
 public:
  PlainSoftmax(std::string_view stem, const RowSoftmaxSignature& what, double seconds_per_entry)
      : RowSoftmaxKernel(CpuIsa::baseline, stem, what), seconds_per_entry_(seconds_per_entry) {}

  double expected_seconds(const RowSoftmax& p) const override {
    return seconds_per_entry_ * static_cast<double>(p.rows) * static_cast<double>(p.columns);
  }
  void run(const RowSoftmax& p, float* data) const override {
    for (std::int64_t row = 0; row < p.rows; ++row, data += p.columns) {
      float sum = 0;
      for (std::int64_t i = 0; i < p.columns; ++i) sum += data[i] = std::exp(data[i]);
      for (std::int64_t i = 0; i < p.columns; ++i) data[i] /= sum;
    }
  }

 private:
  double seconds_per_entry_;
};

Registry softmax_and_attention() {
  Registry registry;
  registry.add(std::make_shared<PlainSoftmax>("softmax", RowSoftmaxSignature{.types = {f32, bf16}}, 2e-9));
  registry.add(
      std::make_shared<PlainSoftmax>("softmax_short", RowSoftmaxSignature{.types = {f32}, .columns = up_to(64)}, 1e-9));
  registry.add(std::make_shared<heed::testing::FakeKernel>(heed::testing::FakeSpec{}));
  return registry;
}

TEST(Family, of_another_kind_of_problem_selects_and_runs_in_the_same_registry) {
  const Registry registry = softmax_and_attention();
  const RowSoftmax problem{f32, 2, 2};
  const auto kernel = kSoftmaxFamily.select(registry, problem, {});
  EXPECT_EQ(kernel->name(), "cpu/baseline/softmax_short");
  std::vector<float> data{0, 0, 1, 1};
  kernel->run(problem, data.data());
  EXPECT_EQ(data, std::vector<float>(4, 0.5F));
  EXPECT_EQ(kSoftmaxFamily.select(registry, {f32, 1, 65}, {})->name(), "cpu/baseline/softmax");
}

TEST(Family, explains_by_its_own_rules_and_leaves_other_families_out) {
  const std::string text = kSoftmaxFamily.explain(softmax_and_attention(), {f32, 1, 100}, {}).to_string();
  EXPECT_THAT(text, HasSubstr("problem     softmax f32 1 x 100\n"));
  EXPECT_THAT(text, HasSubstr("kernel      cpu/baseline/softmax\n"));
  EXPECT_THAT(text, HasSubstr("columns   a row has 100 columns; a row must fit into the registers"));
  EXPECT_THAT(text, Not(HasSubstr("fwd_fake")));
}

TEST(Family, refuses_in_the_same_words_as_every_other) {
  const auto error = error_of([] { kSoftmaxFamily.select(softmax_and_attention(), {f16, 1, 1}, {}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::unsupported);
  EXPECT_STREQ(error->what(),
               "not supported: softmax f16 1 x 1.\n"
               "  cpu/baseline/softmax         types   the rows are f16; a kernel reads the types it was written for\n"
               "  cpu/baseline/softmax_short   types   the rows are f16; a kernel reads the types it was written for");
}

TEST(Family, does_not_run_a_kernel_of_another_one_by_name) {
  const Registry registry = softmax_and_attention();
  const auto error = error_of([&] { kSoftmaxFamily.select(registry, {}, {.kernel = "cpu/baseline/fwd_fake"}); });
  ASSERT_TRUE(error);
  EXPECT_STREQ(error->what(),
               "cpu/baseline/fwd_fake is a kernel of the family forward, the problem is one for row-softmax.");
  const auto problem = Problem::forward().type(f32);
  EXPECT_TRUE(error_of([&] { kForwardFamily.select(registry, problem, {.kernel = "cpu/baseline/softmax"}); }));
  EXPECT_EQ(kForwardFamily.select(registry, problem, {})->name(), "cpu/baseline/fwd_fake");
}

TEST(Family, is_listed_filtered_and_exported_like_every_other) {
  const Registry registry = softmax_and_attention();
  EXPECT_EQ(registry.filter("softmax").size(), 2u);
  EXPECT_EQ(registry.find("cpu/baseline/softmax")->info().family, "row-softmax");
  EXPECT_EQ(registry.to_json("softmax_short")["kernels"][0]["family"], "row-softmax");
}

}  // namespace
}  // namespace heed::dispatch
