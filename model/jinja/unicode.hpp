#pragma once

#include <cstdint>
#include <span>

/// Character tables, sorted, from Python's own Unicode data (make_unicode.py).
namespace outrider::model::jinja {

struct CodeRange {
  uint32_t first, last;
};

/// Each `stride`-th code from first to last maps to itself plus `shift`.
struct CaseShift {
  uint32_t first, last, stride;
  int32_t shift;
};

/// One code that maps to two or three; 0 ends a shorter one.
struct CaseExpansion {
  uint32_t code;
  uint32_t to[3];
};

extern const std::span<const CodeRange> k_printable, k_alpha, k_digit, k_cased;
extern const std::span<const CaseShift> k_lower_shift, k_upper_shift, k_title_shift;
extern const std::span<const CaseExpansion> k_lower_expansion, k_upper_expansion, k_title_expansion;

}  // namespace outrider::model::jinja
