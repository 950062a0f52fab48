#include "base/sampling_ranges.hpp"

#include <sstream>

namespace outrider {

std::string describe(NumberRange range) {
  std::ostringstream out;
  out << "a number " << (range.open_low ? "above " : "from ") << range.low
      << (range.open_low ? ", at most " : " to ") << range.high;
  return out.str();
}

std::string describe(IntegerRange range) {
  const std::string low = std::to_string(range.low);
  if (range.high == INT64_MAX) return "a whole number of at least " + low;
  return "a whole number from " + low + " to " + std::to_string(range.high);
}

std::string describe(SeedRange) {
  return "a whole number from 0 to " + std::to_string(UINT64_MAX);
}

}  // namespace outrider
