#include <algorithm>

#include "model/jinja/methods.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

bool space_at(std::string_view text, size_t at, size_t& next) {
  next = at;
  return is_space(decode_at(text, next));
}

/// Where the separators begin, at most `count` (all if below 0).
std::vector<size_t> cuts_from_left(const std::string& text, const std::string& separator,
                                   int64_t count) {
  std::vector<size_t> cuts;
  for (size_t at = find_text(text, separator);
       at != std::string::npos && static_cast<int64_t>(cuts.size()) != count;
       at = find_text(text, separator, at + separator.size())) {
    cuts.push_back(at);
  }
  return cuts;
}

/// The same, counted from the end, where separators that overlap are other ones.
std::vector<size_t> cuts_from_right(const std::string& text, const std::string& separator,
                                    int64_t count) {
  const std::string mirrored(text.rbegin(), text.rend());
  const std::string mirrored_separator(separator.rbegin(), separator.rend());
  std::vector<size_t> cuts = cuts_from_left(mirrored, mirrored_separator, count);
  for (size_t& cut : cuts) cut = text.size() - cut - separator.size();
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

}  // namespace

Value split_text(Interpreter& in, const std::string& text, const std::string& separator,
                 int64_t count, bool from_right) {
  if (separator.empty()) fail_value("empty separator");
  const std::vector<size_t> cuts = from_right && count >= 0
                                       ? cuts_from_right(text, separator, count)
                                       : cuts_from_left(text, separator, count);
  std::vector<Value> parts;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    parts.push_back(in.text(text.substr(begin, cut - begin)));
    begin = cut + separator.size();
  }
  parts.push_back(in.text(text.substr(begin)));
  return in.list(std::move(parts));
}

Value split_space(Interpreter& in, const std::string& text, int64_t count, bool from_right) {
  struct Word {
    size_t begin, end;
  };
  std::vector<Word> words;
  bool in_word = false;
  for (size_t at = 0, next = 0; at < text.size(); at = next) {
    const bool space = space_at(text, at, next);
    if (!space && !in_word) words.push_back({at, at});
    if (!space) words.back().end = next;
    in_word = !space;
  }
  const auto limit = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (count >= 0 && words.size() > limit) {
    if (from_right) {
      // The first words stay together, with the space between them and before them.
      const size_t joined = words.size() - limit;
      words[joined - 1].begin = 0;
      words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(joined - 1));
    } else {
      words[limit].end = text.size();
      words.resize(limit + 1);
    }
  }
  std::vector<Value> parts;
  for (const Word& word : words) {
    parts.push_back(in.text(text.substr(word.begin, word.end - word.begin)));
  }
  return in.list(std::move(parts));
}

std::string replace_text(Budget& budget, const std::string& text, const std::string& from,
                         const std::string& to, int64_t count) {
  std::string out;
  size_t begin = 0;
  const auto put = [&](std::string_view part) {
    budget.charge(part.size());
    out += part;
  };
  while (count != 0) {
    size_t at = 0;
    if (from.empty()) {
      // Python puts `to` before every character and at the end.
      if (begin > text.size()) break;
      put(to);
      if (begin == text.size()) return out;
      size_t next = begin;
      decode_at(text, next);
      put(std::string_view(text).substr(begin, next - begin));
      begin = next;
    } else {
      at = find_text(text, from, begin);
      if (at == std::string::npos) break;
      put(std::string_view(text).substr(begin, at - begin));
      put(to);
      begin = at + from.size();
    }
    if (count > 0) --count;
  }
  put(std::string_view(text).substr(begin));
  return out;
}

}  // namespace outrider::model::jinja
