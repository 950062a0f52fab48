#include <algorithm>

#include "model/jinja_methods.hpp"
#include "model/jinja_text.hpp"

namespace outrider::model::jinja {
namespace {

bool space_at(std::string_view text, size_t at, size_t& next) {
  next = at;
  return is_space(decode_at(text, next));
}

}  // namespace

Value split_text(Interpreter& in, const std::string& text, const std::string& separator,
                 int64_t count, bool from_right) {
  if (separator.empty()) fail_value("empty separator");
  std::vector<size_t> cuts;
  for (size_t at = find_text(text, separator); at != std::string::npos;
       at = find_text(text, separator, at + separator.size())) {
    cuts.push_back(at);
  }
  if (from_right && count >= 0) {
    // Hits are counted from the right, where they may overlap otherwise: found anew.
    cuts.clear();
    size_t end = text.size();
    while (static_cast<int64_t>(cuts.size()) < count && end >= separator.size()) {
      const size_t at = text.rfind(separator, end - separator.size());
      in.budget().charge(end - (at == std::string::npos ? 0 : at));
      if (at == std::string::npos) break;
      cuts.push_back(at);
      end = at;
    }
    std::reverse(cuts.begin(), cuts.end());
  } else if (count >= 0 && cuts.size() > static_cast<size_t>(count)) {
    cuts.resize(static_cast<size_t>(count));
  }
  std::vector<Value> parts;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    parts.emplace_back(text.substr(begin, cut - begin));
    begin = cut + separator.size();
  }
  parts.emplace_back(text.substr(begin));
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
  for (const Word& word : words) parts.emplace_back(text.substr(word.begin, word.end - word.begin));
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
