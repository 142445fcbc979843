/// heed sweep: finds the fastest algorithm of the CUDA forward or backward kernels, and writes the tuning record that
/// selection uses.

#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/hopper_backward_knobs.hpp"
#include "cuda/hopper_knobs.hpp"
#include "cuda/nvrtc.hpp"
#include "heed/arguments.hpp"
#include "heed/command.hpp"
#include "heed/sweep_output.hpp"
#include "heed/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace heed::command {
namespace {

std::vector<std::string> parts(const std::string& text) {
  std::vector<std::string> list;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    list.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return list;
}

std::int64_t number(const std::string& key, const std::string& whole, std::string_view text, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most)
    bad_value(key, whole, fmt::format("'{}' is not a whole number from 1 to {}.", text, most));
  return value;
}

std::vector<SweepClass> classes(const Arguments& arguments, Operation operation) {
  std::vector<SweepClass> list;
  const std::string& dims = arguments.text("d");
  const std::string& masks = arguments.text("causal");
  for (const std::string& each : parts(dims)) {
    const std::size_t slash = each.find('/');
    SweepClass of;
    of.operation = operation;
    of.d = static_cast<int>(number("d", dims, each.substr(0, slash), 256));
    of.d_v = slash == each.npos ? of.d : static_cast<int>(number("d", dims, each.substr(slash + 1), 256));
    of.type = arguments.text("prec") == "fp16" ? DataType::f16 : DataType::bf16;
    check_tile(of);
    for (const std::string& mask : parts(masks)) {
      if (mask != "0" && mask != "1") bad_value("causal", masks, "it is 0, 1 or 0,1.");
      of.causal = mask == "1";
      list.push_back(of);
    }
  }
  return list;
}

template <class Config>
std::string knob_list(std::string_view title) {
  std::string text(title);
  for (const cuda::Knob<Config>& knob : cuda::KnobsOf<Config>::all())
    text += fmt::format("  {:<19}{} ({})\n", knob.name, knob.help, knob.values());
  return text;
}

std::string knob_lists() {
  return knob_list<kernels::HopperConfig>(
             "Knobs (-algo=name:value,... of 'heed fwd', 'explain', 'fuzz' and 'bench')\n") +
         knob_list<cuda::HopperBackwardChoice>(
             "\nKnobs of the backward pass (of 'heed bwd', and of the others with -op=bwd)\n");
}

}  // namespace

