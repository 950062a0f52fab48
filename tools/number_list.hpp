#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "base/comma_list.hpp"
#include "base/sampling_ranges.hpp"
#include "tools/parse_number.hpp"

namespace outrider::tools {

/// A flag that takes numbers by commas. Not CLI11's own lists, which pass over empty entries.
template <class Number, class Range>
CLI::Option* add_number_list(CLI::App& command, const std::string& name, std::vector<Number>& out,
                             Range range, const std::string& help) {
  const auto take = [&out, range, name](const std::string& text) {
    std::vector<Number> numbers;
    for (const std::string_view entry : comma_list(text)) {
      if (!parse_number(entry, range, numbers.emplace_back())) {
        throw CLI::ValidationError(
            name, "\"" + std::string(entry) + "\" in \"" + text + "\" is not " + describe(range));
      }
    }
    out = std::move(numbers);
  };
  return command.add_option_function<std::string>(name, take, help)->type_name("N,N,…");
}

}  // namespace outrider::tools
