// Text to ids and back: any bytes encode, the ids are the vocabulary's, and what they decode to is
// the input with invalid UTF-8 replaced. The first byte chooses tokenizer and options.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.hpp"
#include "model/gguf.hpp"
#include "model/stopping.hpp"
#include "model/tokenizer.hpp"

namespace {

using namespace outrider;
using TokenizerPtr = std::shared_ptr<const model::Tokenizer>;

void require(bool holds) {
  if (!holds) std::abort();
}

/// One tokenizer of each splitting rule that changes no text (qwen2 normalises).
std::vector<TokenizerPtr> make_tokenizers() {
  const auto file = model::GgufFile::open("tests/support/models/tiny-llama.gguf");
  require(file.ok());
  std::vector<TokenizerPtr> out;
  for (const char* pre : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    auto data = model::tokenizer_data_from_gguf(*file);
    require(data.ok());
    data->pre = pre;
    auto tokenizer = model::Tokenizer::create(std::move(*data));
    require(tokenizer.ok());
    out.push_back(*tokenizer);
  }
  return out;
}

/// The stream gives whole characters, and all of the text in the end.
void check_stream(const TokenizerPtr& tokenizer, const std::vector<int32_t>& ids,
                  const std::string& text) {
  model::TextStream stream(tokenizer, {.skip_special_tokens = false});
  std::string joined;
  for (const int32_t id : ids) {
    const std::string part = stream.push(id);
    require(utf8_valid(part));
    joined += part;
  }
  require(joined + stream.finish() == text);
}

/// What comes out before a stop string is what stood before its first end, and nothing of it leaks.
void check_stop(const TokenizerPtr& tokenizer, const std::vector<int32_t>& ids,
                const std::string& text, const std::string& stop) {
  model::TextStream stream(tokenizer, {.stop_strings = {stop}, .skip_special_tokens = false});
  model::Detokenizer plain(tokenizer, false);
  std::string joined;
  size_t pushed = 0;  // bytes of text without those that only `finish` gives
  for (const int32_t id : ids) {
    joined += stream.push(id);
    pushed += plain.push(id).size();
  }
  joined += stream.finish();
  const size_t at = text.find(stop);
  const bool has_match = at != std::string::npos && at + stop.size() <= pushed;
  require(stream.stop_string().has_value() == has_match);
  require(joined == (has_match ? text.substr(0, at) : text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<TokenizerPtr> tokenizers = make_tokenizers();
  if (size == 0) return 0;
  const TokenizerPtr& tokenizer = tokenizers[data[0] & 3];
  const bool is_exact = (data[0] & 3) != 3;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const model::EncodeOptions options{.add_special = (data[0] & 4) != 0,
                                     .parse_special = (data[0] & 8) != 0};
  const std::vector<int32_t> ids = tokenizer->encode(input, options);
  for (const int32_t id : ids) {
    require(tokenizer->contains(id));
    require(options.parse_special || options.add_special || !tokenizer->is_special(id));
  }
  const std::string text = tokenizer->decode(ids);
  require(utf8_valid(text));
  if (is_exact && !options.add_special) require(text == utf8_replace_invalid(input));
  check_stream(tokenizer, ids, text);
  const size_t stop_at = text.size() / 2;
  const std::string stop = text.substr(stop_at, 1 + data[0] % 5);
  if (!stop.empty() && utf8_valid(stop)) check_stop(tokenizer, ids, text, stop);
  return 0;
}
