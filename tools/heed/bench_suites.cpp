#include "heed/bench_suites.hpp"

#include <array>
#include <fmt/format.h>

namespace heed::command {
namespace {

/// FlashAttention's table: 16384 tokens in sequences of 512 to 16384, heads * d = 2048.
std::vector<SuiteRow> fa2() {
  std::vector<SuiteRow> rows;
  for (const int d : {64, 128})
    for (const bool causal : {false, true})
      for (int s = 512; s <= 16384; s *= 2)
        rows.push_back({causal ? "causal" : "full", fmt::format("-b={} -h={} -s={} -d={} -mask={} -prec=bf16",
                                                                16384 / s, 2048 / d, s, d, causal ? "b" : "n")});
  return rows;
}

/// One layer's attention of models people run.
std::vector<SuiteRow> models() {
  return {
      {"Llama-3-8B prefill", "-b=1 -h=32 -h_k=8 -s=4096 -d=128 -mask=b -prec=bf16"},
      {"Llama-3-70B chunk of 512 at 8192", "-b=1 -h=64 -h_k=8 -s=512 -s_k=8192 -d=128 -mask=b -prec=bf16"},
      {"Llama-3-8B decode", "-b=16 -h=32 -h_k=8 -s=1 -s_k=4096 -d=128 -mask=b -prec=bf16"},
      {"Mistral-7B window", "-b=1 -h=32 -h_k=8 -s=8192 -d=128 -mask=b:4095,0 -prec=bf16"},
      {"Gemma-2-9B soft cap", "-b=1 -h=16 -h_k=8 -s=4096 -d=256 -mask=b -logits_soft_cap=50 -prec=bf16"},
      {"gpt-oss-20b full layer", "-b=1 -h=64 -h_k=8 -s=4096 -d=64 -mask=b -init_sink=2 -prec=bf16"},
      {"gpt-oss-20b window layer", "-b=1 -h=64 -h_k=8 -s=4096 -d=64 -mask=b:127,0 -init_sink=2 -prec=bf16"},
      {"DeepSeek-V3 prefill", "-b=1 -h=16 -s=2048 -d=192 -d_v=128 -mask=b -prec=bf16"},
      {"MPT-7B ALiBi", "-b=1 -h=32 -s=2048 -d=128 -mask=b -bias=a -prec=bf16"},
      {"BERT-base padded", "-b=8 -h=12 -s=512 -d=64 -q_eff_lens=512,384,128 -kv_eff_lens=512,384,128 -prec=fp32"},
      {"T5-base encoder bias", "-b=4 -h=12 -s=512 -d=64 -scale_s=1 -bias=e:1 -prec=fp32"},
      {"ViT-H/14", "-b=8 -h=16 -s=257 -d=80 -layout=qkvpacked -prec=fp32"},
      {"SigLIP-SO400M", "-b=4 -h=16 -s=729 -d=72 -layout=qkvpacked -prec=fp16"},
      {"Whisper-large encoder", "-b=1 -h=20 -s=1500 -d=64 -prec=fp16"},
      {"Stable Diffusion 1.5, 64 x 64", "-b=2 -h=8 -s=4096 -d=40 -prec=fp16"},
  };
}

/// One query against 134 to 268 MB of K and V, which no cache holds.
std::vector<SuiteRow> decode() {
  std::vector<SuiteRow> rows;
  for (const char* type : {"fp32", "bf16", "fp16"}) {
    rows.push_back(
        {"1 query head per K/V head", fmt::format("-b=1 -h=32 -h_k=32 -s=1 -s_k=8192 -d=128 -prec={}", type)});
    rows.push_back(
        {"2 query heads per K/V head", fmt::format("-b=4 -h=16 -h_k=8 -s=1 -s_k=8192 -d=128 -prec={}", type)});
    rows.push_back(
        {"4 query heads per K/V head", fmt::format("-b=4 -h=32 -h_k=8 -s=1 -s_k=8192 -d=128 -prec={}", type)});
    rows.push_back(
        {"8 query heads per K/V head", fmt::format("-b=4 -h=64 -h_k=8 -s=1 -s_k=8192 -d=128 -prec={}", type)});
  }
  rows.push_back({"one sequence, one K/V head", "-b=1 -h=8 -h_k=1 -s=1 -s_k=262144 -d=128 -prec=bf16"});
  rows.push_back({"4 new tokens", "-b=4 -h=32 -h_k=8 -s=4 -s_k=8192 -d=128 -mask=b -prec=bf16"});
  return rows;
}

/// What the CPU engine is judged by: f32 full and causal, short and long sequences, the 16-bit types.
std::vector<SuiteRow> cpu() {
  std::vector<SuiteRow> rows;
  const auto add = [&](const char* label, int h, int s, int d, const char* more) {
    rows.push_back({label, fmt::format("-b=1 -h={} -s={} -d={} {}", h, s, d, more)});
  };
  struct Size {
    int h, s;
  };
  for (const char* mask : {"full", "causal"})
    for (const int d : {64, 128})
      for (const auto& [h, s] : {Size{8, 1024}, Size{8, 2048}, Size{2, 4096}, Size{1, 8192}})
        add(mask, h, s, d, *mask == 'c' ? "-mask=b -prec=fp32" : "-prec=fp32");
  for (const int d : {64, 128}) {
    add("bf16", 8, 2048, d, "-prec=bf16");
    add("bf16 causal", 8, 2048, d, "-mask=b -prec=bf16");
    add("bf16 accurate", 8, 2048, d, "-prec=bf16 -math=accurate");
    add("f16", 8, 2048, d, "-prec=fp16");
    add("f16 causal", 8, 2048, d, "-mask=b -prec=fp16");
  }
  for (const int s : {128, 256, 512}) {
    add("short", 2, s, 64, "-prec=fp32");
    add("short", 2, s, 128, "-prec=fp32");
    add("short", 2, s, 128, "-prec=bf16");
  }
  return rows;
}

/// What each feature costs: its rate on visible pairs as a fraction of the plain one.
std::vector<SuiteRow> features() {
  struct Feature {
    const char* label;
    const char* arguments;
  };
  constexpr std::array kFeatures{
      Feature{"lse", "-d=128 -s=2048 -lse=1"},
      Feature{"causal", "-d=128 -s=2048 -mask=b"},
      Feature{"window of 512", "-d=128 -s=2048 -mask=b:511,0"},
      Feature{"window of 512 and 4 sink keys", "-d=128 -s=2048 -mask=b:511,0,4"},
      Feature{"bias s*s_k, f32", "-d=128 -s=2048 -bias=e -bias_prec=fp32"},
      Feature{"bias h*s*s_k, input type", "-d=128 -s=2048 -bias=e:1"},
      Feature{"bias s_k", "-d=128 -s=2048 -bias=e:k"},
      Feature{"ALiBi", "-d=128 -s=2048 -bias=a"},
      Feature{"soft cap", "-d=128 -s=2048 -logits_soft_cap=50"},
      Feature{"sink logit", "-d=128 -s=2048 -init_sink=2"},
      Feature{"dropout 0.1", "-d=128 -s=2048 -p_drop=0.1"},
      Feature{"boolean mask s*s_k", "-d=128 -s=2048 -bool_mask=e"},
      Feature{"block mask 64 x 64 (hidden blocks count)", "-d=128 -s=2048 -block_mask=64,64"},
      Feature{"d = 127", "-d=127 -s=2048"},
      Feature{"d = 80", "-d=80 -s=2048"},
      Feature{"d = 72", "-d=72 -s=2048"},
      Feature{"d = 192, d_v = 128", "-d=192 -d_v=128 -s=2048"},
      Feature{"d = 256", "-d=256 -s=2048"},
      Feature{"s = 2047", "-d=128 -s=2047"},
      Feature{"grouped heads 8/2", "-d=128 -s=2048 -h_k=2"},
      Feature{"varlen", "-d=128 -mode=1 -b=4 -s=1024,1,3000,71"},
      Feature{"logical lengths", "-d=128 -b=2 -s=2048 -q_eff_lens=1500,700 -kv_eff_lens=1500,700"},
      Feature{"bshd", "-d=128 -s=2048 -layout=bshd -operm=0"},
      Feature{"packed q, k, v", "-d=128 -s=2048 -layout=qkvpacked -operm=0"},
      Feature{"V column-major", "-d=128 -s=2048 -vlayout=c"},
      Feature{"unaligned by 1 element, gaps of 3", "-d=128 -s=2048 -align=1 -row_gap=3"},
      // Of the backward pass alone.
      Feature{"dBias of s*s_k, f32", "-d=128 -s=2048 -bias=e -bias_prec=fp32 -dbias=1"},
      Feature{"dBias of h*s*s_k, input type", "-d=128 -s=2048 -bias=e:1 -dbias=1"},
      Feature{"dBias of s_k", "-d=128 -s=2048 -bias=e:k -dbias=1"},
      Feature{"dSlopes of ALiBi", "-d=128 -s=2048 -bias=a -slope_grad=1"},
      Feature{"dSink", "-d=128 -s=2048 -init_sink=2 -sink_grad=1"},
      Feature{"gradient of the LSE", "-d=128 -s=2048 -dlse=1"},
      Feature{"deterministic", "-d=128 -s=2048 -deterministic=1"},
  };
  std::vector<SuiteRow> rows;
  for (const char* type : {"fp32", "bf16"}) {
    const std::string plain = fmt::format("plain {}", type);
    rows.push_back({plain, fmt::format("-b=1 -h=8 -d=128 -s=2048 -prec={}", type)});
    for (const Feature& each : kFeatures)
      rows.push_back({each.label, fmt::format("-b=1 -h=8 {} -prec={}", each.arguments, type), plain});
  }
  return rows;
}

const std::array kSuites{
    Suite{"fa2", "FlashAttention's table: 32 x 512 to 1 x 16384 tokens, h * d = 2048, d 64 and 128, bf16", fa2},
    Suite{"models", "attention layers of Llama, Mistral, Gemma, gpt-oss, BERT, ViT and others", models},
    Suite{"decode", "one query against a long cache, 1 to 8 query heads per K/V head", decode, true},
    Suite{"cpu", "f32 full and causal, 16-bit types, short work: what the CPU engine is judged by", cpu},
    Suite{"features", "what each feature costs, as a fraction of the plain rate", features},
};

const std::array kSweeps{
    Sweep{"seqlen", "-s from 128 to 8192", "s", {128, 256, 512, 1024, 2048, 4096, 8192}},
    Sweep{"batch", "-b from 1 to 16", "b", {1, 2, 4, 8, 16}},
    Sweep{"heads", "-h from 1 to 32", "h", {1, 2, 4, 8, 16, 32}},
    Sweep{"hdim", "-d from 16 to 512", "d", {16, 32, 40, 64, 72, 80, 96, 128, 160, 192, 256, 512}},
};

}  // namespace

std::span<const Suite> suites() { return kSuites; }
std::span<const Sweep> sweeps() { return kSweeps; }

}  // namespace heed::command
