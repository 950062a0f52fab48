#include "kvstore/table_check.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "base/hash.hpp"

namespace outrider::kvstore {
namespace {

namespace fs = std::filesystem;

constexpr size_t k_footer_bytes = 53;
constexpr size_t k_version_at = 41;
constexpr uint32_t k_table_version = 5;
constexpr uint64_t k_table_magic = 0x88e241b785f4cff7;
constexpr char k_xxh3 = 4;
constexpr size_t k_trailer_bytes = 5;                      // kind of compression, check sum
constexpr uint64_t k_block_bytes_max = uint64_t{4} << 20;  // of blocks about the table itself
constexpr std::string_view k_properties = "rocksdb.properties";

template <typename T>
T little_endian(std::string_view bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// Takes from the front; what is not there is zero or empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  std::string_view bytes(uint64_t count) {
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(out.size());
    return out;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

struct Handle {
  uint64_t offset = 0;
  uint64_t size = 0;
};

Handle handle_of(Reader from) {
  const uint64_t offset = from.varint();
  return {offset, from.varint()};
}

/// None where the file has not so many bytes.
std::optional<std::string> read_at(std::ifstream& file, uint64_t offset, uint64_t size) {
  std::string out(size, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(out.data(), static_cast<std::streamsize>(size));
  if (!file) return std::nullopt;
  return out;
}

/// With its trailer.
std::optional<std::string> read_block(std::ifstream& file, const Handle& at) {
  if (at.size > k_block_bytes_max || at.offset > (uint64_t{1} << 62)) return std::nullopt;
  return read_at(file, at.offset, at.size + k_trailer_bytes);
}

/// Of a block; its entries are {shared, own, value} sizes, own key bytes, value.
void each_entry(std::string_view block,
                const std::function<void(std::string_view key, std::string_view value)>& entry) {
  std::string key;
  for (Reader at(block); !at.empty();) {
    const uint64_t shared = at.varint();
    const uint64_t own = at.varint();
    const uint64_t value_bytes = at.varint();
    key.resize(std::min<uint64_t>(shared, key.size()));
    key += at.bytes(own);
    entry(key, at.bytes(value_bytes));
  }
}

/// Of the block that names others.
std::optional<Handle> properties_in(std::string_view names) {
  std::optional<Handle> out;
  each_entry(names, [&](std::string_view key, std::string_view value) {
    if (key == k_properties) out = handle_of(Reader(value));
  });
  return out;
}

/// Of a block with its trailer, whose compression byte is summed too.
bool sum_is_right(std::string_view block) {
  const size_t summed = block.size() - k_trailer_bytes + 1;
  const std::string_view most = block.substr(0, summed - 1);
  const auto last = static_cast<uint8_t>(block[summed - 1]);
  const uint32_t sum = static_cast<uint32_t>(hash64(most)) ^ (last * 0x6b9083d9U);
  return sum == little_endian<uint32_t>(block.substr(summed));
}

/// Which table of which process of which database: never twice.
struct Origin {
  std::string writer;
  uint64_t number = 0;
};

struct Properties {
  bool are_broken = false;
  std::optional<Origin> origin;
};

Origin origin_in(std::string_view properties) {
  Origin out;
  std::string database, session;
  each_entry(properties, [&](std::string_view key, std::string_view value) {
    if (key == "rocksdb.creating.db.identity") database = value;
    if (key == "rocksdb.creating.session.identity") session = value;
    if (key == "rocksdb.original.file.number") out.number = Reader(value).varint();
  });
  if (!session.empty()) out.writer = database + '/' + session;
  return out;
}

Properties properties_of(const fs::path& table) {
  std::error_code gone;
  const uint64_t size = fs::file_size(table, gone);
  if (gone || size < k_footer_bytes) return {};
  std::ifstream file(table, std::ios::binary);
  const auto footer = read_at(file, size - k_footer_bytes, k_footer_bytes);
  const bool known = footer && footer->front() == k_xxh3 &&
                     little_endian<uint32_t>(footer->substr(k_version_at)) == k_table_version &&
                     little_endian<uint64_t>(footer->substr(k_version_at + 4)) == k_table_magic;
  if (!known) return {};
  const auto names = read_block(file, handle_of(Reader(std::string_view(*footer).substr(1))));
  const auto at = names ? properties_in(*names) : std::nullopt;
  const auto block = at ? read_block(file, *at) : std::nullopt;
  if (!block) return {};
  if (!sum_is_right(*block)) return {true, {}};
  // Behind the entries stand the places of some of them, and how many.
  std::string_view entries = std::string_view(*block).substr(0, block->size() - k_trailer_bytes);
  if (entries.size() < 4) return {};
  const uint64_t places = little_endian<uint32_t>(entries.substr(entries.size() - 4));
  if (places >= entries.size() / 4) return {};
  entries.remove_suffix((places + 1) * 4);
  Origin origin = origin_in(entries);
  if (origin.number == 0 || origin.writer.empty()) return {};
  return {false, std::move(origin)};
}

}  // namespace

std::vector<TableDamage> damaged_tables(const std::string& directory) {
  std::vector<std::string> tables;
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code gone;
    const bool table =
        at->path().extension() == ".sst" && fs::is_regular_file(at->symlink_status(gone));
    if (table) tables.push_back(at->path().filename().string());
  }
  std::sort(tables.begin(), tables.end());
  std::vector<TableDamage> out;
  std::map<std::pair<std::string, uint64_t>, std::vector<std::string>> same;
  for (const std::string& table : tables) {
    const Properties properties = properties_of(directory + '/' + table);
    if (properties.are_broken) out.push_back({table, "is damaged (its properties)"});
    const auto& origin = properties.origin;
    if (origin) same[{origin->writer, origin->number}].push_back(table);
  }
  for (const auto& [origin, copies] : same) {
    const auto is_original = [number = origin.second](const std::string& table) {
      return std::strtoull(table.c_str(), nullptr, 10) == number;
    };
    auto original = std::find_if(copies.begin(), copies.end(), is_original);
    if (original == copies.end()) original = copies.begin();
    for (const std::string& copy : copies) {
      if (copy != *original) out.push_back({copy, "is a copy of " + *original});
    }
  }
  std::sort(out.begin(), out.end(),
            [](const TableDamage& a, const TableDamage& b) { return a.table < b.table; });
  return out;
}

}  // namespace outrider::kvstore
