#include "tools/shown.hpp"

namespace outrider::tools {

std::string shown(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = c == '\n' ? ' ' : '?';
  }
  return text;
}

}  // namespace outrider::tools
