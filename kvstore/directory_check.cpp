#include "kvstore/directory_check.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <regex>

namespace outrider::kvstore {
namespace {

namespace fs = std::filesystem;

/// RocksDB counts its files and keeps 62 bits for it; the next one gets the largest number that it
/// finds and one more.
constexpr uint64_t k_number_max = uint64_t{1} << 48;
constexpr size_t k_digits_min = 6;

/// Files that RocksDB reads whole before anything else, and what they have at most: a name, an id,
/// and what is written of tables until the next list of them is begun, at 4 MiB.
uint64_t bytes_max_of(const std::string& name) {
  if (name == "CURRENT" || name == "IDENTITY") return 4096;
  if (name.starts_with("MANIFEST-")) return uint64_t{256} << 20;
  return UINT64_MAX;
}

/// The name that RocksDB itself gives; empty where it gives no such number.
std::string name_of_file(const std::string& before, const std::string& digits,
                         const std::string& after) {
  uint64_t number = 0;
  const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (wrong != std::errc() || number > k_number_max) return {};
  if (number == 0 && after != ".dbtmp") return {};  // IDENTITY is written under 000000.dbtmp first
  std::string text = std::to_string(number);
  text.insert(0, text.size() < k_digits_min ? k_digits_min - text.size() : 0, '0');
  return before + text + (after == ".ldb" ? ".sst" : after);
}

std::optional<InTheWay> look_at(const std::string& name, bool is_file) {
  static const std::regex single(
      "CURRENT|IDENTITY|LOCK|OPENING|SALVAGING|\\.salvaging|\\.writable");
  static const std::regex numbered("(MANIFEST-|OPTIONS-|)(\\d+)(|\\.(?:sst|ldb|log|blob|dbtmp))");
  std::smatch parts;
  const bool has_number = std::regex_match(name, parts, numbered) &&
                          (parts[1].length() != 0) == (parts[3].length() == 0);
  if (!has_number && !std::regex_match(name, single)) return std::nullopt;
  if (!is_file) return InTheWay{name, "is not a file", {}};
  if (!has_number) return std::nullopt;
  std::string right = name_of_file(parts[1], parts[2], parts[3]);
  if (right == name) return std::nullopt;
  return InTheWay{name, "has a name that a database gives to no file", std::move(right)};
}

}  // namespace

std::vector<InTheWay> in_the_way(const std::string& directory) {
  std::vector<InTheWay> out;
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code gone;
    const fs::file_status status = at->symlink_status(gone);
    if (!fs::exists(status)) continue;
    const std::string name = at->path().filename().string();
    auto found = look_at(name, fs::is_regular_file(status));
    const bool too_large = !found && fs::file_size(at->path(), gone) > bytes_max_of(name);
    if (too_large && !gone) found = InTheWay{name, "is larger than a database makes it", {}};
    if (found) out.push_back(std::move(*found));
  }
  std::sort(out.begin(), out.end(),
            [](const InTheWay& a, const InTheWay& b) { return a.name < b.name; });
  return out;
}

bool lost_its_head(const std::string& directory) {
  std::error_code ignored;
  if (fs::exists(directory + "/CURRENT", ignored)) return false;
  fs::directory_iterator at(directory, ignored);
  for (; !ignored && at != fs::directory_iterator(); at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    const bool later_manifest = name.starts_with("MANIFEST") && name != "MANIFEST-000001";
    if (at->path().extension() == ".sst" || later_manifest) return true;
  }
  return false;
}

}  // namespace outrider::kvstore
