// Token ids against the published tokenizer's: every string of tokenizer/strings.bin, digest by
// digest. Prints one line; exits with 1 if any string differs.
//
//   tokenizer_golden NAME.ids MODEL.gguf

#include <zlib.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "model/gguf.hpp"
#include "model/tokenizer.hpp"

namespace {

using namespace outrider;

/// Bytes of id digest per string.
constexpr size_t k_digest_bytes = 4;
constexpr size_t k_text_bytes_max = size_t{64} << 20;
constexpr size_t k_shown_max = 10;

Result<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::io, "cannot read " + path.string());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Result<std::string> inflate_all(const std::string& packed) {
  std::string out(k_text_bytes_max, '\0');
  uLongf size = out.size();
  const int status = uncompress(reinterpret_cast<Bytef*>(out.data()), &size,
                                reinterpret_cast<const Bytef*>(packed.data()), packed.size());
  if (status != Z_OK) return fail(ErrorCode::corrupt, "zlib error " + std::to_string(status));
  out.resize(size);
  return out;
}

/// Per string a length (u32, little-endian) and that many bytes.
Result<std::vector<std::string_view>> split_strings(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    uint32_t size = 0;
    if (text.size() < sizeof(size)) return fail(ErrorCode::corrupt, "a length is cut off");
    std::memcpy(&size, text.data(), sizeof(size));
    text.remove_prefix(sizeof(size));
    if (text.size() < size) return fail(ErrorCode::corrupt, "a string is cut off");
    out.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return out;
}

std::string digest_of(const std::vector<int32_t>& ids) {
  const Digest256 digest =
      sha256({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)});
  return {reinterpret_cast<const char*>(digest.data()), k_digest_bytes};
}

void show(std::string_view text, const std::vector<int32_t>& ids) {
  std::printf("  differs: \"");
  for (const char c : text.substr(0, 200)) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      std::putchar(c);
    } else {
      std::printf("\\x%02x", byte);
    }
  }
  std::printf("\" ->");
  for (size_t i = 0; i < ids.size() && i < 40; ++i) std::printf(" %d", ids[i]);
  std::printf("\n");
}

Result<size_t> compare(const std::filesystem::path& golden, const std::string& model_path) {
  const auto file = model::GgufFile::open(model_path);
  if (!file) return file.error();
  const auto tokenizer = model::Tokenizer::from_gguf(*file);
  if (!tokenizer) return tokenizer.error();
  const auto digests = read_file(golden);
  if (!digests) return digests.error();
  const auto packed = read_file(golden.parent_path() / "strings.bin");
  if (!packed) return packed.error();
  const auto text = inflate_all(*packed);
  if (!text) return text.error();
  const auto strings = split_strings(*text);
  if (!strings) return strings.error();
  if (strings->empty() || digests->size() != strings->size() * k_digest_bytes) {
    return fail(ErrorCode::corrupt, std::to_string(digests->size()) + " bytes of digests for " +
                                        std::to_string(strings->size()) + " strings");
  }

  size_t different = 0;
  size_t ids_total = 0;
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < strings->size(); ++i) {
    const auto ids = (*tokenizer)->encode((*strings)[i], {.add_special = false});
    ids_total += ids.size();
    if (digest_of(ids) == digests->substr(i * k_digest_bytes, k_digest_bytes)) continue;
    if (different++ < k_shown_max) show((*strings)[i], ids);
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("%s: %zu strings, %zu bytes, %zu ids, %zu differences, %.2f MB/s\n",
              golden.stem().c_str(), strings->size(), text->size(), ids_total, different,
              static_cast<double>(text->size()) / taken.count() / 1e6);
  return different;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Compares token ids with a golden.");
  std::string golden;
  std::string model_path;
  app.add_option("golden", golden, "NAME.ids, beside strings.bin")->required();
  app.add_option("model", model_path, "GGUF file")->required();
  CLI11_PARSE(app, argc, argv);
  const auto different = compare(golden, model_path);
  if (!different) {
    std::fprintf(stderr, "tokenizer_golden: %s\n", different.error().message.c_str());
    return 2;
  }
  return *different == 0 ? 0 : 1;
}
