#pragma once

#include <string_view>

namespace outrider::tools {

/// What cors-origins may be: "*", "off", or web origins (scheme://host[:port]) by commas.
bool is_origins(std::string_view text);

}  // namespace outrider::tools