int run_sweep(const Words& words) {
  Arguments arguments(
      "heed sweep",
      "Compiles the CUDA engine's Hopper kernels of one pass with every combination of knobs that can "
      "be, checks and times each\none, ranks them, and writes the tuning record that heed chooses kernels "
      "by from then on.");
  arguments.group("What");
  arguments.option("op", "fwd", "fwd or bwd: whose kernels", {"fwd", "bwd"});
  arguments.option("d", "64,128,256", "head dims; 192/128 for a d_v of its own");
  arguments.option("causal", "0,1", "0: no mask, 1: causal");
  arguments.option("s", "512,2048,8192", "lengths; the first stands for shorter ones, too, the last for longer ones");
  arguments.option("prec", "fp16", "fp16 or bf16", {"fp16", "bf16"});
  arguments.option(
      "over", "",
      "the knobs that vary, or all; without it warpgroups, tile_k, stages, turns and lazy_maximum; -op=bwd: all");
  arguments.flag(
      "quick",
      "the tiles with the deepest rings that fit, and every other knob by itself; -op=bwd: sections with the "
      "first kernel alone");
  arguments.group("How");
  arguments.option("verify", "1", "1: check each against the oracle, 0: not", {"0", "1"});
  arguments.option("rounds", "7", "the fastest are timed once in each");
  arguments.option("finalists", "12", "how many of the first look are timed in all rounds");
  arguments.option("j", "0", "compilations at a time; 0: as many as heed has threads");
  arguments.flag("compile-only", "no GPU: list the combinations with their registers and shared memory");
  arguments.group("Output");
  arguments.option("top", "10", "rows of each ranking to print");
  arguments.option("json", "", "write everything here");
  arguments.option("md", "", "write the rankings here");
  arguments.option(
      "record", "",
      "the tuning record, whose entries for other classes stay; without it the user's (HEED_TUNING, or tuning.json in "
      "the cache folder); none: not written");
  arguments.footer(knob_lists() + R"(
Examples
  heed sweep --quick
  heed sweep -d=128 -causal=1 -s=4096 -over=stages,turns,persistence
  heed sweep -d=64 --compile-only
  heed sweep -op=bwd -d=64,128,256
  heed sweep -op=bwd -d=128 -causal=1 -s=2048,8192 -over=section
)");
  arguments.parse(words);

  const bool compile_only = arguments.boolean("compile-only");
  SweepOptions options;
  const std::string& lengths = arguments.text("s");
  for (const std::string& each : parts(lengths)) options.lengths.push_back(number("s", lengths, each, 1 << 20));
  std::sort(options.lengths.begin(), options.lengths.end());
  options.verify = arguments.text("verify") == "1";
  options.rounds = static_cast<int>(arguments.integer("rounds", 1, 1000));
  options.finalists = static_cast<int>(arguments.integer("finalists", 1, 10000));
  options.threads = static_cast<int>(arguments.integer("j", 0, 1024));
  const int top = static_cast<int>(arguments.integer("top", 1, 100000));
  const Operation operation = arguments.text("op") == "bwd" ? Operation::backward : Operation::forward;
  const SweepSpace space = sweep_space(operation, arguments.text("over"));
  if (arguments.boolean("quick") && arguments.given("over"))
    throw UsageError("--quick -over : give one of them; --quick has a choice of its own.");
  const std::vector<SweepClass> wanted = classes(arguments, operation);
  if (compile_only)
    for (const char* key : {"s", "verify", "rounds", "finalists", "top", "record"})
      if (arguments.given(key))
        bad_value(key, arguments.text(key), "is for measuring, and --compile-only measures nothing; give one of them.");
  const SweepOutput output({.json = arguments.text("json"),
                            .md = arguments.text("md"),
                            .record = compile_only ? "none" : arguments.text("record")});
  if (cuda::Nvrtc::get() == nullptr) throw UnsupportedError("sweep : " + cuda::Nvrtc::missing());
  cuda::Device device;
  device.sm = 90;
  if (!compile_only) {
    if (cuda::devices().empty())
      throw UnsupportedError(
          fmt::format("sweep : there is no GPU to measure on ({}); --compile-only needs none.",
                      cuda::Driver::missing().empty() ? "the driver shows none" : cuda::Driver::missing()));
    device = cuda::devices().front();
    if (device.sm != 90)
      throw UnsupportedError(
          fmt::format("sweep : {} is sm_{}; the knobs are those of sm_90's kernels.", device.name, device.sm));
  }

  const auto state = std::make_shared<cuda::EngineState>(device, cuda::JitOptions::from_environment());
  ThreadPool pool(0);
  SweepReport report{
      operation, fmt::format("heed sweep {}", fmt::join(arguments.given_words(), " ")), utc_now(), {}, {}};
  if (!compile_only) report.lengths = options.lengths;
  bool right = true;
  for (const SweepClass& of : wanted) {
    SweepResult result{of, {}, {}};
    SweepCandidates candidates = sweep_candidates(of, space, arguments.boolean("quick"), state);
    result.broken = std::move(candidates.broken);
    for (SweepCandidate& each : candidates.valid) result.rows.push_back({std::move(each), {}, 0, {}, {}});
    compile(result, state->jit, options);
    if (!compile_only) {
      if (options.verify) check(result, pool);
      for (const std::int64_t s : options.lengths) measure(result, s, options, pool);
    }
    for (const SweepRow& row : result.rows) right = right && !row.failed();
    report.results.push_back(std::move(result));
    output.write(report);
    fmt::print("{}", to_table({operation, {}, {}, report.lengths, {report.results.back()}}, top));
    std::fflush(stdout);
  }
  if (!output.record_path().empty()) fmt::print("tuning record: {}\n", output.record_path());
  return right ? kValid : kWrong;
}

}  // namespace heed::command
