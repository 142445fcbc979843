#include "amx/tiles.hpp"
#include "amx/last_words.hpp"
#include "amx/products.hpp"

#include <xmmintrin.h>

#include <cstring>

namespace heed::amx {
namespace {

LastWords refuse(const Instruction& instruction) {
  LastWords words;
  words << name(instruction.operation) << ": ";
  return words;
}

bool all_zero(const void* from, const void* end) {
  for (auto at = static_cast<const std::uint8_t*>(from); at != end; ++at)
    if (*at != 0) return false;
  return true;
}

/// What a CPU answers with #GP.
void check(const Instruction& instruction, const TileConfig& config) {
  if (config.palette > 1) (refuse(instruction) << "palette " << config.palette << "; there is palette 1").end();
  if (!all_zero(config.reserved, config.row_bytes) || !all_zero(config.row_bytes + kTiles, config.rows) ||
      !all_zero(config.rows + kTiles, &config + 1))
    (refuse(instruction) << "a reserved byte is not zero").end();
  for (int tile = 0; tile < kTiles; ++tile) {
    const int rows = config.rows[tile], bytes = config.row_bytes[tile];
    const auto words = [&] {
      LastWords w = refuse(instruction);
      w << "tile " << tile << " of " << rows << " rows of " << bytes << " bytes; ";
      return w;
    };
    if (rows > kMostRows || bytes > kRowBytes) (words() << "at most 16 rows of 64 bytes").end();
    if ((rows == 0) != (bytes == 0)) (words() << "either both are zero or none").end();
  }
}

void load_config(const Instruction& instruction, Tiles& tiles) {
  TileConfig config;
  std::memcpy(&config, reinterpret_cast<const void*>(instruction.address), sizeof config);
  // Palette 0 is the state before a configuration, whatever the other bytes are.
  if (config.palette == 0) config = {};
  check(instruction, config);
  std::memset(tiles.bytes, 0, sizeof tiles.bytes);
  tiles.config = config;
}

/// A tile that an instruction may use, which is decided by the configuration.
struct Shape {
  int rows, row_bytes;
};
Shape shape_of(const Instruction& instruction, const Tiles& tiles, int tile) {
  if (tiles.config.palette == 0) (refuse(instruction) << "tiles have no configuration in this thread").end();
  const Shape shape{tiles.config.rows[tile], tiles.config.row_bytes[tile]};
  if (shape.rows == 0) (refuse(instruction) << "tile " << tile << " has no rows in this configuration").end();
  return shape;
}
Shape shape_of_words(const Instruction& instruction, const Tiles& tiles, int tile) {
  const Shape shape = shape_of(instruction, tiles, tile);
  if (shape.row_bytes % 4 != 0)
    (refuse(instruction) << "tile " << tile << " has rows of " << shape.row_bytes << " bytes; 4 have to divide it")
        .end();
  return shape;
}

/// Loads and stores begin at the configuration's start row, which an interrupted one has left there.
Shape shape_to_move(const Instruction& instruction, const Tiles& tiles) {
  const Shape shape = shape_of_words(instruction, tiles, instruction.tile);
  if (tiles.config.start_row >= shape.rows)
    (refuse(instruction) << "start row " << tiles.config.start_row << " of " << shape.rows).end();
  return shape;
}

std::uint64_t address_of_row(const Instruction& instruction, int row) {
  return instruction.address + static_cast<std::uint64_t>(row) * instruction.row_stride;
}

void load(const Instruction& instruction, Tiles& tiles) {
  const Shape shape = shape_to_move(instruction, tiles);
  auto& tile = tiles.bytes[instruction.tile];
  for (int row = 0; row < kMostRows; ++row) {
    if (row < tiles.config.start_row) continue;
    std::memset(tile[row], 0, kRowBytes);
    if (row >= shape.rows) continue;
    std::memcpy(tile[row], reinterpret_cast<const void*>(address_of_row(instruction, row)),
                static_cast<std::size_t>(shape.row_bytes));
  }
}

void store(const Instruction& instruction, const Tiles& tiles) {
  const Shape shape = shape_to_move(instruction, tiles);
  for (int row = tiles.config.start_row; row < shape.rows; ++row)
    std::memcpy(reinterpret_cast<void*>(address_of_row(instruction, row)), tiles.bytes[instruction.tile][row],
                static_cast<std::size_t>(shape.row_bytes));
}

void multiply(const Instruction& i, Tiles& tiles) {
  const Shape sums = shape_of_words(i, tiles, i.tile), first = shape_of_words(i, tiles, i.first),
              second = shape_of_words(i, tiles, i.second);
  if (i.tile == i.first || i.tile == i.second || i.first == i.second)
    (refuse(i) << "tiles " << i.tile << ", " << i.first << " and " << i.second << " have to be three").end();
  if (sums.rows != first.rows || sums.row_bytes != second.row_bytes || first.row_bytes != 4 * second.rows)
    (refuse(i) << sums.rows << " rows of " << sums.row_bytes << " bytes are not the product of " << first.rows
               << " rows of " << first.row_bytes << " and " << second.rows << " rows of " << second.row_bytes)
        .end();
  // Denormals are zero before and after every step, sums are rounded to nearest, and no exception is raised, whatever
  // the thread has chosen for itself.
  constexpr unsigned kAllMasked = 0x1F80, kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(kAllMasked | kFlushToZero | kDenormalsAreZero);
  add_products(tiles.bytes[i.tile], tiles.bytes[i.first], tiles.bytes[i.second], sums.rows, second.rows,
               sums.row_bytes / 4);
  _mm_setcsr(before);
}

}  // namespace

void execute(const Instruction& instruction, Tiles& tiles) {
  switch (instruction.operation) {
    case Operation::load_config:
      return load_config(instruction, tiles);
    case Operation::store_config:
      std::memcpy(reinterpret_cast<void*>(instruction.address), &tiles.config, sizeof tiles.config);
      return;
    case Operation::release:
      tiles.config = {};
      std::memset(tiles.bytes, 0, sizeof tiles.bytes);
      return;
    case Operation::zero:
      shape_of(instruction, tiles, instruction.tile);
      std::memset(tiles.bytes[instruction.tile], 0, sizeof tiles.bytes[instruction.tile]);
      break;
    case Operation::load:
      load(instruction, tiles);
      break;
    case Operation::store:
      store(instruction, tiles);
      break;
    case Operation::products:
      multiply(instruction, tiles);
      break;
  }
  tiles.config.start_row = 0;
}

}  // namespace heed::amx
