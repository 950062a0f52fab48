#pragma once

#include <string>

namespace outrider::tools {

/// Words of another origin (a server, a request, a file) as a terminal may show them: nothing that
/// moves its cursor or ends a line.
std::string shown(std::string text);

}  // namespace outrider::tools
