#pragma once

#include "base/limits.hpp"
#include "model/jinja/parser.hpp"

namespace outrider::model::jinja {

/// One level of the parser's own recursion.
class Parser::Level {
 public:
  explicit Level(Parser& parser) : parser_(parser) {
    if (++parser_.levels_ > limits::template_syntax_depth_max) {
      throw TemplateError(ErrorCode::too_large, "the template nests too deeply",
                          parser_.current().line);
    }
  }
  ~Level() { --parser_.levels_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Parser& parser_;
};

}  // namespace outrider::model::jinja
