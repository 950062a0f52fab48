#include "model/bpe_merger.hpp"

#include <algorithm>

namespace outrider::model {
namespace {

void append_utf8(uint32_t code_point, std::string& out) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else {  // the alphabet ends at U+0143
    out += static_cast<char>(0xC0 | (code_point >> 6));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  }
}

std::array<std::string, 256> make_byte_alphabet() {
  std::array<std::string, 256> alphabet;
  uint32_t next = 256;  // bytes that do not print get the characters from U+0100 on
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
                        (byte >= 0xAE && byte <= 0xFF);
    append_utf8(prints ? byte : next++, alphabet[byte]);
  }
  return alphabet;
}

std::unordered_map<std::string_view, uint8_t> make_inverse() {
  std::unordered_map<std::string_view, uint8_t> inverse;
  const auto& alphabet = byte_alphabet();
  for (size_t byte = 0; byte < 256; ++byte) {
    inverse.emplace(alphabet[byte], static_cast<uint8_t>(byte));
  }
  return inverse;
}

}  // namespace

const std::array<std::string, 256>& byte_alphabet() {
  static const std::array<std::string, 256> alphabet = make_byte_alphabet();
  return alphabet;
}

bool alphabet_to_bytes(std::string_view token, std::string& bytes) {
  static const std::unordered_map<std::string_view, uint8_t> inverse = make_inverse();
  bytes.clear();
  for (size_t at = 0; at < token.size();) {
    const size_t length = static_cast<uint8_t>(token[at]) < 0x80 ? 1 : 2;
    const auto found = inverse.find(token.substr(at, length));
    if (found == inverse.end()) return false;
    bytes += static_cast<char>(found->second);
    at += length;
  }
  return true;
}

Result<std::unique_ptr<BpeMerger>> BpeMerger::create(const TokenizerData& data,
                                                     bool whole_words_first) {
  auto merger = std::make_unique<BpeMerger>();
  std::unordered_map<std::string_view, int32_t> ids;
  ids.reserve(data.tokens.size());
  std::string bytes;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    ids.emplace(data.tokens[id], static_cast<int32_t>(id));
    if (whole_words_first && data.types[id] == TokenizerData::Type::normal &&
        alphabet_to_bytes(data.tokens[id], bytes)) {
      merger->words_.emplace(bytes, static_cast<int32_t>(id));
    }
  }
  const auto id_of = [&](std::string_view token) {
    const auto found = ids.find(token);
    return found == ids.end() ? -1 : found->second;
  };
  for (size_t byte = 0; byte < 256; ++byte) merger->byte_ids_[byte] = id_of(byte_alphabet()[byte]);
  merger->merges_.reserve(data.merges.size());
  for (size_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string& merge = data.merges[rank];
    const size_t space = merge.find(' ', 1);
    const int32_t left = space == std::string::npos ? -1 : id_of(merge.substr(0, space));
    const int32_t right = space == std::string::npos ? -1 : id_of(merge.substr(space + 1));
    const int32_t merged =
        left < 0 || right < 0 ? -1 : id_of(merge.substr(0, space) + merge.substr(space + 1));
    if (merged < 0) {
      return fail(ErrorCode::corrupt,
                  "tokenizer.ggml.merges: merge " + std::to_string(rank) +
                      " names tokens that are not in the vocabulary",
                  "tokenizer.ggml.merges");
    }
    merger->merges_.emplace(pair_key(left, right), Merge{static_cast<uint32_t>(rank), merged});
  }
  return merger;
}

std::vector<BpeMerger::Symbol> BpeMerger::byte_symbols(std::string_view word) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id < 0) continue;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1});
  }
  if (!symbols.empty()) symbols.back().next = -1;
  return symbols;
}

void BpeMerger::push_candidate(const std::vector<Symbol>& symbols, int32_t left,
                               std::vector<Candidate>& heap) const {
  if (left < 0 || symbols[static_cast<size_t>(left)].next < 0) return;
  const Symbol& a = symbols[static_cast<size_t>(left)];
  const Symbol& b = symbols[static_cast<size_t>(a.next)];
  const auto found = merges_.find(pair_key(a.id, b.id));
  if (found == merges_.end()) return;
  heap.push_back({found->second.rank, left, a.id, b.id, found->second.id});
  std::push_heap(heap.begin(), heap.end(), [](const Candidate& x, const Candidate& y) {
    return x.rank != y.rank ? x.rank > y.rank : x.left > y.left;
  });
}

void BpeMerger::append(std::string_view word, std::vector<int32_t>& ids) const {
  if (!words_.empty()) {
    const auto found = words_.find(std::string(word));
    if (found != words_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  std::vector<Symbol> symbols = byte_symbols(word);
  if (symbols.empty()) return;
  std::vector<Candidate> heap;
  heap.reserve(symbols.size());
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    push_candidate(symbols, static_cast<int32_t>(i), heap);
  }
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), [](const Candidate& x, const Candidate& y) {
      return x.rank != y.rank ? x.rank > y.rank : x.left > y.left;
    });
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(best.left)];
    // A merge of either side since then makes the candidate stale.
    if (left.id != best.left_id || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != best.right_id) continue;
    left.id = best.merged_id;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.left;
    push_candidate(symbols, left.previous, heap);
    push_candidate(symbols, best.left, heap);
  }
  for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].next) {
    ids.push_back(symbols[static_cast<size_t>(at)].id);
  }
}

}  // namespace outrider::model
