#include "model/jinja/filters.hpp"

namespace outrider::model::jinja {

FilterFunction find_filter(std::string_view name) {
  for (const auto table : {text_filters(), list_filters(), select_filters(), number_filters()}) {
    for (const FilterEntry& entry : table) {
      if (entry.name == name) return entry.function;
    }
  }
  return nullptr;
}

}  // namespace outrider::model::jinja
