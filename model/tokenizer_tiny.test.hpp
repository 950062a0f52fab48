#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/philox.hpp"
#include "model/gguf.hpp"
#include "model/tokenizer.hpp"

/// The tiny models' vocabulary (512 tokens, all bytes) under any splitting rule, and hostile text.
namespace outrider::model {

inline TokenizerData tiny_data(const std::string& pre) {
  const auto file = GgufFile::open("tests/support/models/tiny-llama.gguf");
  OUTRIDER_CHECK(file.ok(), file.error().message);
  auto data = tokenizer_data_from_gguf(*file);
  OUTRIDER_CHECK(data.ok(), data.error().message);
  data->pre = pre;
  return std::move(*data);
}

inline std::shared_ptr<const Tokenizer> tiny_tokenizer(const std::string& pre) {
  auto tokenizer = Tokenizer::create(tiny_data(pre));
  OUTRIDER_CHECK(tokenizer.ok(), tokenizer.error().message);
  return *tokenizer;
}

/// Up to 40 pieces: words, spaces, digits, special tokens whole and cut, characters, stray bytes.
inline std::string random_text(Random& random) {
  static const char* k_pieces[] = {"the",     " river", "it's",    "12",     "\n",
                                   "  ",      "\t",     "\r\n",    "<|im_",  "<|im_end|>",
                                   "start|>", "\u00E9", "e\u0301", "\u4E2D", "\U0001F642",
                                   "\u200D",  "\u00A0", "\u0661",  "...",    "\U0010FFFF"};
  std::string out;
  for (uint32_t i = random.below(40); i > 0; --i) {
    if (random.below(4) == 0) {
      out += static_cast<char>(random.below(256));
    } else {
      out += k_pieces[random.below(std::size(k_pieces))];
    }
  }
  return out;
}

}  // namespace outrider::model
