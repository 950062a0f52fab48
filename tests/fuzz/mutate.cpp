#include "tests/fuzz/mutate.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace outrider::fuzz {
namespace {

size_t below(Random& random, size_t bound) {
  return static_cast<size_t>(random.next_u64() % bound);
}

auto at(Input& input, size_t index) {
  return input.begin() + static_cast<std::ptrdiff_t>(index);
}

/// Short parts are likelier than long ones.
size_t part_size(Random& random, size_t available) {
  const size_t bound = size_t{1} << below(random, 9);
  return std::min(available, 1 + below(random, bound));
}

void flip_bit(Input& input, Random& random) {
  input[below(random, input.size())] ^= static_cast<uint8_t>(1u << random.below(8));
}

void set_byte(Input& input, Random& random) {
  input[below(random, input.size())] = static_cast<uint8_t>(random.next_u32());
}

/// Writes an integer that tends to break arithmetic, or moves the one that is there a little.
void edge_integer(Input& input, Random& random) {
  constexpr uint64_t k_edges[] = {0,          1,          2,          7,          8,
                                  31,         32,         127,        128,        255,
                                  256,        0x7FFF,     0x8000,     0xFFFF,     0x10000,
                                  0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1ull << 32, 1ull << 44,
                                  1ull << 61, ~0ull >> 1, 1ull << 63, ~0ull};
  const size_t width = std::min(size_t{1} << random.below(4), input.size());
  const size_t position = below(random, input.size() - width + 1);
  uint64_t value = 0;
  std::memcpy(&value, &input[position], width);
  if (random.chance(0.5f)) {
    value += static_cast<uint64_t>(random.between(-16, 16));
  } else {
    value = k_edges[random.below(std::size(k_edges))];
  }
  std::memcpy(&input[position], &value, width);
}

void erase_part(Input& input, Random& random) {
  const size_t begin = below(random, input.size());
  const size_t size = part_size(random, input.size() - begin);
  input.erase(at(input, begin), at(input, begin + size));
}

void truncate(Input& input, Random& random) {
  input.resize(below(random, input.size() + 1));
}

void repeat_part(Input& input, Random& random) {
  const size_t begin = below(random, input.size());
  const size_t size = part_size(random, input.size() - begin);
  const Input part(at(input, begin), at(input, begin + size));
  const size_t times = 1 + below(random, 4);
  for (size_t i = 0; i < times; ++i) input.insert(at(input, begin), part.begin(), part.end());
}

void insert_random(Input& input, Random& random) {
  Input part(part_size(random, 32));
  for (uint8_t& byte : part) byte = static_cast<uint8_t>(random.next_u32());
  input.insert(at(input, below(random, input.size() + 1)), part.begin(), part.end());
}

/// A part of another input, inserted or written over what is there.
void splice(Input& input, const Input& other, Random& random) {
  if (other.empty()) return;
  const size_t from = below(random, other.size());
  const size_t size = part_size(random, other.size() - from);
  const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
  const size_t to = below(random, input.size() + 1);
  if (random.chance(0.5f)) {
    input.insert(at(input, to), begin, begin + static_cast<std::ptrdiff_t>(size));
  } else {
    if (to + size > input.size()) input.resize(to + size);
    std::copy_n(begin, size, at(input, to));
  }
}

void change(Input& input, std::span<const Input> corpus, Random& random) {
  if (input.empty()) return insert_random(input, random);
  switch (random.below(12)) {
    case 0:
    case 1:
      return flip_bit(input, random);
    case 2:
    case 3:
      return set_byte(input, random);
    case 4:
    case 5:
    case 6:
      return edge_integer(input, random);
    case 7:
      return erase_part(input, random);
    case 8:
      return random.chance(0.25f) ? truncate(input, random) : repeat_part(input, random);
    case 9:
      return insert_random(input, random);
    default:
      return splice(input, corpus[below(random, corpus.size())], random);
  }
}

}  // namespace

Input mutate(std::span<const Input> corpus, Random& random) {
  const Input none;
  if (corpus.empty()) corpus = std::span(&none, 1);
  Input input = corpus[below(random, corpus.size())];
  const uint32_t changes = 1 + random.below(8);
  for (uint32_t i = 0; i < changes; ++i) {
    change(input, corpus, random);
    if (input.size() > input_bytes_max) input.resize(input_bytes_max);
  }
  return input;
}

}  // namespace outrider::fuzz
