#pragma once

#include <heed/error.hpp>
#include <heed/types.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

/// f16 and bf16 as bit patterns: conversion in both directions, and access to an element of any type heed reads or
/// writes. Rounds to nearest even; infinities, NaN, denormals and signed zeros are kept. Everything that takes a
/// pointer asks for no alignment.
namespace heed::core {

using Bits16 = std::uint16_t;

constexpr float f32_from_bf16(Bits16 bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

constexpr Bits16 bf16_from_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // A NaN whose payload sits in the low half only would round to infinity: make it quiet, keep sign and high payload.
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<Bits16>((bits >> 16) | 0x0040u);
  return static_cast<Bits16>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float f32_from_f16(Bits16 bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x03FFu) << 13));
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  // A denormal is an integer times 2^-24, and exact in f32.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

constexpr Bits16 f16_from_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<Bits16>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<Bits16>(sign | 0x7E00u | ((magnitude >> 13) & 0x03FFu));
  if (magnitude >= 0x477FF000u) return static_cast<Bits16>(sign | 0x7C00u);  // 65520 and up are nearer to infinity
  if (magnitude >= 0x38800000u) {                                            // 2^-14: normal in f16
    const std::uint32_t rounded = magnitude + 0x0FFFu + ((magnitude >> 13) & 1u);
    return static_cast<Bits16>(sign | ((rounded - (112u << 23)) >> 13));
  }
  if (magnitude <= 0x33000000u) return sign;  // 2^-25, half the smallest denormal, is a tie and goes to the even zero
  // Denormal: round the significand to a multiple of 2^-24.
  const std::uint32_t exponent = magnitude >> 23;
  const std::uint32_t significand = (magnitude & 0x007FFFFFu) | 0x00800000u;
  const std::uint32_t shift = 126u - exponent;  // 14 .. 24
  const std::uint32_t rest = significand & ((1u << shift) - 1u);
  const std::uint32_t half = 1u << (shift - 1u);
  std::uint32_t result = significand >> shift;
  if (rest > half || (rest == half && (result & 1u) != 0)) ++result;
  return static_cast<Bits16>(sign | result);
}

/// f64 to f32 by rounding to odd: what follows can round once more, to 16 bits, without rounding twice.
constexpr float f32_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool away_from_zero = value < 0 ? static_cast<double>(nearest) < value : static_cast<double>(nearest) > value;
  if (away_from_zero) --bits;
  return std::bit_cast<float>(bits | 1u);
}

constexpr Bits16 f16_from_f64(double value) { return f16_from_f32(f32_to_odd(value)); }
constexpr Bits16 bf16_from_f64(double value) { return bf16_from_f32(f32_to_odd(value)); }

/// The bytes at element `index` of an array of T.
template <class T>
T load_raw(const void* data, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void store_raw(void* data, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

[[noreturn]] inline void throw_not_floating(DataType type) {
  throw Error(ErrorCode::internal,
              "an element of type " + std::string(name(type)) + " was used as f64, f32, f16 or bf16, which it is not.");
}

/// Element `index` of an array of f64, f32, f16 or bf16; exact as a double.
inline double load(const void* data, DataType type, std::int64_t index) {
  switch (type) {
    case DataType::f64:
      return load_raw<double>(data, index);
    case DataType::f32:
      return static_cast<double>(load_raw<float>(data, index));
    case DataType::f16:
      return static_cast<double>(f32_from_f16(load_raw<Bits16>(data, index)));
    case DataType::bf16:
      return static_cast<double>(f32_from_bf16(load_raw<Bits16>(data, index)));
    default:
      throw_not_floating(type);
  }
}

/// The same as a float: exact but for f64, which is rounded to nearest.
inline float load_f32(const void* data, DataType type, std::int64_t index) {
  switch (type) {
    case DataType::f64:
      return static_cast<float>(load_raw<double>(data, index));
    case DataType::f32:
      return load_raw<float>(data, index);
    case DataType::f16:
      return f32_from_f16(load_raw<Bits16>(data, index));
    case DataType::bf16:
      return f32_from_bf16(load_raw<Bits16>(data, index));
    default:
      throw_not_floating(type);
  }
}

/// Writes element `index` of an array of f64, f32, f16 or bf16, rounded once from `value`.
inline void store(void* data, DataType type, std::int64_t index, double value) {
  switch (type) {
    case DataType::f64:
      return store_raw(data, index, value);
    case DataType::f32:
      return store_raw(data, index, static_cast<float>(value));
    case DataType::f16:
      return store_raw(data, index, f16_from_f64(value));
    case DataType::bf16:
      return store_raw(data, index, bf16_from_f64(value));
    default:
      throw_not_floating(type);
  }
}

inline void store(void* data, DataType type, std::int64_t index, float value) {
  switch (type) {
    case DataType::f64:
      return store_raw(data, index, static_cast<double>(value));
    case DataType::f32:
      return store_raw(data, index, value);
    case DataType::f16:
      return store_raw(data, index, f16_from_f32(value));
    case DataType::bf16:
      return store_raw(data, index, bf16_from_f32(value));
    default:
      throw_not_floating(type);
  }
}

}  // namespace heed::core
