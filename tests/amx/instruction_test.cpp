// What the assembler makes of an instruction is read back as what was written.
#include "amx/instruction.hpp"

#include <gtest/gtest.h>

namespace heed::amx {
namespace {

constexpr GeneralRegisters kRegisters = {0x1000'0000, 0x1100'0000, 0x1200'0000, 0x1300'0000, 0x1400'0000, 0x1500'0000,
                                         0x1600'0000, 0x1700'0000, 0x1800'0000, 0x1900'0000, 0x1A00'0000, 0x1B00'0000,
                                         0x1C00'0000, 0x1D00'0000, 0x1E00'0000, 0x1F00'0000};
constexpr std::uint64_t kRax = kRegisters[0], kRbx = kRegisters[3], kRsp = kRegisters[4], kRbp = kRegisters[5],
                        kR8 = kRegisters[8], kR9 = kRegisters[9], kR12 = kRegisters[12], kR13 = kRegisters[13];

/// The place of an instruction among the constants, and its length.
struct Assembled {
  const std::uint8_t* code;
  std::ptrdiff_t bytes;
};
#define ASSEMBLE(text)                                                  \
  [] {                                                                  \
    Assembled assembled;                                                \
    asm(".pushsection .rodata\n771: " text                              \
        "\n772: .popsection\n"                                          \
        "lea 771b(%%rip), %0\nlea 772b(%%rip), %1\n"                    \
        : "=r"(assembled.code), "=r"(assembled.bytes));                 \
    assembled.bytes -= reinterpret_cast<std::intptr_t>(assembled.code); \
    return assembled;                                                   \
  }()

void expect_reads(const Assembled& assembled, Instruction expected, const char* what) {
  const auto read = decode(assembled.code, kRegisters);
  ASSERT_TRUE(read) << what;
  EXPECT_EQ(read->operation, expected.operation) << what;
  EXPECT_EQ(read->bytes, assembled.bytes) << what;
  EXPECT_EQ(read->tile, expected.tile) << what;
  EXPECT_EQ(read->first, expected.first) << what;
  EXPECT_EQ(read->second, expected.second) << what;
  EXPECT_EQ(read->address, expected.address) << what;
  EXPECT_EQ(read->row_stride, expected.row_stride) << what;
}
#define EXPECT_READS(text, ...) expect_reads(ASSEMBLE(text), Instruction __VA_ARGS__, text)

void expect_leaves(const Assembled& assembled, const char* what) {
  EXPECT_FALSE(decode(assembled.code, kRegisters)) << what;
}
#define EXPECT_LEAVES(text) expect_leaves(ASSEMBLE(text), text)

TEST(Instruction, TilesOfARegisterInstructionAreRead) {
  EXPECT_READS("tilerelease", {.operation = Operation::release});
  EXPECT_READS("tilezero %%tmm0", {.operation = Operation::zero, .tile = 0});
  EXPECT_READS("tilezero %%tmm7", {.operation = Operation::zero, .tile = 7});
  EXPECT_READS("tdpbf16ps %%tmm3, %%tmm2, %%tmm1",
               {.operation = Operation::products, .tile = 1, .first = 2, .second = 3});
  EXPECT_READS("tdpbf16ps %%tmm0, %%tmm7, %%tmm5",
               {.operation = Operation::products, .tile = 5, .first = 7, .second = 0});
}

TEST(Instruction, RowsAreFoundByBaseIndexAndDisplacement) {
  using enum Operation;
  EXPECT_READS("tileloadd (%%rax,%%rbx,1), %%tmm4",
               {.operation = load, .tile = 4, .address = kRax, .row_stride = kRbx});
  EXPECT_READS("tileloaddt1 (%%rax,%%rbx,1), %%tmm4",
               {.operation = load, .tile = 4, .address = kRax, .row_stride = kRbx});
  EXPECT_READS("tilestored %%tmm6, (%%rax,%%rbx,1)",
               {.operation = store, .tile = 6, .address = kRax, .row_stride = kRbx});
  EXPECT_READS("tileloadd -64(%%rsp,%%r8,2), %%tmm0",
               {.operation = load, .tile = 0, .address = kRsp - 64, .row_stride = 2 * kR8});
  EXPECT_READS("tileloadd 0x12345(%%r12,%%rbp,4), %%tmm0",
               {.operation = load, .tile = 0, .address = kR12 + 0x12345, .row_stride = 4 * kRbp});
  EXPECT_READS("tilestored %%tmm1, -0x12345(%%r9,%%r12,8)",
               {.operation = store, .tile = 1, .address = kR9 - 0x12345, .row_stride = 8 * kR12});
  EXPECT_READS("tileloadd (%%rbp,%%r13,1), %%tmm0",
               {.operation = load, .tile = 0, .address = kRbp, .row_stride = kR13});
  EXPECT_READS("tileloadd (%%r13,%%rax,1), %%tmm0",
               {.operation = load, .tile = 0, .address = kR13, .row_stride = kRax});
}

TEST(Instruction, WithoutIndexTheStrideIsZeroAndWithoutBaseTheAddressIsTheDisplacement) {
  using enum Operation;
  EXPECT_READS("tileloadd (%%rax), %%tmm3", {.operation = load, .tile = 3, .address = kRax});
  EXPECT_READS("tileloadd 8(%%r12), %%tmm3", {.operation = load, .tile = 3, .address = kR12 + 8});
  EXPECT_READS("tileloadd 0x1234(,%%rax,8), %%tmm3",
               {.operation = load, .tile = 3, .address = 0x1234, .row_stride = 8 * kRax});
  EXPECT_READS("tileloadd -16(,%%r12,1), %%tmm3",
               {.operation = load, .tile = 3, .address = std::uint64_t{0} - 16, .row_stride = kR12});
}

TEST(Instruction, AConfigurationMayLieAnywhere) {
  using enum Operation;
  EXPECT_READS("ldtilecfg (%%rax)", {.operation = load_config, .address = kRax});
  EXPECT_READS("sttilecfg (%%r8)", {.operation = store_config, .address = kR8});
  EXPECT_READS("ldtilecfg 64(%%rsp)", {.operation = load_config, .address = kRsp + 64});
  EXPECT_READS("ldtilecfg (%%rbp)", {.operation = load_config, .address = kRbp});
  EXPECT_READS("ldtilecfg -0x400(%%r13)", {.operation = load_config, .address = kR13 - 0x400});
  EXPECT_READS("ldtilecfg 8(%%rax,%%r9,4)", {.operation = load_config, .address = kRax + 4 * kR9 + 8});
  const Assembled relative = ASSEMBLE("ldtilecfg 0x100(%%rip)");
  const std::uint64_t behind = reinterpret_cast<std::uintptr_t>(relative.code + relative.bytes);
  expect_reads(relative, {.operation = load_config, .address = behind + 0x100}, "relative to the next instruction");
}

TEST(Instruction, WhatIsNoneOfThemIsLeft) {
  EXPECT_LEAVES("ud2");
  EXPECT_LEAVES("ret");
  EXPECT_LEAVES(".byte 0xC4, 0xE2, 0x75, 0x36, 0xD0");  // VPERMD, which has the same kind of prefix
  EXPECT_LEAVES(".byte 0xC4, 0xE2, 0x63, 0x5E, 0xCA");  // TDPBSSD, of AMX-INT8
  EXPECT_LEAVES(".byte 0xC4, 0xE2, 0x63, 0x5C, 0xCA");  // TDPFP16PS, of AMX-FP16
  EXPECT_LEAVES("tileloadd %%fs:(%%rax,%%rbx,1), %%tmm4");
  EXPECT_LEAVES("tileloadd (%%eax,%%ebx,1), %%tmm4");
  EXPECT_LEAVES(".byte 0xC4, 0xE2, 0xFB, 0x49, 0xC0");  // TILEZERO with W1
  EXPECT_LEAVES(".byte 0xC4, 0xE2, 0x7F, 0x49, 0xC0");  // with 256 bits
  EXPECT_LEAVES(".byte 0xC4, 0x62, 0x7B, 0x49, 0xC0");  // of a ninth tile
  EXPECT_LEAVES(".byte 0xC4, 0xE2, 0x73, 0x49, 0xC0");  // with an operand that it does not have
  EXPECT_LEAVES(".byte 0xC4, 0xE2, 0x7B, 0x4B, 0x00");  // TILELOADD without SIB
  EXPECT_LEAVES(".byte 0xC4, 0xE2, 0x32, 0x5C, 0xCA");  // TDPBF16PS with a ninth tile
}

}  // namespace
}  // namespace heed::amx
